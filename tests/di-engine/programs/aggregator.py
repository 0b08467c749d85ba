"""An aggregator: DI-engine's `LearnerAggregator`, with the settings of its `dist_launch_learner_aggregator`."""
import logging
import os

from client import LINES, serve
from ding.worker.adapter.learner_aggregator import LearnerAggregator
from easydict import EasyDict

logging.getLogger("werkzeug").disabled = True
port = int(os.environ["AGGREGATOR_PORT"])
config = EasyDict(
    master=dict(host="0.0.0.0", port=port + 1),
    slave=dict(host="0.0.0.0", port=port),
    learner={},
)
aggregator = LearnerAggregator(config)


def state(_):
    thread = getattr(aggregator, "_period_sync_with_server_thread", None)
    return {
        "sync_alive": thread is not None and thread.is_alive(),
        "learners": sorted(aggregator._learner_connection),
        "log": LINES.kept[-50:],
    }


def give_up(body):
    """Marks learners as failed, as DI-engine does when it cannot connect: its sync thread reports them."""
    aggregator._failed_learner_conn.update(body["learners"])
    return {}


serve({"GET /state": state, "POST /give-up": give_up})
aggregator.start()
