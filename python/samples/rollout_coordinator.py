"""Adds rollout engines, and gives all of them new weights each time the set of engines changes.

usage: rollout_coordinator.py ENGINES
"""

import contextlib
import http.client
import json
import logging
import signal
import sys
import time

from di_orchestrator import ReplicaClient

TIMEOUT_SECONDS = 5


def run_coordinator(engines):
    """Ends when this number of engines samples with the newest weights."""
    client = ReplicaClient.from_env()
    client.add(collectors=engines)
    version = 0
    for replicas in client.watch():
        listed = replicas.collectors
        logging.info("generation %s: %s", replicas.generation, ", ".join(map(name_of, listed)) or "no engine")
        is_complete = len(listed) >= engines
        if version == 0 and not is_complete:
            continue  # the first weights wait until all engines have loaded
        version += 1  # a real coordinator trains, and builds the communication group of these engines again
        hung = [address for address in listed if not update_engine(address, version)]
        for address in hung:
            replacements = client.report_failed(collectors=[address]).collectors
            logging.info("%s replaced by %s", name_of(address), ", ".join(map(name_of, replacements)))
        if is_complete and not hung:
            break
    logging.info("%s engines sample with version %s", len(listed), version)


def update_engine(address, version):
    """Pauses an engine, updates and resumes it, and takes a sample. Returns False if it does not respond."""
    try:
        for path in ("/pause", "/update_weights", "/resume", "/generate"):
            sample = post(address, path, version)
    except (OSError, http.client.HTTPException) as error:
        logging.warning("%s hangs at version %s: %s", name_of(address), version, error)
        return False
    logging.info("%s samples with version %s", name_of(address), sample["version"])
    return True


def post(address, path, version):
    """Sends a request. Repeats it while the engine cannot be reached, since DNS may be late."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            return post_once(address, path, version)
        except OSError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.2)


def post_once(address, path, version):
    host, port = address.split(":")
    with contextlib.closing(http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_SECONDS)) as connection:
        connection.request("POST", path, json.dumps({"version": version}))
        response = connection.getresponse()
        content = response.read()
    if response.status != 200:
        raise http.client.HTTPException(f"HTTP status {response.status} of {path}")
    return json.loads(content)


def name_of(address):
    return address.split(".")[0]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    # Process 1 of a container ignores SIGTERM without a handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run_coordinator(int(sys.argv[1]))
