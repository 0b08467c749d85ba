//! Callers read their own writes.

use std::time::Duration;

use di_api::DIJobStatus;
use di_apiserver_tests::{
    Answer, Endpoint, Job, Kubelet, Proxy, Space, Watches, common_nodes, configure, eventually,
};
use di_replicas::Settings;
use kube::api::{Patch, PatchParams};
use serde_json::json;

fn open(create_wait: Duration) -> Settings {
    Settings {
        allow_anonymous: true,
        create_wait,
        request_timeout: Duration::from_secs(120),
        ..Settings::default()
    }
}

/// An endpoint that answers at once.
async fn hasty(space: &Space, agent: &str) -> Endpoint {
    Endpoint::start_with(space, agent, open(Duration::ZERO)).await
}

/// An endpoint, and what it asks the API server.
struct Observed {
    endpoint: Endpoint,
    proxy: Proxy,
}

impl Observed {
    async fn start(space: &Space, create_wait: Duration) -> Self {
        let client = space.server.client_of_manager("observed", &space.namespace);
        let proxy = Proxy::start(client);
        let endpoint = Endpoint::with(space, proxy.client(), open(create_wait)).await;
        Self { endpoint, proxy }
    }

    /// Waits until it knows a job.
    async fn knows(&self, job: &str) {
        eventually("the endpoint knows the job", async || {
            let asked = self.asked();
            let listed = self.endpoint.list(job).await;
            // One that it asked for it may know by that alone.
            if listed.body["success"] == true && self.asked() == asked {
                Ok(())
            } else {
                Err(format!("{listed:?}"))
            }
        })
        .await;
    }

    /// Waits until its list is so long.
    async fn lists(&self, replicas: usize) {
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

    /// How often the API server was asked, watches aside.
    fn asked(&self) -> usize {
        let came = self.proxy.came();
        came.iter().filter(|came| !came.is_watch()).count()
    }

    /// What a query shows, for which the API server is not asked.
    async fn get(&self, query: &str) -> Answer {
        let before = self.asked();
        let answer = self.endpoint.get(query).await;
        assert_eq!(self.asked(), before, "{query}: {:?}", self.proxy.came());
        answer
    }

    /// What the job's coordinator is shown.
    async fn list(&self) -> Vec<String> {
        self.get("coordinator=job-coordinator").await.pods()
    }

    /// Whether a replica is there, and shown, by its name.
    async fn shows(&self, name: &str) -> bool {
        let answer = self.get(&format!("name={name}")).await;
        answer.status == 200 && answer.pods() == [name]
    }
}

async fn writes_are_read(observed: &Observed, rounds: usize) {
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
        assert!(observed.shows(&added[0]).await, "round {round}");

        let fresh = endpoint.failed("job", &added[0]).await.pods();
        let listed = observed.list().await;
        assert!(!listed.contains(&added[0]), "round {round}: {listed:?}");
        assert!(listed.contains(&fresh[0]), "round {round}: {listed:?}");
        assert!(!observed.shows(&added[0]).await, "round {round}");
        assert!(observed.shows(&fresh[0]).await, "round {round}");

        let gone = endpoint.remove("job", 2).await.pods();
        let listed = observed.list().await;
        assert!(
            gone.iter().all(|name| !listed.contains(name)),
            "round {round}: {gone:?}"
        );
        assert_eq!(listed.len(), before.len(), "round {round}");
        assert!(!observed.shows(&gone[0]).await, "round {round}");
    }
}

/// The same of learners of several GPUs, which aggregators stand for.
async fn writes_of_units_are_read(observed: &Observed, rounds: usize) {
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
        assert!(observed.shows(&added[0]).await, "round {round}");
        assert_eq!(led(&added[0]).await, Some(2), "round {round}");

        let report = json!({"coordinator": added[0], "learners": [added[0]]});
        let fresh = endpoint.report(report).await.pods();
        let listed = observed.list().await;
        assert!(!listed.contains(&added[0]), "round {round}: {listed:?}");
        assert!(listed.contains(&fresh[0]), "round {round}: {listed:?}");
        assert!(!observed.shows(&added[0]).await, "round {round}");
        assert_ne!(led(&fresh[0]).await, None, "round {round}");

        let gone = endpoint.remove_learners("job", 1).await.pods();
        assert_eq!(gone, fresh, "round {round}");
        assert_eq!(observed.list().await, before, "round {round}");
        assert!(!observed.shows(&gone[0]).await, "round {round}");
    }
}

#[tokio::test]
async fn a_list_shows_what_the_same_caller_has_just_changed_and_asks_nobody() {
    let space = Space::new().await;
    let space = space.undisturbed("what is asked is counted");
    common_nodes(&space).await;
    configure(&space).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let hasty = Observed::start(&space, Duration::ZERO).await;
    let usual = Observed::start(&space, Settings::default().create_wait).await;
    space.create(&Job::new("job", 1).learners(0)).await;
    space.until_settled("job").await;
    hasty.knows("job").await;
    hasty.lists(1).await;
    writes_are_read(&hasty, 15).await;
    usual.knows("job").await;
    usual.lists(1).await;
    writes_are_read(&usual, 3).await;
    // Its ddp learners are told of once all have a node, however long that takes here.
    let patient = Observed::start(&space, Duration::from_secs(60)).await;
    patient.knows("job").await;
    patient.lists(1).await;
    writes_of_units_are_read(&patient, 2).await;
    manager.stop().await;
}

