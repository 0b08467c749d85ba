//! Recovery of a lost status, coordinator or service, and of watches.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use di_api::{DIJobStatus, Origin, Phase, PlanEntry};
use di_apiserver_tests::{
    Endpoint, Job, Kubelet, Manager, Proxy, ProxyAction, RecordedRequest, Space, WatchMode,
    common_nodes, create_aggregator_config, eventually, remove, template, wait_for_objects,
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::sleep;

use crate::faults::job_run::ProxiedManager;

async fn lose_status(space: &Space, job: &str) {
    let patch = Patch::Merge(json!({ "status": null }));
    let params = PatchParams::default();
    let jobs = space.jobs();
    let job = jobs.patch_status(job, &params, &patch).await.unwrap();
    assert_eq!(job.status, None);
}

fn uids<K: ResourceExt>(all: &BTreeMap<String, K>) -> BTreeMap<String, Option<String>> {
    all.iter()
        .map(|(name, k)| (name.clone(), k.uid()))
        .collect()
}

/// Returns the plan without the fields that cannot be rebuilt from pods.
fn comparable_plan(status: &DIJobStatus) -> Vec<PlanEntry> {
    let mut plan = status.plan.clone();
    plan.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in &mut plan {
        entry.planned_at = None;
    }
    plan
}

/// As after a restore from a backup, which has no status.
#[tokio::test]
async fn lost_status_is_rebuilt_without_pod_changes() {
    let space = Space::new().await;
    common_nodes(&space).await;
    create_aggregator_config(&space).await;
    let _kubelet = Kubelet::running(&space);
    let first = space.manager("first");
    let job = Job::new("restored", 2).learners(1).with(|spec| {
        spec["collector"]["groups"] =
            json!([{"name": "big", "replicas": 2, "resources": {"cpus": "4"}}]);
        spec["learner"]["groups"] =
            json!([{"name": "logic", "replicas": 1, "resources": {"gpus": "6"}}]);
    });
    space.create(&job).await;
    let before = space.until_settled("restored").await;
    // The coordinator, collectors, a learner, an aggregator and two ddp learners.
    assert_eq!(before.plan.len(), 4 + 1 + 1 + 2);
    let (pods, services) = (
        space.pods_of("restored").await,
        space.services_of("restored").await,
    );

    // Once with a running manager, and once without.
    lose_status(&space, "restored").await;
    let after = space.until_settled("restored").await;
    assert_eq!(comparable_plan(&after), comparable_plan(&before));
    first.stop().await;
    lose_status(&space, "restored").await;
    let second = space.manager("second");
    let after = space.until_settled("restored").await;
    assert_eq!(comparable_plan(&after), comparable_plan(&before));
    second.stop().await;

    assert_eq!(uids(&space.pods_of("restored").await), uids(&pods));
    assert_eq!(uids(&space.services_of("restored").await), uids(&services));
    let warnings = space.warnings_of("restored").await;
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[tokio::test]
async fn requested_replicas_survive_lost_status() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space.create(&Job::new("asked", 1)).await;
    space.until_settled("asked").await;
    assert_eq!(endpoint.add("asked", 2, None).await.pods().len(), 2);
    let before = space.until_settled("asked").await;
    let pods = space.pods_of("asked").await;
    lose_status(&space, "asked").await;
    let after = space.until_settled("asked").await;
    let names = |status: &DIJobStatus| {
        let plan = comparable_plan(status).into_iter();
        plan.map(|entry| (entry.name, entry.index))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&after), names(&before));
    assert_eq!(uids(&space.pods_of("asked").await), uids(&pods));
    manager.stop().await;
}

