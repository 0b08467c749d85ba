"""Changes the replicas of a job with the Python client, and prints the names of the remaining pods.

It has the environment of the job's coordinator. `suspended` and `queued` are other jobs of the namespace.
"""

import faulthandler
import os

from di_orchestrator import EndpointError, ReplicaClient

# A watch does not end by itself.
faulthandler.dump_traceback_later(180, exit=True)


def wait_for_replicas(watch, wanted):
    for replicas in watch:
        if {*replicas.collectors, *replicas.learners} == wanted:
            return


def rejection(change, **options):
    try:
        response = change(**options)
    except EndpointError as error:
        return error.status, error.message
    raise AssertionError(f"accepted: {response}")


def client_of(job):
    return ReplicaClient(os.environ["KUBERNETES_SERVER_URL"], client.namespace, f"{job}-coordinator")


client = ReplicaClient.from_env()
watch = client.watch(interval=0.1)
wait_for_replicas(watch, set())

request = {"collectors": 2, "learners": {"replicas": 1, "cpus": "20m", "memory": "64Mi"}, "key": "first"}
added = client.add(**request)
assert (len(added.collectors), len(added.learners), added.queued) == (2, 1, None), added
repeated = client.add(**request)
assert {*repeated.collectors, *repeated.learners} == {*added.collectors, *added.learners}, repeated
wait_for_replicas(watch, {*added.collectors, *added.learners})
status, message = rejection(client.add, collectors=3, key="first")
assert status == 409 and "the Idempotency-Key first was used by another request" in message, message

kept, lost = added.collectors
(replacement,) = client.report_failed(collectors=[lost]).collectors
assert replacement not in added.collectors, replacement
wait_for_replicas(watch, {kept, replacement, *added.learners})
assert client.report_failed(collectors=["unknown"]).collectors == ()

removed = client.remove(collectors=1, key="second")
assert client.remove(collectors=1, key="second") == removed
left = {kept, replacement, *added.learners} - {*removed.collectors}
assert len(left) == 2, removed
wait_for_replicas(watch, left)

assert rejection(client_of("suspended").add, collectors=1) == (409, "DIJob suspended is suspended")
queued = client_of("queued").add(collectors=1)
assert (len(queued.collectors), queued.queued) == (1, 1), queued
assert client_of("queued").list().collectors == ()

for address in left:
    print(address.split(".")[0])
