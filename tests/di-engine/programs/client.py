"""DI-engine's published client classes without the other imports of their packages: torch, numpy and more.

A package's `__init__` imports all of it. Here packages are registered as empty modules with their real folders, and their
files are imported unmodified. `ding.utils` has only the names that the client uses.
"""
import importlib
import importlib.util
import json
import logging
import sys
import threading
import time
import traceback
import types
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(importlib.util.find_spec("ding").origin).parent
CONTROL_PORT = 8000


def package(name, **names):
    """Registers a package of DI-engine without running its `__init__`."""
    module = types.ModuleType(name)
    module.__path__ = [str(ROOT.joinpath(*name.split(".")[1:]))]
    module.__dict__.update(names)
    sys.modules[name] = module
    return module


def module(name, **names):
    """Registers a module with only these names."""
    module = types.ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module


class Lines(logging.Handler):
    """Prints and keeps the log lines of DI-engine."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def emit(self, record):
        line = self.format(record)
        self.kept.append(line)
        print(line, flush=True)


LINES = Lines()
LOGGER = logging.getLogger("di-engine")
LOGGER.addHandler(LINES)
LOGGER.setLevel(logging.INFO)

module("ding.utils.default_helper", one_time_warning=LOGGER.warning)
utils = package("ding.utils", build_logger=lambda **_: (LOGGER, None))
for file in ("lock_helper", "k8s_helper"):
    found = importlib.import_module(f"ding.utils.{file}")
    utils.__dict__.update({name: value for name, value in vars(found).items() if not name.startswith("_")})
for name in ("worker", "worker.coordinator", "worker.adapter"):
    package(f"ding.{name}")

from ding.interaction import Slave  # noqa: E402
from ding.interaction.config import DEFAULT_HEARTBEAT_SPAN  # noqa: E402

begin = Slave.start


def start(slave):
    slave.began = time.time()
    begin(slave)


def between_heartbeats(slave, _):
    """Delays a connection that would begin shortly before a heartbeat.

    A heartbeat that arrives before the other end has recorded the connection is rejected. That ends DI-engine's heartbeats, and
    later, at the disconnect, the sync thread of the other end.
    """
    since = (time.time() - slave.began) % DEFAULT_HEARTBEAT_SPAN
    if since > DEFAULT_HEARTBEAT_SPAN / 2:
        time.sleep(DEFAULT_HEARTBEAT_SPAN - since + 0.2)


# The hook that DI-engine calls before a connection.
Slave.start, Slave._before_connection = start, between_heartbeats
# Log the exception that ends a thread.
threading.excepthook = lambda died: LOGGER.error(
    "%s ended: %s", died.thread.name, "".join(traceback.format_exception(died.exc_type, died.exc_value, died.exc_traceback))
)


def serve(routes):
    """Serves `{"GET /path": function of the body}` on the control port, for the test's queries and commands."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                status, answer = 200, routes[f"{self.command} {self.path}"](json.loads(body or "{}"))
            except Exception as error:  # an exception of DI-engine is a response, too
                status, answer = 500, {"error": repr(error)}
            answer = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = answer

        def log_message(self, *_):
            """Do not log the test's queries."""

    server = ThreadingHTTPServer(("", CONTROL_PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
