"""A coordinator: DI-engine's `CommCoordinator` and its sync thread, as its `Coordinator` starts them.

usage: coordinator.py REQUEST COLLECTORS LEARNERS: its first request as JSON, and the number of replicas it waits for
"""
import json
import logging
import os
import sys
import threading

from client import LINES, LOGGER, serve
from ding.worker.coordinator.comm_coordinator import CommCoordinator
from easydict import EasyDict

logging.getLogger("werkzeug").disabled = True  # as DI-engine's --disable-flask-log does

request, collectors, learners = sys.argv[1:]
# As in DI-engine's cartpole_dqn_config_k8s.py.
config = EasyDict(
    host="0.0.0.0",
    port=int(os.environ["COORDINATOR_PORT"]),
    collector={},
    learner={},
    operator_server=dict(
        system_addr="di-server.di-system:8080",
        api_version="/v1alpha1",
        init_replicas_request=json.loads(request),
        collector_target_num=int(collectors),
        learner_target_num=int(learners),
    ),
)
callbacks = {
    "deal_with_increase_collector": lambda: None,
    "deal_with_decrease_collector": lambda: None,
}
coordinator = CommCoordinator(config, callbacks, LOGGER)
over = threading.Event()
started = threading.Event()


def state(_):
    thread = getattr(coordinator, "_period_sync_with_server_thread", None)
    return {
        "started": started.is_set(),
        "sync_alive": thread is not None and thread.is_alive(),
        "collectors": sorted(coordinator._connection_collector),
        "learners": sorted(coordinator._connection_learner),
        "log": LINES.kept[-50:],
    }


def call(body):
    """Calls a method of DI-engine's `OperatorServer`."""
    answer = getattr(coordinator._operator_server, body["method"])(**body["arguments"])
    return dict(zip(("success", "code", "message", "data"), answer))


def give_up(body):
    """Marks replicas as failed, as DI-engine does when it cannot connect: its sync thread reports them."""
    coordinator._failed_collector_conn.update(body.get("collectors", []))
    coordinator._failed_learner_conn.update(body.get("learners", []))
    return {}


def close(_):
    over.set()
    return {}


serve({"GET /state": state, "POST /call": call, "POST /give-up": give_up, "POST /close": close})
coordinator.start()
started.set()
over.wait()
coordinator.close()
