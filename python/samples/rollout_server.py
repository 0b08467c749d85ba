"""A stand-in for an inference engine on several pods, such as vLLM: slow to load, and with weights by version.

The first pod of the unit serves HTTP. The others join it, and get each version of the weights from it.

usage: rollout_server.py [INDEX]

The engine with this INDEX hangs when it gets version 1, so that the coordinator has it replaced.
"""

import json
import logging
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

LOAD_SECONDS = 3  # a real engine loads its model for minutes


class Engine(ThreadingTCPServer):
    """The HTTP server of the first pod. ``members`` are the connections of the other pods."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port, members, hangs=False):
        super().__init__(("", port), Handler)
        self.members, self.hangs = members, hangs
        self.version, self.is_paused = 0, False

    def call(self, path, version):
        """Serves a POST request, and returns its HTTP status."""
        if path == "/pause":
            self.is_paused = True
        elif path == "/update_weights" and self.is_paused:
            self.update(version)
        elif path == "/resume":
            self.is_paused = False
        elif path != "/generate" or self.is_paused:
            return 409 if path in ("/update_weights", "/generate") else 404
        return 200

    def update(self, version):
        if self.hangs and version == 1:
            threading.Event().wait()  # /health still responds, so only the coordinator notices
        for member in self.members:
            member.write(f"{version}\n")
            member.flush()
        if any(member.readline() != f"{version}\n" for member in self.members):
            raise ConnectionError("a pod of the engine is lost")
        self.version = version
        logging.info("version %s is on all pods", version)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.respond(200 if self.path == "/health" else 404)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.respond(self.server.call(self.path, body.get("version")))

    def respond(self, status):
        content = json.dumps({"version": self.server.version}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format, *args):
        logging.debug(format, *args)


def accept_members(port, count):
    """Waits for the other pods of the unit."""
    with socket.create_server(("", port)) as server:
        return [server.accept()[0].makefile("rw") for _ in range(count)]


def join_leader(host, port):
    """Connects to the first pod, which may not listen yet."""
    while True:
        try:
            return socket.create_connection((host, port)).makefile("rw")
        except OSError as error:
            logging.info("cannot reach the first pod: %s", error)
            time.sleep(0.5)


def follow_leader(leader):
    """Takes each version, until the first pod ends."""
    while version := leader.readline():
        logging.info("version %s", version.strip())
        leader.write(version)
        leader.flush()


def run(hanging_index=None):
    time.sleep(LOAD_SECONDS)
    port = int(os.environ["MASTER_PORT"])
    if os.environ["DI_UNIT_INDEX"] != "0":
        follow_leader(join_leader(os.environ["DI_UNIT_LEADER_ADDRESS"], port))
        sys.exit("the first pod is lost")
    members = accept_members(port, int(os.environ["DI_UNIT_SIZE"]) - 1)
    hangs = os.environ["DI_REPLICA_INDEX"] == hanging_index
    with Engine(int(os.environ["COLLECTOR_PORT"]), members, hangs) as engine:
        logging.info("serving on %s pods", len(members) + 1)
        engine.serve_forever()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    # Process 1 of a container ignores SIGTERM without a handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run(*sys.argv[1:])
