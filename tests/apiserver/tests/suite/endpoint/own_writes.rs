//! Clients read their own writes.

use std::time::Duration;

use di_api::DIJobStatus;
use di_apiserver_tests::{
    Answer, Endpoint, Job, Kubelet, Proxy, Space, WatchMode, common_nodes,
    create_aggregator_config, eventually,
};
use di_replicas::Settings;
use kube::api::{Patch, PatchParams};
use serde_json::json;

fn open_settings(scheduling_wait: Duration) -> Settings {
    Settings {
        allow_anonymous: true,
        scheduling_wait,
        request_timeout: Duration::from_secs(120),
        ..Settings::default()
    }
}

/// Starts an endpoint that does not wait for pods.
async fn start_endpoint_without_wait(space: &Space, agent: &str) -> Endpoint {
    Endpoint::start_with(space, agent, open_settings(Duration::ZERO)).await
}

/// An endpoint behind a proxy that records its requests.
struct ObservedEndpoint {
    endpoint: Endpoint,
    proxy: Proxy,
}

impl ObservedEndpoint {
    async fn start(space: &Space, scheduling_wait: Duration) -> Self {
        let client = space.server.client_of_manager("observed", &space.namespace);
        let proxy = Proxy::start(client);
        let endpoint =
            Endpoint::start_with_client(space, proxy.client(), open_settings(scheduling_wait))
                .await;
        Self { endpoint, proxy }
    }

    /// Waits until the endpoint's cache has a job.
    async fn wait_until_known(&self, job: &str) {
        eventually("the endpoint knows the job", async || {
            let asked = self.request_count();
            let listed = self.endpoint.list(job).await;
            // A live read may have answered, so wait until a list sends no request.
            if listed.body["success"] == true && self.request_count() == asked {
                Ok(())
            } else {
                Err(format!("{listed:?}"))
            }
        })
        .await;
    }

    /// Waits until this number of replicas is listed.
    async fn wait_for_count(&self, replicas: usize) {
        eventually("the endpoint lists them", async || {
            let listed = self.list().await;
            if listed.len() == replicas {
                Ok(())
            } else {
                Err(format!("{listed:?}"))
            }
        })
        .await;
    }

    /// Number of requests to the API server without watches.
    fn request_count(&self) -> usize {
        let requests = self.proxy.requests();
        requests
            .iter()
            .filter(|request| !request.is_watch())
            .count()
    }

    /// Sends a query, and fails if it causes a live read.
    async fn get(&self, query: &str) -> Answer {
        let before = self.request_count();
        let answer = self.endpoint.get(query).await;
        assert_eq!(
            self.request_count(),
            before,
            "{query}: {:?}",
            self.proxy.requests()
        );
        answer
    }

    /// Lists the replicas of the job's coordinator.
    async fn list(&self) -> Vec<String> {
        self.get("coordinator=job-coordinator").await.pods()
    }

    /// Whether a query by name returns the replica.
    async fn is_listed(&self, name: &str) -> bool {
        let answer = self.get(&format!("name={name}")).await;
        answer.status == 200 && answer.pods() == [name]
    }
}

async fn check_writes_are_read(observed: &ObservedEndpoint, rounds: usize) {
    let endpoint = &observed.endpoint;
    for round in 0..rounds {
        let before = observed.list().await;
        let added = endpoint.add("job", 2, None).await.pods();
        let listed = observed.list().await;
        let all = |names: &[String]| names.iter().all(|name| listed.contains(name));
        assert!(
            all(&added) && all(&before),
            "round {round}: {added:?}, listed {listed:?}"
        );
        assert!(observed.is_listed(&added[0]).await, "round {round}");

        let fresh = endpoint.report_failed("job", &added[0]).await.pods();
        let listed = observed.list().await;
        assert!(!listed.contains(&added[0]), "round {round}: {listed:?}");
        assert!(listed.contains(&fresh[0]), "round {round}: {listed:?}");
        assert!(!observed.is_listed(&added[0]).await, "round {round}");
        assert!(observed.is_listed(&fresh[0]).await, "round {round}");

        let gone = endpoint.remove("job", 2).await.pods();
        let listed = observed.list().await;
        assert!(
            gone.iter().all(|name| !listed.contains(name)),
            "round {round}: {gone:?}"
        );
        assert_eq!(listed.len(), before.len(), "round {round}");
        assert!(!observed.is_listed(&gone[0]).await, "round {round}");
    }
}

