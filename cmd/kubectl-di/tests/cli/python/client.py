"""Runs DIClient against the API server of mod.rs, which has created the ended jobs `done` and `failed`."""

import json
import os
import pathlib
import signal
import sys
import threading
import unittest

from di_orchestrator import DIClient, DIError

TEMPLATE = {"spec": {"containers": [{"name": "di-container", "image": "worker"}]}}
NERVEX = """
apiVersion: nervex.sensetime.com/v1alpha1
kind: NerveXJob
metadata: {name: old}
spec: {coordinator: {template: {spec: {containers: [{name: nervex-container, image: i}]}}}}
"""
# Much longer than any step takes.
LIMIT = 180


def manifest(name, **spec):
    roles = {"coordinator": {"template": TEMPLATE}, "collector": {"template": TEMPLATE, "replicas": 1}}
    kind = {"apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob"}
    return {**kind, "metadata": {"name": name}, "spec": {**roles, **spec}}


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.client = DIClient()

    def test_job_is_created_changed_and_deleted(self):
        client = self.client
        self.assertEqual(client.create_job(manifest("j")), "j")
        names = [job["metadata"]["name"] for job in client.list_jobs()]
        self.assertLessEqual({"done", "failed", "j"}, set(names))
        job = client.wait_for_job_status("j", "Running", LIMIT)
        self.assertEqual(job["status"]["phase"], "Running")
        self.assertNotIn("managedFields", job["metadata"])
        client.scale("j", collectors=3)
        self.assertEqual(client.get_job("j")["spec"]["collector"]["replicas"], 3)
        client.restart("j")
        self.assertIn("diengine.opendilab.org/restart-coordinator", client.get_job("j")["metadata"]["annotations"])
        client.suspend("j")
        client.wait_for_job_status("j", {"Suspended"}, LIMIT)
        client.resume("j")
        client.wait_for_job_status("j", {"Running"}, LIMIT)
        client.delete_job("j")
        with self.assertRaisesRegex(DIError, r'^Error from server \(NotFound\): .* "j" not found$'):
            client.get_job("j")

    def test_manifests_are_files_or_texts(self):
        self.assertEqual(self.client.create_job(pathlib.Path("job.yaml")), "from-file")
        with self.assertWarnsRegex(UserWarning, 'NerveXJob "old" was converted to a DIJob'):
            self.assertEqual(self.client.create_job(NERVEX), "old")
        self.assertEqual(self.client.create_job(json.dumps(manifest("one-line"))), "one-line")
        folder = pathlib.Path("folder")
        folder.mkdir()
        (folder / "job.json").write_text(json.dumps(manifest("from-folder")), encoding="utf-8")
        self.assertEqual(self.client.create_job(folder), "from-folder")
        with self.assertRaisesRegex(DIError, '^the path "missing.yaml" does not exist$'):
            self.client.create_job("missing.yaml")
        with self.assertRaisesRegex(DIError, "^create_job does not read stdin; "):
            self.client.create_job("-")
        with self.assertRaisesRegex(DIError, "exactly one job; found 2"):
            self.client.create_job({"kind": "List", "items": [manifest("a"), manifest("b")]})

    def test_invalid_manifest_names_the_field(self):
        with self.assertRaises(DIError) as caught:
            self.client.create_job(manifest("bad", backoffLimit=-1))
        fault = "* spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0"
        lines = ['manifest: DIJob "bad" is invalid:', fault, "nothing was sent"]
        self.assertEqual(str(caught.exception).splitlines(), lines)

    def test_impossible_changes_are_rejected(self):
        with self.assertRaisesRegex(DIError, r'job "done" has ended \(Succeeded\)'):
            self.client.scale("done", collectors=1)
        self.client.create_job(manifest("small", suspend=True))
        fault = '(?s)^The DIJob "small" is invalid: .*spec.collector.replicas: Invalid value: -1: '
        with self.assertRaisesRegex(DIError, fault):
            self.client.scale("small", collectors=-1)
        with self.assertRaisesRegex(DIError, '^job "small" has no learners: '):
            self.client.scale("small", learners=1)
        with self.assertRaisesRegex(DIError, "^must specify collectors or learners$"):
            self.client.scale("small")

    def test_wait_ends_with_the_job_or_the_timeout(self):
        client = self.client
        self.assertEqual(client.wait_for_job_status("done")["metadata"]["name"], "done")
        message = r"^dijobs/failed has ended \(Failed: CoordinatorFailed, .*\): phase Succeeded can no longer be reached$"
        with self.assertRaisesRegex(DIError, message):
            client.wait_for_job_status("failed")
        job = client.wait_for_job_status("failed", {"Succeeded", "Failed"})
        self.assertEqual(job["status"]["phase"], "Failed")
        with self.assertRaisesRegex(DIError, '^unknown phase "Done"; expected one of Created, '):
            client.wait_for_job_status("done", {"Done"})
        with self.assertRaisesRegex(DIError, "^must specify at least one phase$"):
            client.wait_for_job_status("done", [])
        client.create_job(manifest("waits", suspend=True))
        client.wait_for_job_status("waits", {"Suspended"}, LIMIT)
        with self.assertRaisesRegex(TimeoutError, "^timed out waiting for phase Running of dijobs/waits"):
            client.wait_for_job_status("waits", {"Running"}, 0.3)

    def test_events_of_a_job_are_listed(self):
        reasons = {event["reason"] for event in self.client.get_job_events("done")}
        self.assertIn("SuccessfulCreate", reasons)

    def test_log_errors_name_the_job_or_the_role(self):
        with self.assertRaisesRegex(DIError, '^job "failed" has no learner pod; '):
            self.client.get_job_logs("failed", role="learner")
        with self.assertRaisesRegex(DIError, '^unknown role "all pods"; expected one of coordinator, '):
            self.client.get_job_logs("failed", role="all pods")
        # No kubelet serves logs.
        with self.assertRaises(DIError):
            list(self.client.get_job_logs("done"))

    def test_wrong_context_is_rejected(self):
        with self.assertRaisesRegex(DIError, '^context "missing" does not exist$'):
            DIClient(context="missing")

    def test_interrupt_ends_a_call(self):
        self.client.create_job(manifest("endless", suspend=True))
        # A shell may have disabled the signal for its background jobs.
        previous = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, previous)
        # Threads change only when one waits: the other one cannot send the signal before the call waits in the native module.
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())
        sys.setswitchinterval(LIMIT)
        may_send = threading.Lock()
        may_send.acquire()

        def send_signal():
            may_send.acquire()
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=send_signal).start()
        with self.assertRaises(KeyboardInterrupt):
            may_send.release()
            self.client.wait_for_job_status("endless", "Running", LIMIT)


if __name__ == "__main__":
    unittest.main()