#[tokio::test]
async fn orphan_pod_is_adopted_unchanged() {
    const NAME: &str = "made-by-hand";
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let job = space.create(&Job::new("joined", 2)).await;
    let before = space.until_settled("joined").await;
    let mut pods = uids(&space.pods_of("joined").await);
    let mut labels = space.pods_of("joined").await[&before.plan[0].name]
        .labels()
        .clone();
    labels.insert("pod-name".to_owned(), NAME.to_owned());
    // The pod has neither an index nor a service.
    let mut pod: Pod = serde_json::from_value(template()).unwrap();
    pod.metadata = ObjectMeta {
        name: Some(NAME.to_owned()),
        labels: Some(labels),
        owner_references: job.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let params = PostParams::default();
    let made = space.pods().create(&params, &pod).await.unwrap();
    let is_in = |s: &DIJobStatus| s.collectors_ready.as_deref() == Some("3/3");
    space.until("joined", "the pod is adopted", is_in).await;
    let after = space.until_settled("joined").await;

    let of_hand = |entry: &&PlanEntry| entry.name == NAME;
    let entry = after.plan.iter().find(of_hand).unwrap();
    assert_eq!((entry.origin, entry.index), (Origin::Requested, 2));
    assert_eq!(entry.uid, made.uid());
    let others = after.plan.iter().filter(|entry| entry.name != NAME);
    assert!(others.eq(&before.plan), "{after:?}");
    pods.insert(NAME.to_owned(), made.uid());
    assert_eq!(uids(&space.pods_of("joined").await), pods);
    let names: Vec<_> = pods.into_keys().collect();
    wait_for_objects("services", &names, async || {
        space.services_of("joined").await
    })
    .await;
    space.until_event("joined", "ReplicaAdopted").await;
    let warnings = space.warnings_of("joined").await;
    assert!(warnings.is_empty(), "{warnings:?}");
    manager.stop().await;
}

#[tokio::test]
async fn ended_job_with_lost_status_ends_the_same() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("over", 1)).await;
    space.until_settled("over").await;
    di_apiserver_tests::exit(&space.pods(), "over-coordinator", 0).await;
    let alone = ["over-coordinator".to_owned()];
    let pods = wait_for_objects("pods", &alone, async || space.pods_of("over").await).await;
    wait_for_objects("services", &[], async || space.services_of("over").await).await;
    lose_status(&space, "over").await;
    space.until_phase("over", Phase::Succeeded).await;
    manager.stop().await;
    assert_eq!(uids(&space.pods_of("over").await), uids(&pods));
    let made = space.writes_of("manager").await;
    let made = made
        .iter()
        .filter(|w| w.is_call("create", "pods") && w.code == 201);
    assert_eq!(made.count(), 2);
}

#[tokio::test]
async fn deleted_coordinator_is_recreated_and_replicas_stay() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("headless", 2)).await;
    let before = space.until_settled("headless").await;
    let mut pods = uids(&space.pods_of("headless").await);
    let services = uids(&space.services_of("headless").await);
    // Delete it without grace, so that the manager does not see it terminating.
    let coordinator = "headless-coordinator";
    remove(&space.pods(), coordinator).await;
    let old = pods.remove(coordinator).unwrap();
    let made = eventually("another coordinator", async || {
        let found = space.pods().get_opt(coordinator).await.unwrap();
        found.filter(|pod| pod.uid() != old).ok_or_else(String::new)
    })
    .await;
    let after = space.until_settled("headless").await;
    assert_eq!((after.restarts, after.plan), (0, before.plan));
    pods.insert(coordinator.to_owned(), made.uid());
    assert_eq!(uids(&space.pods_of("headless").await), pods);
    assert_eq!(uids(&space.services_of("headless").await), services);
    space.until_event("headless", "CoordinatorDeleted").await;
    assert_eq!(space.warnings_of("headless").await, ["CoordinatorDeleted"]);
    manager.stop().await;
}

