import io
import itertools
import json
import logging
import re
import sys
import types
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from di_orchestrator import EndpointUnavailable, ReplicaClient, Worker, replicas
from endpoint import FakeEndpoint

logging.disable(logging.CRITICAL)

ROOT = Path(__file__).parents[2]


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)


BLOCKS = python_blocks("docs/python.md")
README_CLIENT, README_REPLICAS = python_blocks("README.md")
(LARGE_MODELS,) = python_blocks("docs/large-models.md")


class DocsTest(unittest.TestCase):
    """Runs the examples of docs/python.md in their order, and of other pages, with fakes of cluster and training code."""

    def setUp(self):
        self.endpoint = FakeEndpoint()
        self.addCleanup(self.endpoint.close)
        for patch in (
            mock.patch.dict("os.environ", {**self.endpoint.env(), "COORDINATOR_PORT": "0"}),
            mock.patch.object(replicas, "_accepts_connections", lambda address: True),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def test_client_examples_run(self):
        for page, example in (("docs/python.md", BLOCKS[0]), ("README.md", README_CLIENT)):
            with self.subTest(page):
                self.run_client_example(example)

    def run_client_example(self, example):
        native = mock.Mock(DIError=OSError)
        client = native.Client.return_value
        client.create_job.return_value = "cartpole"
        client.get_job_logs.return_value = iter(["first", "last"])
        client.wait_for_job_status.return_value = json.dumps({"metadata": {}, "status": {"phase": "Succeeded"}})
        with mock.patch.dict(sys.modules, {"di_orchestrator._native": native}):
            with redirect_stdout(io.StringIO()) as out:
                exec(example, {})
        client.create_job.assert_called_once_with("cartpole.yaml", True)
        client.scale.assert_called_once_with("cartpole", 4, None)
        client.delete_job.assert_called_once_with("cartpole")
        self.assertEqual(out.getvalue().split(), ["first", "last", "Succeeded"])

    def test_readme_replica_example_runs(self):
        names = {}
        exec(README_REPLICAS, names)
        added = self.endpoint.replicas
        self.assertEqual((len(added["collectors"]), len(added["learners"])), (2, 1))
        self.assertEqual((len(names["replicas"].collectors), len(names["replicas"].learners)), (2, 1))

    def test_replica_examples_run(self):
        first, watch, failed, keys, outside = BLOCKS[1:6]
        connected, disconnected = [], []
        names = {"connect": connected.append, "disconnect": disconnected.append}
        with redirect_stdout(io.StringIO()) as out:
            exec(first, names)
            self.assertEqual(len(self.endpoint.replicas["collectors"]), 2)
            self.assertIn("pole-collector-00001.rl:22270", out.getvalue())
            lists = [names["client"].list()]
            names["client"].remove(collectors=1)
            lists.append(names["client"].list())
            with mock.patch.object(ReplicaClient, "watch", lambda client: iter(lists)):
                exec(watch, names)
            self.assertEqual((len(connected), len(disconnected)), (2, 1))
            exec(failed, names)
            self.assertEqual(self.endpoint.replicas["collectors"], [])
            add = names["client"].add
            results = itertools.chain([EndpointUnavailable("add", "away")], itertools.repeat(None))

            def fail_first(**options):
                if error := next(results):
                    raise error
                return add(**options)

            with mock.patch.object(names["client"], "add", fail_first):
                exec(keys, names)
            self.assertEqual(len(self.endpoint.replicas["collectors"]), 4)
        with mock.patch("pathlib.Path.read_text", lambda path: "a-token"):
            exec(outside, names)
            self.assertEqual(names["client"]._token(), "a-token")

    def test_large_models_example_replaces_engine_that_hangs(self):
        client = ReplicaClient.from_env()
        client.add(collectors=2)
        lists = [client.list()]
        healthy, hung = lists[0].collectors
        groups = []

        def update_weights(engine):
            if engine == hung:
                raise TimeoutError

        names = {"rebuild_group": lambda *group: groups.append(group), "update_weights": update_weights}
        with mock.patch.object(ReplicaClient, "watch", lambda client: iter(lists)):
            exec(LARGE_MODELS, names)
        self.assertEqual(groups, [(None, (healthy, hung))])
        self.assertEqual(self.endpoint.replicas["collectors"], [healthy, "pole-collector-00003.rl:22270"])

    def test_worker_examples_run(self):
        loop, callback = BLOCKS[6:]
        self.assertEqual(python_blocks("docs/dashboard.md"), [loop])
        saved = []
        names = {"train_step": lambda rate: rate, "save_checkpoint": lambda: saved.append("loop")}
        exec(loop, names)
        self.assertEqual(saved, ["loop"])
        worker = names["worker"]
        self.assertEqual((worker.status, worker.current_report["samples"]), ("completed", 512_000))

        class BaseCallback:
            training_env = types.SimpleNamespace(num_envs=4)

        class Model:
            def learn(self, steps, callback):
                assert all(callback._on_step() for _ in range(3))

            def save(self, path):
                saved.append(path)

        module = types.SimpleNamespace(BaseCallback=BaseCallback)
        with mock.patch.dict(sys.modules, {"stable_baselines3.common.callbacks": module}):
            names = {"Worker": Worker, "model": Model()}
            exec(callback, names)
        self.assertEqual((saved[-1], names["worker"].current_report["samples"]), ("/checkpoints/last", 12))


if __name__ == "__main__":
    unittest.main()