/// The same as `check_writes_are_read` for learner groups, which their aggregators represent.
async fn check_group_writes_are_read(observed: &ObservedEndpoint, rounds: usize) {
    let endpoint = &observed.endpoint;
    let led = async |aggregator: &str| {
        let answer = observed.get(&format!("aggregator={aggregator}")).await;
        answer.body["data"]["learners"].as_array().map(Vec::len)
    };
    for round in 0..rounds {
        let before = observed.list().await;
        let added = endpoint.add_learners("job", 1, 2).await.pods();
        let listed = observed.list().await;
        assert!(listed.contains(&added[0]), "round {round}: {listed:?}");
        assert!(observed.is_listed(&added[0]).await, "round {round}");
        assert_eq!(led(&added[0]).await, Some(2), "round {round}");

        let report = json!({"coordinator": added[0], "learners": [added[0]]});
        let fresh = endpoint.report(report).await.pods();
        let listed = observed.list().await;
        assert!(!listed.contains(&added[0]), "round {round}: {listed:?}");
        assert!(listed.contains(&fresh[0]), "round {round}: {listed:?}");
        assert!(!observed.is_listed(&added[0]).await, "round {round}");
        assert_ne!(led(&fresh[0]).await, None, "round {round}");

        let gone = endpoint.remove_learners("job", 1).await.pods();
        assert_eq!(gone, fresh, "round {round}");
        assert_eq!(observed.list().await, before, "round {round}");
        assert!(!observed.is_listed(&gone[0]).await, "round {round}");
    }
}

#[tokio::test]
async fn list_shows_own_writes_without_live_reads() {
    let space = Space::new().await;
    let space = space.without_random_faults("this test counts requests");
    common_nodes(&space).await;
    create_aggregator_config(&space).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let hasty = ObservedEndpoint::start(&space, Duration::ZERO).await;
    let usual = ObservedEndpoint::start(&space, Settings::default().scheduling_wait).await;
    space.create(&Job::new("job", 1).learners(0)).await;
    space.until_settled("job").await;
    hasty.wait_until_known("job").await;
    hasty.wait_for_count(1).await;
    check_writes_are_read(&hasty, 15).await;
    usual.wait_until_known("job").await;
    usual.wait_for_count(1).await;
    check_writes_are_read(&usual, 3).await;
    // The endpoint waits until all ddp learners have a node.
    let patient = ObservedEndpoint::start(&space, Duration::from_secs(60)).await;
    patient.wait_until_known("job").await;
    patient.wait_for_count(1).await;
    check_group_writes_are_read(&patient, 2).await;
    manager.stop().await;
}

#[tokio::test]
async fn list_shows_own_writes_with_stopped_watches() {
    let space = Space::new().await;
    let mut observed = ObservedEndpoint::start(&space, Duration::ZERO).await;
    space.create(&Job::new("job", 0)).await;
    observed.wait_until_known("job").await;
    observed.endpoint.stop_watching().await;
    check_writes_are_read(&observed, 5).await;
}

#[tokio::test]
async fn list_shows_own_writes_with_frozen_pod_watch() {
    let space = Space::new().await;
    let manager = space.manager("manager");
    let other = start_endpoint_without_wait(&space, "other").await;
    let observed = ObservedEndpoint::start(&space, Duration::ZERO).await;
    space.create(&Job::new("job", 0)).await;
    observed.wait_until_known("job").await;
    observed.proxy.set_watches_of("pods", WatchMode::Frozen);
    let added = observed.endpoint.add("job", 2, None).await.pods();
    let made = |status: &DIJobStatus| {
        status.plan.len() == 2 && status.plan.iter().all(|entry| entry.uid.is_some())
    };
    space.until("job", "their pods are made", made).await;
    // A cache with the next write also has the earlier ones.
    let next = other.add("job", 1, None).await.pods();
    observed.wait_for_count(3).await;
    let mut all = [added, next].concat();
    all.sort();
    assert_eq!(observed.list().await, all);
    manager.stop().await;
}

