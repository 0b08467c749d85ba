import json
import logging
import socket
import threading
import unittest
from unittest import mock

from di_orchestrator import EndpointError, EndpointUnavailable, ReplicaClient, Replicas, replicas
from endpoint import FakeEndpoint

logging.disable(logging.CRITICAL)


class ReplicaClientTest(unittest.TestCase):
    def setUp(self):
        self.endpoint = FakeEndpoint()
        self.addCleanup(self.endpoint.close)
        self.client = ReplicaClient.from_env(self.endpoint.env())
        # Delays are recorded instead of waited.
        self.delays = []
        patch = mock.patch.object(replicas.time, "sleep", self.delays.append)
        patch.start()
        self.addCleanup(patch.stop)

    def sent(self):
        return [(method, path) for method, path, _, _ in self.endpoint.requests]

    def test_environment_selects_job_and_endpoint(self):
        self.assertEqual((self.client.namespace, self.client.coordinator), ("rl", "pole-coordinator"))
        collector = self.endpoint.env(KUBERNETES_POD_NAME="pole-collector-abcde", COLLECTOR_PORT="22270", COORDINATOR_PORT="")
        self.assertEqual(ReplicaClient.from_env(collector).coordinator, "pole-coordinator")
        only_pod = self.endpoint.env(KUBERNETES_COORDINATOR_URL="")
        self.assertEqual(ReplicaClient.from_env(only_pod).coordinator, "pole-coordinator")
        self.assertEqual(ReplicaClient.from_env(only_pod).list().coordinator, "pole-coordinator")

    def test_missing_variable_is_named(self):
        for name in ("KUBERNETES_POD_NAMESPACE", "KUBERNETES_POD_NAME"):
            env = self.endpoint.env(**{name: "", "KUBERNETES_COORDINATOR_URL": ""})
            with self.assertRaisesRegex(ValueError, name):
                ReplicaClient.from_env(env)

    def test_aggregator_lists_its_ddp_learners(self):
        env = self.endpoint.env(KUBERNETES_POD_NAME="pole-aggregator-abcde", AGGREGATOR_PORT="22272", COORDINATOR_PORT="")
        self.assertEqual(ReplicaClient.from_env(env).list().coordinator, "pole-aggregator-abcde")

    def test_add_list_remove_and_report_failed(self):
        added = self.client.add(collectors=2, learners=1)
        self.assertEqual(added.collectors, ("pole-collector-00001.rl:22270", "pole-collector-00002.rl:22270"))
        self.assertEqual(added.learners, ("pole-learner-00003.rl:22271",))
        self.assertIsNone(added.queued)
        self.assertEqual(self.client.list(), added)
        replaced = self.client.report_failed(collectors=["pole-collector-00001", "unknown"], learners=added.learners[0])
        self.assertEqual(replaced.collectors, ("pole-collector-00004.rl:22270",))
        self.assertEqual(replaced.learners, ("pole-learner-00005.rl:22271",))
        removed = self.client.remove(collectors=1)
        self.assertEqual(removed.collectors, ("pole-collector-00004.rl:22270",))
        self.assertEqual(self.client.list().collectors, ("pole-collector-00002.rl:22270",))
        path = "/v1alpha2/replicas"
        self.assertEqual(
            self.sent(), [("POST", path), ("GET", path), ("POST", f"{path}/failed"), ("DELETE", path), ("GET", path)]
        )

    def test_resources_are_sent_as_given(self):
        self.client.add(collectors={"replicas": 1, "cpus": "500m", "memory": "1Gi"})
        body = json.loads(self.endpoint.requests[0][3])
        self.assertEqual(body["collectors"], {"replicas": 1, "cpus": "500m", "memory": "1Gi"})

    def test_queued_replicas_are_counted(self):
        self.endpoint.queued = 2
        self.assertEqual(self.client.add(collectors=2).queued, 2)

    def test_lost_response_adds_and_removes_once(self):
        self.endpoint.faults = ["refuse", "drop"]
        added = self.client.add(collectors=2)
        self.assertEqual(len(self.client.list().collectors), 2)
        self.assertEqual(len(self.endpoint.requests), 4, "three attempts and a list")
        keys = {headers["Idempotency-Key"] for _, _, headers, _ in self.endpoint.requests[:3]}
        self.assertEqual(len(keys), 1)
        self.endpoint.faults = ["drop"]
        removed = self.client.remove(collectors=1)
        self.assertEqual(removed.collectors, added.collectors[1:])
        self.assertEqual(self.client.list().collectors, added.collectors[:1])

    def test_each_call_has_its_own_key(self):
        self.client.add(collectors=1)
        self.client.add(collectors=1)
        self.assertEqual(len(self.client.list().collectors), 2)

    def test_given_key_identifies_request(self):
        first = self.client.add(collectors=1, key="start-1")
        self.assertEqual(self.client.add(collectors=1, key="start-1"), first)
        with self.assertRaises(EndpointError) as caught:
            self.client.add(collectors=2, key="start-1")
        self.assertEqual(caught.exception.status, 409)

    def test_invalid_key_is_rejected_before_sending(self):
        with self.assertRaises(ValueError):
            self.client.add(collectors=1, key="a\nb: c")
        self.assertEqual(self.endpoint.requests, [])

    def test_transient_errors_are_retried_with_backoff(self):
        self.endpoint.faults = [503, 429, 502, 504, "refuse", 503]
        self.client.list()
        self.assertEqual(len(self.endpoint.requests), 7)
        for delay, most in zip(self.delays, [0.5, 1, 2, 4, 8, 8]):
            self.assertTrue(most / 2 <= delay <= most, self.delays)

    def test_retry_after_is_minimum_delay(self):
        self.endpoint.faults, self.endpoint.retry_after = [503], 2
        self.client.list()
        self.assertEqual(self.delays, [2])

    def test_legacy_version_retries_failure_with_status_200(self):
        client = ReplicaClient.from_env(self.endpoint.env(), api_version="v1alpha1")
        self.endpoint.faults = [503]
        client.add(collectors=1)
        self.assertEqual(self.sent(), [("POST", "/v1alpha1/replicas")] * 2)

    def test_terminal_errors_are_raised_at_once(self):
        for status in (400, 401, 403, 404, 409, 413, 500, 501):
            self.endpoint.requests.clear()
            self.endpoint.faults = [status]
            with self.assertRaises(EndpointError) as caught:
                self.client.add(collectors=1)
            self.assertNotIsInstance(caught.exception, EndpointUnavailable)
            self.assertEqual((caught.exception.status, caught.exception.message), (status, "injected"))
            expected = f"cannot add replicas of rl/pole-coordinator: injected (HTTP status {status})"
            self.assertEqual(str(caught.exception), expected)
            self.assertEqual(len(self.endpoint.requests), 1)

    def test_lasting_transient_error_is_raised(self):
        client = ReplicaClient.from_env(self.endpoint.env(), retry_timeout=0)
        self.endpoint.faults = [503]
        with self.assertRaises(EndpointUnavailable) as caught:
            client.list()
        self.assertEqual(caught.exception.status, 503)
        nowhere = ReplicaClient("127.0.0.1:1", "rl", "pole-coordinator", retry_timeout=0)
        with self.assertRaisesRegex(EndpointUnavailable, "no response from 127.0.0.1:1"):
            nowhere.list()

    def test_silent_endpoint_times_out(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = "%s:%d" % silent.getsockname()
            client = ReplicaClient(address, "rl", "pole-coordinator", timeout=0.05, retry_timeout=0)
            with self.assertRaisesRegex(EndpointUnavailable, "timed out"):
                client.list()

    def test_token_is_sent_and_read_each_time(self):
        self.endpoint.token = "first"
        tokens = iter(["first\n", "second"])
        client = ReplicaClient.from_env(self.endpoint.env(), token=lambda: next(tokens))
        client.list()
        self.endpoint.token = "second"
        client.list()
        with self.assertRaises(EndpointError) as caught:
            self.client.list()
        self.assertEqual(caught.exception.status, 401)

    def test_other_servers_are_recognised(self):
        for status, content, kind in [
            (200, b"<html>", EndpointUnavailable),
            (200, b"[1]", EndpointUnavailable),
            (200, b'{"success": true, "message": "", "data": []}', EndpointUnavailable),
            (404, b"404 page not found", EndpointError),
            (302, b"", EndpointError),
        ]:
            with self.assertRaises(EndpointError) as caught:
                replicas._parse_response("list", status, "", content)
            self.assertIs(type(caught.exception), kind, content)

    def test_watch_yields_changes_and_survives_faults(self):
        client = ReplicaClient.from_env(self.endpoint.env(), retry_timeout=0)
        watch = client.watch()
        self.assertEqual(next(watch).collectors, ())
        first = self.endpoint.create("collectors")
        self.endpoint.faults = [503, "refuse"]
        self.assertEqual(next(watch).collectors, (first,))
        self.endpoint.faults = [404]
        with self.assertRaises(EndpointError):
            next(watch)

    def test_watch_is_silent_without_changes(self):
        watch = self.client.watch(interval=7)
        next(watch)
        create_later = iter([None, None, None, lambda: self.endpoint.create("learners")])

        def sleep(seconds):
            self.assertEqual(seconds, 7)
            action = next(create_later)
            if action:
                action()

        with mock.patch.object(replicas.time, "sleep", sleep):
            self.assertEqual(len(next(watch).learners), 1)
        self.assertEqual(len(self.endpoint.requests), 6, "the first one is a poll, which an older endpoint rejects")

    def test_watch_ignores_generations_during_an_upgrade(self):
        watch = self.client.watch()
        next(watch)
        # The pods of the endpoint respond in turn: older ones, and newer ones that count.
        set_generation = lambda generation: lambda: setattr(self.endpoint, "generation", generation)
        actions = iter([set_generation(3), set_generation(None), lambda: self.endpoint.create("learners")])
        with mock.patch.object(replicas.time, "sleep", lambda _: next(actions)()):
            self.assertEqual(len(next(watch).learners), 1)

    def test_watch_waits_for_next_generation(self):
        self.endpoint.generation = 0
        watch = self.client.watch()
        self.assertEqual(next(watch), Replicas("rl", "pole-coordinator", generation=0))
        self.assertEqual(self.endpoint.waits, [], "the first list is not awaited")

        def create():
            self.endpoint.create("collectors")
            self.endpoint.generation += 1

        self.endpoint.on_wait = create
        self.endpoint.faults = ["refuse"]
        listed = next(watch)
        self.assertEqual((len(listed.collectors), listed.generation), (1, 1))
        self.assertEqual(next(watch).generation, 2)
        self.assertEqual(self.endpoint.waits, ["25s", "25s"])

    def test_watch_polls_again_after_a_wait_without_change(self):
        self.endpoint.generation = 3
        watch = self.client.watch(interval=7)
        self.assertEqual(next(watch).generation, 3)
        changes = iter([lambda: None, lambda: None, lambda: setattr(self.endpoint, "generation", 4)])
        self.endpoint.on_wait = lambda: next(changes)()
        self.assertEqual(next(watch).generation, 4)
        self.assertEqual(len(self.endpoint.waits), 3)
        self.assertEqual(self.delays, [7, 7], "the answers came early")

    def test_aggregator_and_older_version_do_not_poll(self):
        self.endpoint.generation = 3
        aggregator = self.endpoint.env(KUBERNETES_POD_NAME="pole-aggregator-abcde", AGGREGATOR_PORT="22272", COORDINATOR_PORT="")
        for client in (ReplicaClient.from_env(aggregator), ReplicaClient.from_env(self.endpoint.env(), api_version="v1alpha1")):
            self.assertIsNone(next(client.watch()).generation)
        self.assertEqual(len(self.endpoint.requests), 2)


class WaitReadyTest(unittest.TestCase):
    def setUp(self):
        self.endpoint = FakeEndpoint()
        self.addCleanup(self.endpoint.close)
        self.client = ReplicaClient.from_env(self.endpoint.env())
        patch = mock.patch.object(replicas, "POLL_INTERVAL_SECONDS", 0.02)
        patch.start()
        self.addCleanup(patch.stop)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.listener.close)
        self.ready = "127.0.0.1:%d" % self.listener.getsockname()[1]

    def test_only_listening_replicas_are_returned(self):
        self.endpoint.replicas["collectors"] = ["127.0.0.1:1", self.ready]
        self.assertEqual(self.client.list(wait_ready=1), Replicas("rl", "pole-coordinator", (self.ready,)))

    def test_late_replica_is_waited_for(self):
        def start_collector():
            self.endpoint.replicas["collectors"] = [self.ready]

        threading.Timer(0.1, start_collector).start()
        self.assertEqual(self.client.list(wait_ready={"collectors": 1}).collectors, (self.ready,))

    def test_missing_role_times_out(self):
        self.endpoint.replicas["collectors"] = [self.ready]
        with self.assertRaisesRegex(TimeoutError, "1 of 1 collectors, 0 of 1 learners"):
            self.client.list(wait_ready={"collectors": 1, "learners": 1}, timeout=0.1)


if __name__ == "__main__":
    unittest.main()