#[tokio::test]
async fn deleted_services_are_recreated_and_pods_stay() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("unheard", 3)).await;
    let before = space.until_settled("unheard").await;
    let pods = uids(&space.pods_of("unheard").await);
    let services = uids(&space.services_of("unheard").await);
    for name in services.keys() {
        remove(&space.services(), name).await;
    }
    let names: Vec<_> = services.keys().cloned().collect();
    let now = wait_for_objects("services", &names, async || {
        space.services_of("unheard").await
    })
    .await;
    for (name, uid) in uids(&now) {
        assert_ne!(uid, services[&name], "{name}");
    }
    manager.stop().await;
    assert_eq!(uids(&space.pods_of("unheard").await), pods);
    let status = space.jobs().get("unheard").await.unwrap().status.unwrap();
    assert_eq!((status.phase, status.plan), (before.phase, before.plan));
    let warnings = space.warnings_of("unheard").await;
    assert!(warnings.is_empty(), "{warnings:?}");
}

async fn wait_for_two_services(space: &Space, job: &str) {
    eventually("two services", async || {
        match space.services_of(job).await.len() {
            2 => Ok(()),
            n => Err(n.to_string()),
        }
    })
    .await;
}

/// API servers of 1.20 can silently end a watch of services that lags.
#[tokio::test]
async fn silent_service_watch_is_reopened_soon() {
    let ProxiedManager {
        space,
        proxy,
        manager,
    } = ProxiedManager::start().await;
    space.create(&Job::new("dead", 1)).await;
    wait_for_two_services(&space, "dead").await;
    proxy.set_watches_of("services", WatchMode::Forgotten);
    let began = Instant::now();
    remove(&space.services(), "dead-coordinator").await;
    wait_for_two_services(&space, "dead").await;
    // The silence limit is 20 s; other ways to detect it take longer.
    assert!(began.elapsed() < Duration::from_secs(50));
    manager.stop().await;
}

#[tokio::test]
async fn f10_deleted_service_is_recreated_once_each_time() {
    const TIMES: usize = 5;
    let space = Space::new().await;
    let space = space.without_random_faults("each write is made once, and at the first try");
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("deaf", 2)).await;
    let plan = space.until_settled("deaf").await.plan;
    let pods = uids(&space.pods_of("deaf").await);
    let name = &plan[0].name;
    for _ in 0..TIMES {
        let old = space.services().get(name).await.unwrap();
        remove(&space.services(), name).await;
        eventually("the service exists again", async || {
            let found = space.services().get_opt(name).await.unwrap();
            let other = found.filter(|found| found.uid() != old.uid());
            other.map(drop).ok_or_else(String::new)
        })
        .await;
    }
    // The manager completes its pending work before it stops.
    manager.stop().await;
    let writes = space.writes_of("manager").await;
    let of_services = |verb| writes.iter().filter(move |w| w.is_call(verb, "services"));
    let made: Vec<_> = of_services("create").map(|w| (w.code, &w.name)).collect();
    assert_eq!(made.len(), pods.len() + TIMES, "{made:?}");
    assert!(made.iter().all(|(code, _)| *code == 201), "{made:?}");
    assert_eq!(of_services("delete").count(), 0);
    assert_eq!(uids(&space.pods_of("deaf").await), pods);
}

/// A pod whose create response was lost is found by the next create, while the watch is frozen.
#[tokio::test]
async fn f11_existing_pod_emits_no_create_event() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let upstream = space.server.client_of_manager("manager", &space.namespace);
    let proxy = Proxy::start(upstream);
    proxy.set_watches(WatchMode::Frozen);
    let creates =
        |request: &RecordedRequest| request.method == "POST" && request.target.contains("/pods");
    let seen = AtomicUsize::new(0);
    // The second create is the coordinator's retry: the collector waits for it.
    proxy.set_rule(move |request| {
        if creates(request) && [0, 2].contains(&seen.fetch_add(1, Relaxed)) {
            ProxyAction::Lost
        } else {
            ProxyAction::Served
        }
    });
    space.create(&Job::new("there", 1)).await;
    let manager = Manager::start(proxy.client());
    let found =
        |s: &DIJobStatus| s.start_time.is_some() && s.plan.iter().all(|entry| entry.uid.is_some());
    space.until("there", "the pods are found", found).await;
    proxy.set_watches(WatchMode::Flow);
    space.until_settled("there").await;
    space.until_event("there", "CoordinatorRunning").await;
    manager.stop().await;

    let writes = space.writes_of("manager").await;
    let codes: Vec<_> = writes
        .iter()
        .filter(|w| w.is_call("create", "pods"))
        .map(|w| w.code)
        .collect();
    assert_eq!(codes, [201, 409, 201, 409]);
    let events = space.events_of("there").await;
    assert!(
        !events.contains(&"SuccessfulCreate".to_owned()),
        "{events:?}"
    );
}