#[tokio::test]
async fn job_missing_from_cache_is_read_live() {
    let space = Space::new().await;
    let mut observed = ObservedEndpoint::start(&space, Duration::ZERO).await;
    space.create(&Job::new("job", 0).learners(0)).await;
    observed.wait_until_known("job").await;
    observed.endpoint.stop_watching().await;
    space.create(&Job::new("late", 0)).await;
    let endpoint = &observed.endpoint;

    for (query, code) in [
        ("coordinator=none-coordinator", 404),
        ("coordinator=late-coordinator", 200),
        ("aggregator=none-aggregator-abcde", 404),
        ("aggregator=job-aggregator-abcde", 404),
    ] {
        let asked = observed.request_count();
        let answer = endpoint.get(query).await;
        assert_eq!(answer.status, code, "{query}: {answer:?}");
        assert_eq!(observed.request_count(), asked + 1, "{query}");
    }
    // The endpoint knows its own writes without a watch.
    let added = endpoint.add("late", 1, None).await.pods();
    assert!(observed.is_listed(&added[0]).await);
    let all = observed.get("").await;
    let mut records = all.body["data"].as_array().unwrap().iter();
    let late = records.find(|record| record["coordinator"] == "late-coordinator");
    assert_eq!(late.unwrap()["collectors"].as_array().unwrap().len(), 1);

    // The manager plans a replica; the endpoint's watches are stopped.
    let unit = json!({
        "name": "job-aggregator-abcde", "type": "Aggregator", "origin": "Declared", "index": 0,
        "port": 5000, "resources": {"gpus": "2"},
    });
    let status = Patch::Merge(json!({"status": {"plan": [unit]}}));
    let params = PatchParams::default();
    space
        .jobs()
        .patch_status("job", &params, &status)
        .await
        .unwrap();
    let asked = observed.request_count();
    let answer = endpoint.get("aggregator=job-aggregator-abcde").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(observed.request_count(), asked + 1);
    // The cache keeps the result of the live read.
    assert!(observed.is_listed("job-aggregator-abcde").await);
}

#[tokio::test]
async fn other_replica_shows_write_after_one_watch_event() {
    let space = Space::new().await;
    let one = start_endpoint_without_wait(&space, "one").await;
    let two = ObservedEndpoint::start(&space, Duration::ZERO).await;
    space.create(&Job::new("job", 0)).await;
    two.wait_until_known("job").await;
    let mut listed = Vec::new();
    for _ in 0..5 {
        two.proxy.set_watches(WatchMode::Frozen);
        // No other client writes, so one watch event brings the change.
        let added = one.add("job", 1, None).await.pods();
        assert_eq!(two.list().await, listed);
        listed.extend(added);
        listed.sort();
        two.proxy.set_watches(WatchMode::Flow);
        eventually("the event comes", async || {
            let seen = two.list().await;
            if seen == listed {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        })
        .await;
    }
}

#[tokio::test]
async fn f34_replicas_serve_one_watch_event_behind() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let one = start_endpoint_without_wait(&space, "one").await;
    let two = start_endpoint_without_wait(&space, "two").await;
    space.create(&Job::new("job", 0)).await;
    space.until_settled("job").await;
    for round in 0..10 {
        let (writer, reader) = if round % 2 == 0 {
            (&one, &two)
        } else {
            (&two, &one)
        };
        let added = writer.add("job", 1, None).await.pods();
        eventually("the other lists it", async || {
            let listed = reader.list("job").await.pods();
            if listed.contains(&added[0]) {
                Ok(())
            } else {
                Err(format!("{listed:?}"))
            }
        })
        .await;
        // A write does not wait for a watch event: after a conflict it reads again.
        let gone = reader.remove("job", 1).await.pods();
        assert_eq!(gone, added);
    }
    manager.stop().await;
}

#[tokio::test]
async fn stale_cache_rejects_no_request() {
    let space = Space::new().await;
    let space = space.without_random_faults("a failed live read needs a retry by the client");
    let one = start_endpoint_without_wait(&space, "one").await;
    let mut two = ObservedEndpoint::start(&space, Duration::ZERO).await;
    space.create(&Job::new("job", 0)).await;
    two.wait_until_known("job").await;
    let suspend = async |suspended: bool| {
        let patch = Patch::Merge(json!({"spec": {"suspend": suspended}}));
        let params = PatchParams::default();
        space.jobs().patch("job", &params, &patch).await.unwrap();
    };
    suspend(true).await;
    let refused = two.endpoint.add("job", 1, None).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    two.endpoint.stop_watching().await;

    suspend(false).await;
    let added = two.endpoint.add("job", 1, None).await.pods();
    assert_eq!(added.len(), 1);
    let others = one.add("job", 1, None).await.pods();
    let fresh = two.endpoint.report_failed("job", &others[0]).await.pods();
    assert!(fresh.len() == 1 && fresh != others, "{fresh:?}");
}
