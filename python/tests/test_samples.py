import contextlib
import json
import logging
import os
import runpy
import socket
import sys
import threading
import unittest
import xmlrpc.client
from pathlib import Path
from unittest import mock

from endpoint import FakeEndpoint

logging.disable(logging.CRITICAL)

SAMPLES = Path(__file__).parents[1] / "samples"


class CartpoleTest(unittest.TestCase):
    def test_learner_reports_more_than_32_bits(self):
        torch = mock.MagicMock()
        with mock.patch.dict(sys.modules, {"torch": torch, "torch.distributions": torch.distributions}):
            run_learner = runpy.run_path(str(SAMPLES / "cartpole.py"))["run_learner"]
        report = {"samples": 2**31, "stats": {"mean_return": 9.5}}
        worker = mock.MagicMock(current_report=report)
        worker.__enter__.return_value = worker
        fakes = {"Worker": lambda: worker, "serve": mock.Mock()}
        with mock.patch.dict(run_learner.__globals__, fakes):
            run_learner()
        _, train_with = fakes["serve"].call_args.args
        sent = xmlrpc.client.dumps((train_with([]),), methodresponse=True)
        ((received,), _) = xmlrpc.client.loads(sent)
        self.assertEqual(json.loads(received), report)


class RolloutTest(unittest.TestCase):
    def setUp(self):
        self.server = runpy.run_path(str(SAMPLES / "rollout_server.py"))
        self.coordinator = runpy.run_path(str(SAMPLES / "rollout_coordinator.py"))

    def start_engine(self, members, hangs=False):
        engine = self.server["Engine"](0, members, hangs)
        threading.Thread(target=engine.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(engine.server_close)
        self.addCleanup(engine.shutdown)
        return engine, f"127.0.0.1:{engine.server_address[1]}"

    def test_version_reaches_all_pods_of_paused_engine(self):
        ours, theirs = socket.socketpair()
        with ours, theirs, ours.makefile("rw") as member, theirs.makefile("rw") as leader:
            follower = threading.Thread(target=self.server["follow_leader"], args=(leader,))
            follower.start()
            engine, address = self.start_engine([member])
            post = self.coordinator["post_once"]
            with self.assertRaisesRegex(Exception, "409"):
                post(address, "/update_weights", 1)
            with self.assertRaisesRegex(Exception, "404"):
                post(address, "/weights", 1)
            self.assertTrue(self.coordinator["update_engine"](address, 1))
            self.assertEqual((engine.version, engine.is_paused), (1, False))
            ours.shutdown(socket.SHUT_RDWR)
            follower.join(10)
            self.assertFalse(follower.is_alive())

    def test_hung_engine_is_healthy_but_not_updated(self):
        engine, address = self.start_engine([], hangs=True)
        update = self.coordinator["update_engine"]
        with mock.patch.dict(update.__globals__, {"TIMEOUT_SECONDS": 0.2}):
            self.assertFalse(update(address, 1))
            with contextlib.closing(socket.create_connection(engine.server_address)) as connection:
                connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                self.assertIn(b" 200 ", connection.recv(1024))
            self.assertTrue(update(address, 2))

    def test_coordinator_has_hung_engine_replaced(self):
        endpoint = FakeEndpoint()
        self.addCleanup(endpoint.close)
        endpoint.generation = 1

        def change_generation():
            endpoint.generation += 1

        endpoint.on_wait = change_generation
        updated = []

        def update_engine(address, version):
            updated.append((address.split(".")[0], version))
            return updated[-1] != ("pole-collector-00002", 1)

        run = self.coordinator["run_coordinator"]
        with mock.patch.dict(run.__globals__, {"update_engine": update_engine}), mock.patch.dict(os.environ, endpoint.env()):
            run(2)
        first, second, third = (f"pole-collector-{number:05}" for number in (1, 2, 3))
        self.assertEqual(updated, [(first, 1), (second, 1), (first, 2), (third, 2)])
        self.assertEqual(endpoint.generation, 2)


if __name__ == "__main__":
    unittest.main()
