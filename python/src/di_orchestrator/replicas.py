"""The client of the replica endpoint, which changes the collectors and learners of a running job."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import random
import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Union
from urllib.parse import urlencode, urlsplit

_log = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 8.0
MAX_RETRY_AFTER_SECONDS = 30.0
MAX_POLL_SECONDS = 25.0
CONNECT_TIMEOUT_SECONDS = 1.0
RETRYABLE_STATUSES = frozenset({408, 425, 429, 502, 503, 504})

Count = Union[int, Mapping[str, Any]]
"""A number of replicas, or a number and resources: ``{"replicas": 2, "cpus": "500m", "gpus": 1, "memory": "1Gi"}``."""


class EndpointError(Exception):
    """The endpoint rejected the request; a repetition fails again. ``status`` is the HTTP status, ``message`` the reason."""

    def __init__(self, operation: str, message: str, status: Optional[int] = None, retry_after: float = 0.0) -> None:
        super().__init__(f"cannot {operation}: {message}" + (f" (HTTP status {status})" if status else ""))
        self.status, self.message, self.retry_after = status, message, retry_after


class EndpointUnavailable(EndpointError):
    """A transient error lasted longer than ``retry_timeout``. The change may have been made: repeat it with the same key."""


@dataclass(frozen=True)
class Replicas:
    """Addresses of replicas, each ``pod.namespace:port``.

    ``queued`` is the number of added replicas that wait for quota. ``generation`` counts the changes of a list; it is None
    while a change is not counted yet, and for other answers.
    """

    namespace: str
    coordinator: str
    collectors: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    queued: Optional[int] = None
    generation: Optional[int] = None


class ReplicaClient:
    """Changes and lists the replicas of one job. Several threads may use it.

    A request is repeated after a transient error, with exponential back-off. ``add`` and ``remove`` send an idempotency key,
    so a repeated request changes the job only once.

    Args:
        server: address of the endpoint, ``host:port`` or a URL.
        coordinator: name of the coordinator, ``<job>-coordinator``, or of an aggregator with ``is_aggregator``. The list of an
            aggregator has its ddp learners.
        token: bearer token for the audience ``di-server``, or a function that reads it. Pods of the job need none.
        timeout: seconds without data from the endpoint until a request fails. The endpoint responds within 30 s.
        retry_timeout: seconds after which a transient error is raised; 0 disables retries.
        api_version: ``v1alpha1`` reports no ``queued`` and no ``generation``.
    """

    def __init__(
        self, server: str, namespace: str, coordinator: str, *, is_aggregator: bool = False,
        token: Union[str, Callable[[], str], None] = None, timeout: float = 35.0, retry_timeout: float = 120.0,
        api_version: str = "v1alpha2",
    ) -> None:  # fmt: skip
        url = urlsplit(server if "://" in server else f"http://{server}")
        self._url, self._token, self._timeout, self._retry_timeout = url, token, timeout, retry_timeout
        self._path = f"{url.path.rstrip('/')}/{api_version.strip('/')}/replicas"
        self.namespace, self.coordinator = namespace, coordinator
        self._query = urlencode({"namespace": namespace, "aggregator" if is_aggregator else "coordinator": coordinator})
        # Aggregators and the older version have no long polls.
        self._has_polls = not is_aggregator and api_version.strip("/") != "v1alpha1"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ, **options: Any) -> ReplicaClient:
        """Creates the client from the environment of a pod of the job, with these options of the constructor."""

        def required(name: str) -> str:
            if not environ.get(name):
                raise ValueError(f"{name} is not set: run this in a pod of a DIJob, or use ReplicaClient(server, ...)")
            return environ[name]

        is_aggregator = bool(environ.get("AGGREGATOR_PORT"))
        # The host name of the coordinator begins with the name of its pod.
        coordinator = "" if is_aggregator else environ.get("KUBERNETES_COORDINATOR_URL", "").split(".")[0]
        coordinator = coordinator or required("KUBERNETES_POD_NAME")
        server = environ.get("KUBERNETES_SERVER_URL") or "di-server.di-system:8080"
        return cls(server, required("KUBERNETES_POD_NAMESPACE"), coordinator, is_aggregator=is_aggregator, **options)

    def add(self, collectors: Count = 0, learners: Count = 0, key: Optional[str] = None) -> Replicas:
        """Adds replicas and returns their addresses. They may not listen yet: see ``list(wait_ready=...)``.

        Pass an idempotency ``key`` if you repeat the call yourself, for example after a crash.
        """
        return self._change("add", "POST", collectors, learners, key)

    def remove(self, collectors: int = 0, learners: int = 0, key: Optional[str] = None) -> Replicas:
        """Removes this number of replicas: first added, then declared ones. Returns the removed addresses."""
        return self._change("remove", "DELETE", collectors, learners, key)

    def report_failed(self, collectors: Iterable[str] = (), learners: Iterable[str] = ()) -> Replicas:
        """Replaces replicas, given as pod names or addresses, and returns the replacements. Unknown names are skipped."""
        roles = {"collectors": collectors, "learners": learners}
        body = {role: [names] if isinstance(names, str) else list(names) for role, names in roles.items()}
        return self._request("report failed", "POST", "/failed", body)

    def list(self, wait_ready: Union[int, Mapping[str, int], None] = None, timeout: float = 120.0) -> Replicas:
        """Lists the replicas that have a node; they may not listen yet.

        With ``wait_ready``, waits until this number of replicas, or of each role (``{"collectors": 2, "learners": 1}``),
        accepts connections, and returns only replicas that do. Raises TimeoutError after ``timeout`` seconds.
        """
        if wait_ready is None:
            return self._request("list", "GET", f"?{self._query}")
        wanted = {"replicas": wait_ready} if isinstance(wait_ready, int) else wait_ready
        deadline = time.monotonic() + timeout
        while True:
            ready = _select_ready(self.list())
            counts = {"collectors": len(ready.collectors), "learners": len(ready.learners)}
            counts["replicas"] = sum(counts.values())
            if all(counts[role] >= count for role, count in wanted.items()):
                return ready
            if time.monotonic() + POLL_INTERVAL_SECONDS > deadline:
                missing = ", ".join(f"{counts[role]} of {count} {role}" for role, count in wanted.items())
                raise TimeoutError(f"too few replicas of {self.namespace}/{self.coordinator} are ready: {missing}")
            time.sleep(POLL_INTERVAL_SECONDS)

    def watch(self, interval: float = POLL_INTERVAL_SECONDS) -> Iterator[Replicas]:
        """Yields the list of replicas at once, and again after each change. It does not end by itself.

        The endpoint reports a change at once, by a long poll. An endpoint without long polls is asked each ``interval`` seconds.
        Transient errors are logged and retried. A terminal error is raised, for example after the job was deleted.
        """
        known, generation = None, None
        has_polls = self._has_polls
        while True:
            began = time.monotonic()
            try:
                listed = self._poll(generation) if has_polls else self.list()
            except EndpointUnavailable as error:
                _log.warning("%s; retrying", error)
                time.sleep(interval)
                continue
            except EndpointError as error:
                if not has_polls or error.status != 400:
                    raise
                # An older endpoint does not know the parameters of a poll.
                has_polls = False
                continue
            members = (set(listed.collectors), set(listed.learners))
            # Without polls, a generation that comes and goes is no change.
            counted = listed.generation if has_polls else None
            is_changed = members != known or counted != generation
            if is_changed:
                known, generation = members, counted
                yield listed
            if generation is None or not is_changed and time.monotonic() - began < interval:
                time.sleep(interval)

    def _poll(self, generation: Optional[int]) -> Replicas:
        """Lists the replicas once they have another generation, or after the wait. Without a generation, lists them at once."""
        # The connection is silent while the endpoint waits.
        wait = 0 if generation is None else int(min(MAX_POLL_SECONDS, max(self._timeout - 5, 0)))
        return self._request("list", "GET", f"?{self._query}&generation={generation or 0}&wait={wait}s")

    def _change(self, verb: str, method: str, collectors: Count, learners: Count, key: Optional[str]) -> Replicas:
        roles = {"collectors": collectors, "learners": learners}
        body = {role: dict(count) if isinstance(count, Mapping) else {"replicas": count} for role, count in roles.items()}
        return self._request(verb, method, "", body, {"Idempotency-Key": key or uuid.uuid4().hex})

    def _request(self, verb: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> Replicas:
        operation = f"{verb} replicas of {self.namespace}/{self.coordinator}"
        content = None
        if body is not None:
            content = json.dumps({"namespace": self.namespace, "coordinator": self.coordinator, **body}).encode()
            headers = {**headers, "Content-Type": "application/json"}
        deadline = time.monotonic() + self._retry_timeout
        backoff = 0.5
        while True:
            try:
                return self._send(operation, method, self._path + path, content, headers)
            except EndpointUnavailable as error:
                # The jitter keeps many pods from repeating their requests at the same time.
                delay = max(random.uniform(backoff / 2, backoff), error.retry_after)
                if time.monotonic() + delay > deadline:
                    raise
                _log.info("%s; retrying in %.1f s", error, delay)
            time.sleep(delay)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)

    def _send(self, operation: str, method: str, path: str, content: Optional[bytes], headers: Mapping[str, str]) -> Replicas:
        token = self._token() if callable(self._token) else self._token
        if token:
            headers = {**headers, "Authorization": f"Bearer {token.strip()}"}
        # http.client uses no proxy and follows no redirects: the endpoint is inside the cluster.
        connect = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = connect(self._url.hostname or "", self._url.port, timeout=self._timeout)
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as error:
            reason = f"no response from {self._url.netloc}: {error or type(error).__name__}"
            raise EndpointUnavailable(operation, reason) from error
        finally:
            connection.close()
        return _parse_response(operation, response.status, response.getheader("Retry-After") or "", answer)


def _parse_response(operation: str, status: int, retry_after: str, answer: bytes) -> Replicas:
    is_ok = 200 <= status < 300
    message = "the response is not the JSON of a replica endpoint"
    with contextlib.suppress(ValueError, KeyError, TypeError):
        envelope = json.loads(answer)
        message, data = str(envelope["message"]), envelope["data"]
        if is_ok and envelope["success"]:
            lists = tuple(data["collectors"]), tuple(data["learners"])
            counts = {"queued": data.get("queued"), "generation": data.get("generation")}
            return Replicas(data["namespace"], data["coordinator"], *lists, **counts)
    # v1alpha1 returns transient errors with status 200. See docs/decisions/0007.
    if is_ok or status in RETRYABLE_STATUSES:
        delay = min(float(retry_after), MAX_RETRY_AFTER_SECONDS) if retry_after.isdigit() else 0.0
        raise EndpointUnavailable(operation, message, status, delay)
    raise EndpointError(operation, message, status)


def _select_ready(listed: Replicas) -> Replicas:
    def select(addresses: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(address for address, ready in zip(addresses, pool.map(_accepts_connections, addresses)) if ready)

    with ThreadPoolExecutor(max_workers=32) as pool:
        return Replicas(listed.namespace, listed.coordinator, select(listed.collectors), select(listed.learners))


def _accepts_connections(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_SECONDS).close()
        return True
    return False
