"""A worker that serves the life-cycle handles, so that ``kubectl di pause``, ``start`` and ``status`` work for it."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import queue
import signal
import socketserver
import threading
import time
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler
from typing import Any, Callable, Iterator, Mapping, Optional

_log = logging.getLogger(__name__)

Config = dict[str, Any]
_Call = tuple[str, Config, "Future[dict[str, Any]]"]

PORT_VARIABLES = ("COORDINATOR_PORT", "COLLECTOR_PORT", "LEARNER_PORT", "AGGREGATOR_PORT")
MAX_BODY_BYTES = 1 << 20
DRAIN_TIMEOUT_SECONDS = 1.0
EXIT_CODE_TERMINATED = 143
_ENDING = ("exiting", "completed", "error")
# The status after each call, by the status before. Other calls are rejected.
_NEXT_STATUS: dict[str, dict[str, str]] = {
    "configure": {"configured": "configured", "paused": "configured"},
    "start": {"configured": "running", "running": "running", "paused": "running"},
    "pause": {"configured": "configured", "running": "paused", "paused": "paused"},
    "exit": dict.fromkeys(("configured", "running", "paused", "exiting"), "exiting"),
}


class Worker:
    """Runs a loop of steps and serves the life-cycle handles::

        with Worker() as worker:
            for config in worker:
                loss = train_step(config.get("learning_rate", 0.001))
                worker.report(samples=512, batches=1, loss=loss)

    A call takes effect between two steps, in the thread of the loop. The loop waits while the worker is paused, and ends after
    an exit call or SIGTERM. After SIGTERM the ``with`` block exits with code 143, so that the pod counts as interrupted.

    Args:
        config: the first configuration.
        configure: called with each configuration. An exception rejects it.
        start: whether the loop runs at once. Otherwise it waits for ``start``.
        port: port of the handles; 0 selects a free one. The default is the port of this replica. Outside of a job, the loop
            runs without handles.
    """

    def __init__(
        self, config: Optional[Config] = None, *, configure: Callable[[Config], object] = lambda config: None,
        start: bool = True, port: Optional[int] = None,
    ) -> None:  # fmt: skip
        self.config: Config = {} if config is None else config
        configure(self.config)
        self._configure = configure
        # Replaced as a whole, so that the server's threads read it without a lock.
        self.current_report: dict[str, Any] = {"polls": 0, "samples": 0, "batches": 0, "stats": {}}
        self._set_status("running" if start else "configured")
        # A SimpleQueue is reentrant, so a signal handler may use it. None means SIGTERM.
        self._calls: queue.SimpleQueue[Optional[_Call]] = queue.SimpleQueue()
        self._loop_ended = threading.Event()
        self._is_interrupted = False
        self._server: Optional[_Server] = None
        self._previous_handler: Any = None
        self.port = _port_of_replica(os.environ) if port is None else port
        if self.port is not None:
            self._server = _Server(self.port, self)
            self.port = int(self._server.server_address[1])
            threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
            _log.info("serving the life cycle on port %s", self.port)

    @property
    def status(self) -> str:
        """The status: configured, running, paused, exiting, completed or error."""
        return str(self.current_report["status"])

    def __iter__(self) -> Iterator[Config]:
        """Yields the current configuration before each step."""
        while self.next_step():
            yield self.config

    def next_step(self) -> bool:
        """Applies pending calls, waits while the worker does not run, and returns False when the loop must end.

        Frameworks with a loop of their own call this between two steps, always in the same thread.
        """
        while self.status not in _ENDING:
            try:
                self._serve(self._calls.get(block=self.status != "running"))
            except queue.Empty:
                return True
        self._end_loop()
        return False

    def report(self, samples: int = 0, batches: int = 0, **stats: float) -> None:
        """Counts a step, and sets statistics such as ``loss``. Those that are not finite are removed: JSON has no such numbers."""
        if samples < 0 or batches < 0:
            raise ValueError("samples and batches must not be negative")
        before = self.current_report
        numbers = {**before["stats"], **{name: float(value) for name, value in stats.items()}}
        self.current_report = {
            **before, "polls": before["polls"] + 1,
            "samples": before["samples"] + int(samples), "batches": before["batches"] + int(batches),
            "stats": {name: value for name, value in numbers.items() if math.isfinite(value)},
        }  # fmt: skip

    def __enter__(self) -> Worker:
        if threading.current_thread() is threading.main_thread():
            # The kernel drops SIGTERM for process 1 of a container if the process has no handler.
            self._previous_handler = signal.signal(signal.SIGTERM, lambda *_: self._calls.put(None))
        return self

    def __exit__(self, kind: object, error: Optional[BaseException], trace: object) -> None:
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            self.current_report = {**self.current_report, "error": f"{type(error).__name__}: {error}"}
            self._set_status("error")
        elif not self._is_interrupted:
            self._set_status("completed")
        self._end_loop()
        if self._server:
            self._server.drain_and_close()
        if self._previous_handler is not None:
            signal.signal(signal.SIGTERM, self._previous_handler)
        if error is None and self._is_interrupted:
            raise SystemExit(EXIT_CODE_TERMINATED)

    def _set_status(self, status: str) -> None:
        flags = {"status": status, "running": status == "running", "exiting": status in _ENDING}
        self.current_report = {**self.current_report, **flags}
        _log.info("the worker is %s", status)

    def _send_call(self, call: str, config: Config) -> dict[str, Any]:
        """Sends a call to the loop and waits until it is applied."""
        result: Future[dict[str, Any]] = Future()
        self._calls.put((call, config, result))
        if self._loop_ended.is_set():
            self._end_loop()
        return result.result()

    def _end_loop(self) -> None:
        """Answers the calls that the loop no longer takes. They change nothing: the worker is ending."""
        self._loop_ended.set()
        with contextlib.suppress(queue.Empty):
            while True:
                self._serve(self._calls.get(block=False))

    def _serve(self, call: Optional[_Call]) -> None:
        if call is None:
            if self.status in _ENDING:
                return
            self._is_interrupted = True
            return self._set_status("exiting")
        name, config, result = call
        status = _NEXT_STATUS[name].get(self.status)
        if status is None:
            reason = "pause it first" if self.status == "running" else "the worker has ended or is about to end"
            return result.set_exception(_CallError(409, f"cannot {name} while it is {self.status}: {reason}"))
        if name == "configure":
            try:
                self._configure(config)
            except Exception as error:
                return result.set_exception(_CallError(400, f"invalid configuration: {type(error).__name__}: {error}"))
            self.config = config
        if status != self.status:
            self._set_status(status)
        result.set_result(self.current_report)


class _CallError(Exception):
    """A rejected call. The arguments are the HTTP status and the message."""


# Not an HTTPServer, which looks up its host name first: that can take seconds in a pod.
class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, worker: Worker) -> None:
        self.worker = worker
        self.in_flight: set[int] = set()
        super().__init__(("0.0.0.0", port), _Handler)

    def drain_and_close(self) -> None:
        """Stops accepting requests, and waits until the pending responses are sent."""
        self.shutdown()
        deadline = time.monotonic() + DRAIN_TIMEOUT_SECONDS
        while self.in_flight and time.monotonic() < deadline:
            time.sleep(0.01)
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        _log.debug("a connection failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10.0

    def _handle(self) -> None:
        self.server.in_flight.add(threading.get_ident())
        try:
            self._respond(200, "", self._call_worker(self.path.split("?")[0]))
        except _CallError as error:
            status, message = error.args
            self._respond(status, message, self.server.worker.current_report)
        finally:
            self.server.in_flight.discard(threading.get_ident())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def _call_worker(self, path: str) -> dict[str, Any]:
        worker = self.server.worker
        call = path[len("/lifecycle/") :] if path.startswith("/lifecycle/") else None
        if path != "/lifecycle" and call not in _NEXT_STATUS:
            raise _CallError(404, f"unknown life-cycle call {path!r}: use configure, start, pause or exit")
        if self.command != ("POST" if call else "GET"):
            raise _CallError(405, f"method {self.command} is not allowed for {path}")
        if call is None:
            return worker.current_report
        try:
            config = json.loads(self._read_body() or "{}")
        except ValueError as error:
            raise _CallError(400, f"invalid configuration: {error}") from error
        if not isinstance(config, dict):
            raise _CallError(400, "invalid configuration: it must be a JSON object")
        return worker._send_call(call, config)

    def _read_body(self) -> bytes:
        # `kubectl create --raw` sends the body in chunks.
        is_chunked, body = self.headers.get("Transfer-Encoding", "").lower() == "chunked", b""
        while True:
            size = int(self.rfile.readline(64).split(b";")[0], 16) if is_chunked else int(self.headers["Content-Length"] or 0)
            if not 0 <= size <= MAX_BODY_BYTES - len(body):
                raise _CallError(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
            body += self.rfile.read(size)
            if not is_chunked or not self.rfile.readline(64) or size == 0:
                return body

    def _respond(self, status: int, message: str, data: dict[str, Any]) -> None:
        envelope = {"success": status == 200, "code": int(status != 200), "message": message, "data": data}
        content = json.dumps(envelope).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        _log.debug(format, *args)


def _port_of_replica(environ: Mapping[str, str]) -> Optional[int]:
    """Returns the port of this replica, or None outside of a job."""
    port = next((int(environ[name]) for name in PORT_VARIABLES if environ.get(name)), None)
    if port is None or not environ.get("START_RANK"):
        return port
    # In a learner group, the process of rank n listens at the port of rank 0 plus n. torchrun sets RANK.
    return port + int(environ.get("RANK") or environ["START_RANK"])