#[tokio::test]
async fn also_while_its_watch_brings_nothing() {
    let space = Space::new().await;
    let mut observed = Observed::start(&space, Duration::ZERO).await;
    space.create(&Job::new("job", 0)).await;
    observed.knows("job").await;
    observed.endpoint.stop_watching().await;
    writes_are_read(&observed, 5).await;
}

#[tokio::test]
async fn also_while_it_knows_from_the_job_alone_that_their_pods_were_made() {
    let space = Space::new().await;
    let manager = space.manager("manager");
    let other = hasty(&space, "other").await;
    let observed = Observed::start(&space, Duration::ZERO).await;
    space.create(&Job::new("job", 0)).await;
    observed.knows("job").await;
    observed.proxy.watches_of("pods", Watches::Frozen);
    let added = observed.endpoint.add("job", 2, None).await.pods();
    let made = |status: &DIJobStatus| {
        status.plan.len() == 2 && status.plan.iter().all(|entry| entry.uid.is_some())
    };
    space.until("job", "their pods are made", made).await;
    // Whoever knows of the next one knows that too.
    let next = other.add("job", 1, None).await.pods();
    observed.lists(3).await;
    let mut all = [added, next].concat();
    all.sort();
    assert_eq!(observed.list().await, all);
    manager.stop().await;
}

#[tokio::test]
async fn what_no_watch_has_brought_yet_is_asked_for() {
    let space = Space::new().await;
    let mut observed = Observed::start(&space, Duration::ZERO).await;
    space.create(&Job::new("job", 0).learners(0)).await;
    observed.knows("job").await;
    observed.endpoint.stop_watching().await;
    space.create(&Job::new("late", 0)).await;
    let endpoint = &observed.endpoint;

    for (query, code) in [
        ("coordinator=none-coordinator", 404),
        ("coordinator=late-coordinator", 200),
        ("aggregator=none-aggregator-abcde", 404),
        ("aggregator=job-aggregator-abcde", 404),
    ] {
        let asked = observed.asked();
        let answer = endpoint.get(query).await;
        assert_eq!(answer.status, code, "{query}: {answer:?}");
        assert_eq!(observed.asked(), asked + 1, "{query}");
    }
    // What it wrote itself it knows by that.
    let added = endpoint.add("late", 1, None).await.pods();
    assert!(observed.shows(&added[0]).await);
    let all = observed.get("").await;
    let mut records = all.body["data"].as_array().unwrap().iter();
    let late = records.find(|record| record["coordinator"] == "late-coordinator");
    assert_eq!(late.unwrap()["collectors"].as_array().unwrap().len(), 1);

    // As the reconciler plans it, of which nobody tells the endpoint.
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
    let asked = observed.asked();
    let answer = endpoint.get("aggregator=job-aggregator-abcde").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(observed.asked(), asked + 1);
    // And is known from then on.
    assert!(observed.shows("job-aggregator-abcde").await);
}

#[tokio::test]
async fn another_replica_shows_a_write_with_the_event_that_tells_of_it() {
    let space = Space::new().await;
    let one = hasty(&space, "one").await;
    let two = Observed::start(&space, Duration::ZERO).await;
    space.create(&Job::new("job", 0)).await;
    two.knows("job").await;
    let mut listed = Vec::new();
    for _ in 0..5 {
        two.proxy.watches(Watches::Frozen);
        // Nobody else writes, so that one event tells of it.
        let added = one.add("job", 1, None).await.pods();
        assert_eq!(two.list().await, listed);
        listed.extend(added);
        listed.sort();
        two.proxy.watches(Watches::Flow);
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
async fn f34_every_replica_serves_and_is_one_watch_event_behind_the_others() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let one = hasty(&space, "one").await;
    let two = hasty(&space, "two").await;
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
        // No event is waited for by a write: it finds the newest state, or is refused and looks again.
        let gone = reader.remove("job", 1).await.pods();
        assert_eq!(gone, added);
    }
    manager.stop().await;
}

#[tokio::test]
async fn nobody_is_refused_or_told_that_nothing_is_to_do_by_what_was_before() {
    let space = Space::new().await;
    let space = space.undisturbed("what cannot be looked at anew is to be asked again");
    let one = hasty(&space, "one").await;
    let mut two = Observed::start(&space, Duration::ZERO).await;
    space.create(&Job::new("job", 0)).await;
    two.knows("job").await;
    let suspend = async |is_held: bool| {
        let patch = Patch::Merge(json!({"spec": {"suspend": is_held}}));
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
    let fresh = two.endpoint.failed("job", &others[0]).await.pods();
    assert!(fresh.len() == 1 && fresh != others, "{fresh:?}");
}
