"""A replica endpoint on the loopback address that answers as docs/job-reference.md says."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

ROLES = ("collectors", "learners")
PORTS = {"collectors": 22270, "learners": 22271}
BODY_FIELDS = {"namespace", "coordinator", *ROLES}
ROLE_FIELDS = {"replicas", "cpus", "gpus", "memory"}


class Rejected(Exception):
    """The arguments are the HTTP status and the message."""


class FakeEndpoint:
    """The replicas of one job, ``rl/pole``.

    ``faults`` are used up by the next requests: "drop" serves the request and closes the connection without a response,
    "refuse" closes the connection before, a number is an HTTP status. ``generation`` is None in an older endpoint, which has no
    long polls. ``waits`` has the wait of each poll that the endpoint would have held.
    """

    def __init__(self, token=None):
        self.token = token
        self.replicas = {role: [] for role in ROLES}
        self.faults = []
        self.retry_after = 0
        self.requests = []
        self.keys = {}
        self.queued = None
        self.generation = None
        self.waits = []
        self.created = 0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def handle_request(self):
                endpoint.serve(self)

            do_GET = do_POST = do_DELETE = handle_request

            def log_message(self, *_):
                """Do not log."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def env(self, **more):
        return {
            "KUBERNETES_SERVER_URL": self.address,
            "KUBERNETES_SERVER_API_VERSION": "/v1alpha1",
            "KUBERNETES_POD_NAMESPACE": "rl",
            "KUBERNETES_POD_NAME": "pole-coordinator",
            "KUBERNETES_COORDINATOR_URL": "pole-coordinator.rl:22273",
            "COORDINATOR_PORT": "22273",
            **more,
        }

    def serve(self, handler):
        url = urlsplit(handler.path)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.requests.append((handler.command, url.path, dict(handler.headers), body))
        is_legacy = url.path.startswith("/v1alpha1/")
        fault = self.faults.pop(0) if self.faults else None
        if fault == "refuse":
            return
        message, data = "", None
        try:
            if isinstance(fault, int):
                raise Rejected(fault, "injected")
            status, data = 200, self.route(handler, url, body, is_legacy)
        except Rejected as error:
            status, message = error.args
        if fault == "drop":
            return
        content = json.dumps({"success": status == 200, "code": int(status != 200), "message": message, "data": data}).encode()
        is_retryable = status in (429, 503)
        handler.send_response(200 if is_legacy and is_retryable else status)
        if is_retryable and not is_legacy:
            handler.send_header("Retry-After", str(self.retry_after))
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def route(self, handler, url, body, is_legacy):
        if self.token and handler.headers.get("Authorization") != f"Bearer {self.token}":
            raise Rejected(401, "unknown requester")
        path = url.path.split("/", 2)[2]
        if handler.command == "GET" and path == "replicas":
            query = dict(parse_qsl(url.query))
            known = {"namespace", "coordinator", "aggregator", "name"}
            if self.generation is not None and not is_legacy:
                known |= {"generation", "wait"}
            if query.keys() - known:
                raise Rejected(400, "unknown query parameter")
            coordinator = query.get("coordinator") or query.get("aggregator")
            self.check(query.get("namespace"), coordinator)
            listed = {"namespace": "rl", "coordinator": coordinator, **self.replicas}
            if self.generation is None or "aggregator" in query or is_legacy:
                return listed
            if query.get("generation") == str(self.generation) and query["wait"] != "0s":
                self.waits.append(query["wait"])
                self.on_wait()
            return {**listed, **self.replicas, "generation": self.generation}
        body = json.loads(body)
        role_fields = {field for role in ROLES if isinstance(body.get(role), dict) for field in body[role]}
        if not is_legacy and (body.keys() - BODY_FIELDS or role_fields - ROLE_FIELDS):
            raise Rejected(400, "unknown field")
        self.check(body.get("namespace"), body.get("coordinator"))
        changed = {"namespace": "rl", "coordinator": body["coordinator"]}
        if path == "replicas/failed" and handler.command == "POST":
            for role in ROLES:
                names = {name.split(".")[0] for part in ROLES for name in body[part]}
                lost = [url for url in self.replicas[role] if url.split(".")[0] in names]
                self.replicas[role] = [url for url in self.replicas[role] if url not in lost]
                changed[role] = [self.create(role) for _ in lost]
            return changed
        key = (handler.command, handler.headers.get("Idempotency-Key"))
        if key in self.keys:
            earlier, answer = self.keys[key]
            if earlier != body:
                raise Rejected(409, "the Idempotency-Key was used by another request")
            return answer
        for role in ROLES:
            count = int((body.get(role) or {}).get("replicas", 0))
            if handler.command == "POST":
                changed[role] = [self.create(role) for _ in range(count)]
            else:
                changed[role] = [self.replicas[role].pop() for _ in range(min(count, len(self.replicas[role])))]
        if self.queued is not None and handler.command == "POST" and not is_legacy:
            changed["queued"] = self.queued
        self.keys[key] = (body, changed)
        return changed

    def on_wait(self):
        """A change that ends a long poll. Tests replace it."""

    def check(self, namespace, coordinator):
        if (namespace, coordinator) not in (("rl", "pole-coordinator"), ("rl", "pole-aggregator-abcde")):
            raise Rejected(404, f"there is no coordinator {coordinator} in namespace {namespace}")

    def create(self, role):
        self.created += 1
        url = f"pole-{role[:-1]}-{self.created:05}.rl:{PORTS[role]}"
        self.replicas[role].append(url)
        return url
