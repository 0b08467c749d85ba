"""DI-engine's command line `ditask`, with its message queue and its tasks.

The registered names are those that a process per pod without a GPU uses: `mpire` starts further processes, `redis` is another
message queue, and tensors are in the context of training tasks.
"""
import logging
import sys

import client

logging.basicConfig(level=logging.INFO, format="%(message)s")
client.module("ditk", logging=logging)
client.module("redis")
client.module("mpire.pool", WorkerPool=None)
client.module("treetensor")
client.module("treetensor.torch", Tensor=None)
from ding.utils.registry_factory import MQ_REGISTRY  # noqa: E402

sys.modules["ding.utils"].MQ_REGISTRY = MQ_REGISTRY
client.package("ding.entry")
framework = client.package("ding.framework")
client.package("ding.framework.middleware")
from ding.framework.parallel import Parallel  # noqa: E402
from ding.framework.task import task  # noqa: E402

framework.Parallel, framework.task = Parallel, task
from ding.entry.cli_ditask import cli_ditask  # noqa: E402

cli_ditask()
