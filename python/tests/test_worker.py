import http.client
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest
from pathlib import Path

from di_orchestrator import Worker
from di_orchestrator.worker import _port_of_replica

logging.disable(logging.CRITICAL)


def send(port, method, path, body=None, headers=None):
    """Returns the HTTP status, the message and the data of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request(method, path, body, headers or {}, encode_chunked=bool(headers))
    response = connection.getresponse()
    envelope = json.loads(response.read())
    connection.close()
    assert envelope["success"] == (response.status == 200) == (envelope["code"] == 0), envelope
    return response.status, envelope["message"], envelope["data"]


class RunningWorker:
    """A worker whose loop runs in a thread of its own."""

    def __init__(self, **options):
        self.configs = []
        self.worker = Worker(port=0, **options)
        self.error = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        try:
            with self.worker:
                for config in self.worker:
                    self.configs.append(config)
                    self.worker.report(samples=512, batches=1, loss=0.5)
                    time.sleep(0.001)
        except BaseException as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        if self.thread.is_alive():
            self.call("exit")
        self.thread.join(5)
        assert not self.thread.is_alive() and self.error is None, self.error

    def call(self, name, body=None, headers=None):
        return send(self.worker.port, "POST", f"/lifecycle/{name}", body, headers)

    def status(self):
        return send(self.worker.port, "GET", "/lifecycle")[2]


class WorkerTest(unittest.TestCase):
    def test_report_has_fields_of_job_reference(self):
        with RunningWorker() as running:
            running.call("pause")
            status, message, data = running.call("pause")
        self.assertEqual((status, message), (200, ""))
        polls = data["polls"]
        expected = {
            "status": "paused", "running": False, "exiting": False, "polls": polls, "samples": 512 * polls, "batches": polls,
            "stats": {"loss": 0.5},
        }  # fmt: skip
        self.assertEqual(data, expected)
        self.assertGreaterEqual(polls, 1)

    def test_nothing_changes_after_pause_until_start(self):
        with RunningWorker() as running:
            paused = running.call("pause")[2]
            time.sleep(0.05)
            self.assertEqual(running.status(), paused)
            self.assertEqual(running.call("start")[2]["status"], "running")
            deadline = time.monotonic() + 5
            while running.status()["polls"] == paused["polls"]:
                self.assertLess(time.monotonic(), deadline)

    def test_configuration_replaces_earlier_one(self):
        with RunningWorker(config={"lr": 1, "seed": 2}) as running:
            status, message, data = running.call("configure", "{}")
            self.assertEqual((status, data["status"]), (409, "running"))
            self.assertEqual(message, "cannot configure while it is running: pause it first")
            running.call("pause")
            self.assertEqual(running.call("configure", '{"lr": 3}')[2]["status"], "configured")
            count = len(running.configs)
            running.call("start")
            running.call("pause")
            running.call("configure")
        self.assertEqual(running.configs[0], {"lr": 1, "seed": 2})
        self.assertTrue(all(config == {"lr": 3} for config in running.configs[count:]))
        self.assertEqual(running.worker.config, {}, "an empty body is the default configuration")

    def test_invalid_configuration_changes_nothing(self):
        def configure(config):
            if config.get("lr", 1) <= 0:
                raise ValueError("lr must be positive")

        with RunningWorker(config={"lr": 1}, configure=configure) as running:
            running.call("pause")
            for body, reason in [
                ("{", "invalid configuration"),
                ("[1]", "must be a JSON object"),
                ('{"lr": 0}', "lr must be positive"),
                ('{"lr": "x"}', "TypeError"),
            ]:
                status, message, data = running.call("configure", body)
                self.assertEqual((status, data["status"]), (400, "paused"), body)
                self.assertIn(reason, message)
            self.assertEqual(running.worker.config, {"lr": 1})
        with self.assertRaises(ValueError):
            Worker(config={"lr": 0}, configure=configure)

    def test_chunked_body_is_read(self):
        with RunningWorker() as running:
            running.call("pause")
            body = iter([b'{"a": ', b'"' + b"x" * 300 + b'"}'])
            status, message, _ = running.call("configure", body, {"Transfer-Encoding": "chunked"})
            self.assertEqual(status, 200, message)
            self.assertEqual(running.worker.config, {"a": "x" * 300})

    def test_oversized_body_is_rejected(self):
        with RunningWorker() as running:
            self.assertEqual(running.call("configure", None, {"Content-Length": str(2 << 20)})[0], 413)

    def test_unknown_requests_are_rejected(self):
        with RunningWorker() as running:
            for method, path, expected in [
                ("POST", "/lifecycle/stop", 404),
                ("GET", "/", 404),
                ("GET", "/lifecycle/pause", 405),
                ("POST", "/lifecycle", 405),
                ("DELETE", "/lifecycle", 405),
            ]:
                self.assertEqual(send(running.worker.port, method, path)[0], expected, (method, path))
            self.assertEqual(running.status()["status"], "running")

    def test_worker_without_start_waits_for_start(self):
        with RunningWorker(start=False) as running:
            self.assertEqual(running.status()["status"], "configured")
            self.assertEqual(running.call("pause")[2]["status"], "configured")
            self.assertEqual(running.configs, [])
            self.assertEqual(running.call("start")[2]["status"], "running")

    def test_exit_ends_loop_and_is_answered(self):
        with RunningWorker() as running:
            running.call("pause")
            status, _, data = running.call("exit")
            running.thread.join(5)
        self.assertEqual((status, data["status"], data["exiting"]), (200, "exiting", True))
        self.assertEqual(running.worker.status, "completed")

    def test_calls_after_loop_are_answered(self):
        worker = Worker(port=0)
        with worker:
            threading.Thread(target=send, args=(worker.port, "POST", "/lifecycle/exit")).start()
            while worker.next_step():
                time.sleep(0.001)
            # The program saves its last checkpoint here.
            status, message, data = send(worker.port, "POST", "/lifecycle/start")
            self.assertEqual((status, data["status"]), (409, "exiting"))
            self.assertEqual(message, "cannot start while it is exiting: the worker has ended or is about to end")
            self.assertEqual(send(worker.port, "POST", "/lifecycle/exit")[0], 200)
        self.assertEqual(worker.status, "completed")

    def test_pending_call_is_answered_when_loop_breaks(self):
        answers = []
        with Worker(port=0) as worker:
            thread = threading.Thread(target=lambda: answers.append(send(worker.port, "POST", "/lifecycle/pause")))
            thread.start()
            while worker._calls.empty():
                time.sleep(0.001)
        thread.join(5)
        self.assertEqual((answers[0][0], answers[0][2]["status"]), (409, "completed"))

    def test_exception_is_reported(self):
        worker = Worker(port=0)
        with self.assertRaises(RuntimeError), worker:
            raise RuntimeError("out of memory")
        self.assertEqual(worker.status, "error")
        self.assertEqual(worker.current_report["error"], "RuntimeError: out of memory")

    def test_stats_keep_last_finite_value_per_name(self):
        with Worker(port=0) as worker:
            worker.report(loss=1.5, mean_return=3)
            worker.report(samples=2, loss=float("nan"))
            self.assertEqual(worker.current_report["stats"], {"mean_return": 3.0})
            with self.assertRaises(ValueError):
                worker.report(samples=-1)
            json.dumps(worker.current_report, allow_nan=False)

    def test_port_follows_role_and_rank(self):
        self.assertIsNone(_port_of_replica({}))
        self.assertEqual(_port_of_replica({"COLLECTOR_PORT": "4000", "RANK": "3"}), 4000)
        group = {"LEARNER_PORT": "22271", "START_RANK": "4", "WORLD_SIZE": "8"}
        self.assertEqual(_port_of_replica(group), 22275)
        self.assertEqual(_port_of_replica({**group, "RANK": "6"}), 22277)

    def test_loop_runs_without_handles_outside_of_job(self):
        env = {name: os.environ.pop(name) for name in list(os.environ) if name.endswith("_PORT")}
        self.addCleanup(os.environ.update, env)
        with Worker() as worker:
            self.assertIsNone(worker.port)
            self.assertTrue(worker.next_step())


class ProcessTest(unittest.TestCase):
    """Runs programs, since exit codes and signals belong to a process."""

    def start(self, program):
        source = Path(__file__).parents[1] / "src"
        env = {**os.environ, "PYTHONPATH": str(source)}
        program = textwrap.dedent(program)
        process = subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.wait, 5)
        self.addCleanup(process.stdout.close)
        return process, int(process.stdout.readline())

    PROGRAM = """
        import time
        from di_orchestrator import Worker
        with Worker(port=0) as worker:
            print(worker.port, flush=True)
            for config in worker:
                worker.report(samples=1)
                time.sleep(0.001)
            print("saved", flush=True)
    """

    def test_sigterm_ends_loop_with_143(self):
        process, _ = self.start(self.PROGRAM)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(5), 143)
        self.assertEqual(process.stdout.read(), "saved\n")

    def test_sigterm_wakes_paused_worker(self):
        process, port = self.start(self.PROGRAM)
        self.assertEqual(send(port, "POST", "/lifecycle/pause")[2]["status"], "paused")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(5), 143)

    def test_exit_call_ends_with_0(self):
        process, port = self.start(self.PROGRAM)
        self.assertEqual(send(port, "POST", "/lifecycle/exit")[0], 200)
        self.assertEqual(process.wait(5), 0)

    def test_finished_work_ends_with_0_after_sigterm(self):
        process, _ = self.start("""
            import time
            from di_orchestrator import Worker
            with Worker(port=0) as worker:
                for config in worker:
                    print(worker.port, flush=True)
                    time.sleep(0.3)
                    break
        """)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(5), 0)


if __name__ == "__main__":
    unittest.main()
