"""A collector, a learner, or the processes of a ddp learner: DI-engine's `Slave`, one for each GPU process.

It exits with code 3 on SIGUSR1. It ignores SIGTERM, as DI-engine's own replicas do: they run as process 1 without a handler.
"""
import logging
import os
import signal

import client  # noqa: F401
from ding.interaction import Slave, TaskFail

logging.getLogger("werkzeug").disabled = True
signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))


class Worker(Slave):
    """Answers as DI-engine's collectors and learners do before they have a task."""

    def _before_connection(self, data):
        super()._before_connection(data)
        print("connected", flush=True)

    def _before_disconnection(self, data):
        print("disconnected", flush=True)

    def _process_task(self, task):
        if task["name"] == "resource":
            return {"gpu": int(os.environ.get("WORLD_SIZE", 1)), "cpu": "xxx"}
        raise TaskFail(result={"message": "task name error"}, message=f"illegal task <{task['name']}>")


port = int(os.environ.get("COLLECTOR_PORT") or os.environ["LEARNER_PORT"])
first = int(os.environ.get("START_RANK", 0))
for rank in range(first, first + int(os.environ.get("LOCAL_WORLD_SIZE", 1))):
    Worker("0.0.0.0", port + rank).start()
    print(f"listening on {port + rank}", flush=True)
while True:
    signal.pause()