/// Objects of the previous job disappear while the next job is reconciled, so a name conflict may
/// be gone a moment later.
#[tokio::test]
async fn recreated_job_during_termination_emits_no_warning() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let upstream = space.server.client_of_manager("manager", &space.namespace);
    let proxy = Proxy::start(upstream);
    let manager = Manager::start(proxy.client());
    space.create(&Job::new("again", 1)).await;
    space.until_settled("again").await;
    remove(&space.jobs(), "again").await;
    let pods = space.pods_of("again").await;
    let services = space.services_of("again").await;

    // The live read of the owner fails at first.
    let looks = |request: &RecordedRequest| {
        request.method == "GET" && request.target.ends_with("/again-coordinator")
    };
    let seen = std::sync::atomic::AtomicUsize::new(0);
    proxy.set_rule(move |request| {
        let first = looks(request) && seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2;
        if first {
            ProxyAction::Rejected(404)
        } else {
            ProxyAction::Served
        }
    });
    space.create(&Job::new("again", 1)).await;
    let waits = |s: &DIJobStatus| s.reason.as_deref() == Some("PreviousJobTerminating");
    space
        .until("again", "the job waits for the previous one", waits)
        .await;
    for name in pods.keys() {
        remove(&space.pods(), name).await;
    }
    for name in services.keys() {
        remove(&space.services(), name).await;
    }
    space.until_settled("again").await;
    let warnings = space.warnings_of("again").await;
    assert!(warnings.is_empty(), "{warnings:?}");
    manager.stop().await;
}

/// The namespace controller deletes objects one by one in any order, and the API server rejects new
/// ones.
#[tokio::test]
async fn job_in_deleted_namespace_retries_no_create() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let upstream = space.server.client_of_manager("manager", &space.namespace);
    let proxy = Proxy::start(upstream);
    let manager = Manager::start(proxy.client());
    space.create(&Job::new("doomed", 4)).await;
    space.until_settled("doomed").await;
    let namespaces: Api<Namespace> = Api::all(space.client.clone());
    let params = DeleteParams::default();
    namespaces.delete(&space.namespace, &params).await.unwrap();
    let before = proxy.requests().len();
    let pods = space.pods_of("doomed").await;
    for name in pods.keys() {
        remove(&space.pods(), name).await;
    }
    for name in space.services_of("doomed").await.keys() {
        // The manager may already have deleted the service of a gone pod.
        space.services().delete(name, &params).await.ok();
    }
    let tried = || {
        let requests = proxy.requests().split_off(before);
        let writes = requests.iter().filter(|request| request.write > 0);
        let writes = writes.map(|request| format!("{} {}", request.method, request.target));
        writes.collect::<Vec<_>>()
    };
    eventually(
        "a lost pod is observed and its replacement is rejected",
        async || {
            let tried = tried();
            let creates = |write: &&String| write.starts_with("POST") && write.contains("/pods");
            match tried.iter().filter(creates).count() {
                0 => Err(format!("{tried:#?}")),
                _ => Ok(()),
            }
        },
    )
    .await;
    // A retry would happen within one second, and again within two.
    sleep(Duration::from_secs(4)).await;
    let tried = tried();
    // For each lost pod: one status write, one event, and creates of pod and service, once.
    assert!(tried.len() <= 5 * pods.len(), "{tried:#?}");
    let status = space.jobs().get("doomed").await.unwrap().status.unwrap();
    assert_eq!(status.reason, None, "the status reports no reason");
    // The namespace controller deletes the job last.
    remove(&space.jobs(), "doomed").await;
    manager.stop().await;
}
