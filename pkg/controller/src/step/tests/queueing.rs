//! Jobs in a queue of Kueue.

use di_api::{ConditionType, Phase, QueueState, Role, is_condition_true};
use di_cache::QueueApi;
use di_fixtures::Job;
use di_plan::{AggregatorTemplate, Request, plan_request};
use serde_json::json;

use super::{
    fake_cluster::{COORDINATOR, World, job, node},
    fake_kueue::BASE,
};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

fn queued_job() -> Job {
    job().metadata(json!({"labels": {(QUEUE): "team"}}))
}

/// A queued job with a learner group of six GPUs.
fn queued_job_with_group() -> Job {
    let gpus = json!({"limits": {"nvidia.com/gpu": "6"}});
    let job = Job::test().collectors(2).learners_with(1, &gpus);
    job.metadata(json!({"labels": {(QUEUE): "team"}}))
}

/// A cluster with Kueue and a waiting job.
pub(super) fn waiting() -> World {
    let mut world = World::new(queued_job());
    world.serve_kueue();
    world.settle();
    world
}

/// A cluster with Kueue and a running job.
pub(super) fn admitted() -> World {
    let mut world = waiting();
    world.admit(BASE);
    run(&mut world);
    assert_eq!(world.status().phase, Some(Phase::Running));
    world
}

pub(super) fn run(world: &mut World) {
    world.settle();
    run_active(world);
    world.settle();
}

fn run_active(world: &mut World) {
    let active = world.pods.values().filter(|pod| pod.is_active());
    let names: Vec<_> = active.map(|pod| pod.name.clone()).collect();
    for name in &names {
        world.run(name);
    }
}

/// Lets the coordinator request collectors.
fn request(world: &mut World, count: usize) -> Vec<String> {
    let job = world.job.clone();
    let request = Request {
        count,
        queue: Some(QueueState::Waiting),
        ..Request::default()
    };
    let now = world.now;
    let mut status = world.status().clone();
    let names = plan_request(
        &job,
        &mut status.plan,
        Role::Collector,
        &request,
        |_| false,
        &mut di_plan::RandomSuffixes,
        now,
    );
    world.job.status = Some(status);
    names
}

pub(super) fn set_collectors(world: &mut World, count: i32) {
    world.job.spec.collector.as_mut().unwrap().replicas = count;
}

fn set_collector(world: &mut World, spec: &serde_json::Value) {
    let collector = world.job.spec.collector.as_mut().unwrap();
    collector.template = serde_json::from_value(json!({ "spec": spec })).unwrap();
}

fn container(cpus: &str) -> serde_json::Value {
    json!({"name": "di-container", "image": "i", "resources": {"requests": {"cpu": cpus}}})
}

fn pod_sets(world: &World, name: &str) -> Vec<(String, i64)> {
    let object = world.workload_object(name);
    let sets = object.data["spec"]["podSets"].as_array().unwrap().iter();
    sets.map(|set| {
        (
            set["name"].as_str().unwrap().to_owned(),
            set["count"].as_i64().unwrap(),
        )
    })
    .collect()
}

#[test]
fn job_waits_without_pods_until_admitted() {
    let mut world = waiting();
    let status = world.status();
    assert_eq!(status.phase, Some(Phase::Queued));
    assert_eq!(status.reason.as_deref(), Some("QueueWaiting"));
    assert!(world.pods.is_empty() && world.services.is_empty());
    let expected = [("coordinator", 1), ("collector", 2), ("learner", 1)];
    assert_eq!(
        pod_sets(&world, BASE),
        expected.map(|(name, count)| (name.to_owned(), count))
    );
    assert!(status.start_time.is_none());

    world.admit(BASE);
    run(&mut world);
    let status = world.status();
    assert_eq!(status.phase, Some(Phase::Running));
    assert!(is_condition_true(
        &status.conditions,
        ConditionType::Admitted
    ));
    assert_eq!(world.pods.len(), 4);
    assert!(world.workload(BASE).is_true("PodsReady"));
    for name in world.pods.keys() {
        let pod = world.object(name);
        let spec = pod.spec.as_ref().unwrap();
        assert_eq!(
            spec.node_selector.as_ref().unwrap()["gpu"],
            "fast",
            "{name}"
        );
        assert_eq!(spec.tolerations.as_ref().unwrap().len(), 1, "{name}");
        let labels = pod.metadata.labels.as_ref().unwrap();
        assert_eq!(labels["kueue.x-k8s.io/cluster-queue-name"], "cq", "{name}");
    }

    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    assert!(!world.workload(BASE).is_true("Finished"), "pods still run");
    world.remove_terminating_pods();
    world.settle();
    assert!(world.workload(BASE).is_true("Finished"));
}

#[test]
fn changed_counts_of_waiting_job_change_its_workload() {
    let mut world = waiting();
    set_collectors(&mut world, 5);
    world.settle();
    assert!(pod_sets(&world, BASE).contains(&("collector".to_owned(), 5)));
    assert_eq!(world.workload_names(), [BASE]);
}

#[test]
fn requested_collector_has_quota_of_its_own() {
    let mut world = admitted();
    let name = request(&mut world, 1).remove(0);
    world.settle();
    assert!(!world.pods.contains_key(&name));
    assert_eq!(world.status().reason.as_deref(), Some("QueueWaiting"));
    let own = format!("{BASE}-collector-2");
    assert_eq!(pod_sets(&world, &own), [("collector".to_owned(), 1)]);
    world.admit(&own);
    run(&mut world);
    assert!(world.pods.contains_key(&name));

    world.evict(&own, "Preempted");
    world.settle();
    assert!(world.pods[&name].deleting);
    assert!(world.workload(&own).has_quota(), "its pod still runs");
    world.remove_terminating_pods();
    world.settle();
    assert!(!world.workload(&own).has_quota());
    let status = world.status();
    assert_eq!((status.phase, status.restarts), (Some(Phase::Running), 0));
    let next = world.wanted(Role::Collector).pop().unwrap();
    let entry = world
        .plan()
        .iter()
        .find(|entry| entry.name == next)
        .unwrap();
    assert_eq!((entry.attempt, entry.index), (0, 2));

    world.admit(&own);
    run(&mut world);
    assert!(next != name && world.pods.contains_key(&next));
}

#[test]
fn evicted_job_ends_its_pods_and_waits_again() {
    let mut world = admitted();
    let requested = request(&mut world, 1).remove(0);
    world.settle();
    let own = format!("{BASE}-collector-2");
    world.admit(&own);
    run(&mut world);
    let plan: Vec<_> = world
        .plan()
        .iter()
        .map(|entry| entry.name.clone())
        .collect();

    world.evict(BASE, "Preempted");
    world.settle();
    assert_eq!(world.status().reason.as_deref(), Some("QueuePreempted"));
    assert!(world.pods.values().all(|pod| pod.deleting));
    assert!(world.workload(BASE).has_quota(), "its pods still run");
    // It stores a checkpoint and exits with 0: that is not the end of the job.
    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Queued));
    assert!(!world.workload(BASE).has_quota());
    assert!(world.workload(BASE).is_true("Requeued"));
    assert_eq!(world.workload_names(), [BASE]);

    world.admit(BASE);
    run(&mut world);
    let again: Vec<_> = world
        .plan()
        .iter()
        .map(|entry| entry.name.clone())
        .collect();
    assert_eq!(again, plan);
    assert_eq!(world.status().phase, Some(Phase::Running));
    assert!(!world.pods.contains_key(&requested));
    world.admit(&own);
    run(&mut world);
    assert!(world.pods.contains_key(&requested));
}

#[test]
fn replacement_waits_until_terminating_pod_returns_quota() {
    // Kueue counts the quota also without permissions for the orchestrator.
    for api in [admitted().queue.api, QueueApi::Forbidden] {
        let mut world = admitted();
        world.queue.api = api;
        let old = world.wanted(Role::Collector).remove(0);
        world.pods.get_mut(&old).unwrap().deleting = true;
        world.settle();
        assert_eq!(world.wanted(Role::Collector).len(), 2);
        assert_eq!(world.pods.len(), 4, "no new pod while one is terminating");
        world.remove_terminating_pods();
        world.settle();
        assert_eq!(world.pods.len(), 4);
        assert_eq!(world.workload_names(), [BASE]);
    }
}

#[test]
fn removed_replica_returns_quota_once_its_pod_is_gone() {
    let mut world = admitted();
    set_collectors(&mut world, 1);
    world.settle();
    assert!(world.workload(BASE).reclaimable.is_empty());
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.workload(BASE).reclaimable["collector"], 1);
    // The returned quota is gone: the next collector waits for its own.
    set_collectors(&mut world, 2);
    world.settle();
    assert_eq!(world.workload_names().len(), 2);
    assert_eq!(world.pods.len(), 3);

    world.evict(BASE, "ClusterQueueStopped");
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert!(world.workload(BASE).reclaimable.is_empty());
    assert!(pod_sets(&world, BASE).contains(&("collector".to_owned(), 2)));
}

#[test]
fn suspended_job_returns_its_quota() {
    let mut world = admitted();
    world.suspend_and_settle();
    assert!(world.workload_names().is_empty());
    assert!(world.status().queueing.is_none());
    world.job.spec.suspend = false;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Queued));
    world.admit(BASE);
    run(&mut world);
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn job_waits_while_kueue_is_not_usable() {
    for (api, reason) in [
        (QueueApi::NotServed, "QueueNotServed"),
        (QueueApi::Forbidden, "QueueForbidden"),
    ] {
        let mut world = World::new(queued_job());
        world.queue.api = api;
        world.settle();
        assert_eq!(world.status().reason.as_deref(), Some(reason));
        assert_eq!(world.status().phase, Some(Phase::Queued));
        let mut running = admitted();
        running.queue.api = api;
        running.settle();
        assert_eq!(running.status().phase, Some(Phase::Running));
        assert_eq!(running.pods.len(), 4);
        running.job.spec.collector.as_mut().unwrap().replicas += 1;
        run(&mut running);
        assert_eq!(running.pods.len(), 4, "more has no quota");
        assert_eq!(running.status().reason.as_deref(), Some(reason));
    }
    let mut world = World::new(queued_job());
    world.settle();
    assert!(world.pods.is_empty(), "unknown");
}

#[test]
fn learner_group_is_replaced_while_kueue_is_not_usable() {
    let mut world = World::new(queued_job_with_group());
    world.serve_kueue();
    world.settle();
    world.admit(BASE);
    run(&mut world);
    let served = world.queue.api;
    let member = world.wanted(Role::DdpLearner).remove(0);
    world.exit(&member, 1, "Error");
    // At the start of the orchestrator, until the Workloads are listed.
    world.queue.api = QueueApi::Unknown;
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert!(world.plan().iter().all(|entry| entry.queue.is_none()));
    for api in [QueueApi::NotServed, served] {
        world.queue.api = api;
        run(&mut world);
        assert_eq!(world.workload_names(), [BASE]);
        let running = world.pods.values().filter(|pod| pod.is_active());
        assert_eq!(running.count(), 6);
    }
}

#[test]
fn ranks_of_a_group_share_quota_though_their_memory_differs() {
    let mut world = World::new(queued_job_with_group());
    world.nodes = vec![node(1); 6];
    let learner = world.job.spec.learner.as_mut().unwrap();
    let spec = json!({"containers": [{"name": "di-container", "image": "i", "resources":
        {"requests": {"memory": "16Gi"}, "limits": {"nvidia.com/gpu": "6"}}}]});
    learner.template = serde_json::from_value(json!({ "spec": spec })).unwrap();
    world.serve_kueue();
    world.settle();
    world.admit(BASE);
    run(&mut world);
    assert_eq!(world.pods.len(), 10);
    assert_eq!(world.workload_names(), [BASE]);
}

#[test]
fn label_decides_about_the_queue() {
    let mut world = waiting();
    world.job.metadata.labels = None;
    run(&mut world);
    assert_eq!(world.pods.len(), 4);
    assert!(world.workload_names().is_empty());
    assert_eq!(world.status().phase, Some(Phase::Running));
}

#[test]
fn deactivated_job_waits_and_says_so() {
    let mut world = admitted();
    world.workload_object_mut(BASE).data["spec"]["active"] = false.into();
    world.evict(BASE, "Deactivated");
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.status().reason.as_deref(), Some("QueueDeactivated"));
    assert!(!world.workload(BASE).has_quota());
}

#[test]
fn contradiction_of_flavor_and_template_fails_the_job() {
    let template = json!({"spec": {"nodeSelector": {"gpu": "slow"}, "containers": [{"name": "di-container", "image": "i"}]}});
    let job = queued_job().spec(json!({"collector": {"template": template, "replicas": 1}}));
    let mut world = World::new(job);
    world.serve_kueue();
    world.settle();
    world.admit(BASE);
    world.settle();
    let status = world.status();
    assert_eq!(
        (status.phase, status.reason.as_deref()),
        (Some(Phase::Failed), Some("FlavorConflict"))
    );
}

#[test]
fn replica_with_flavor_conflict_waits_without_quota() {
    let mut world = admitted();
    set_collector(
        &mut world,
        &json!({"nodeSelector": {"gpu": "slow"}, "containers": [container("1")]}),
    );
    set_collectors(&mut world, 3);
    world.settle();
    let own = format!("{BASE}-collector-2");
    world.admit(&own);
    world.settle();
    assert_eq!(world.status().reason.as_deref(), Some("FlavorConflict"));
    assert!(!world.workload(&own).has_quota());

    // The template, or the flavor, is changed.
    set_collector(&mut world, &json!({"containers": [container("1")]}));
    let later = jiff::SignedDuration::from_secs(301);
    world.now = world.now.checked_add(later).unwrap();
    world.settle();
    world.admit(&own);
    run(&mut world);
    assert_eq!(world.pods.len(), 5);
}

#[test]
fn template_that_changes_after_the_admission_needs_other_quota() {
    let mut world = waiting();
    world.admit(BASE);
    set_collector(&mut world, &json!({"containers": [container("7")]}));
    world.settle();
    assert!(world.pods.is_empty());
    assert!(!world.workload(BASE).has_quota());
    world.admit(BASE);
    run(&mut world);
    // The pods that run keep their quota, a replacement needs its own.
    set_collector(&mut world, &json!({"containers": [container("8")]}));
    world.settle();
    assert_eq!(world.workload_names(), [BASE]);
    let lost = world.wanted(Role::Collector).remove(0);
    world.exit(&lost, 1, "Error");
    world.settle();
    assert!(
        world
            .workload_names()
            .contains(&&*format!("{BASE}-collector-0"))
    );
}

#[test]
fn changed_template_needs_quota_without_aggregator_config() {
    let mut world = World::new(queued_job_with_group());
    world.serve_kueue();
    world.settle();
    world.admit(BASE);
    run(&mut world);
    // The next aggregator cannot be created.
    world.aggregator = AggregatorTemplate::Missing;
    set_collector(&mut world, &json!({"containers": [container("7")]}));
    for role in [Role::DdpLearner, Role::Collector] {
        let lost = world.wanted(role).remove(0);
        world.exit(&lost, 1, "Error");
    }
    world.settle();
    let own = format!("{BASE}-collector-0");
    assert_eq!(world.workload_names(), [BASE, &*own]);
}

#[test]
fn placements_of_removed_replicas_are_used_again() {
    let mut world = admitted();
    let own = format!("{BASE}-collector-2");
    for cpus in ["1", "2", "3"] {
        set_collector(&mut world, &json!({"containers": [container(cpus)]}));
        set_collectors(&mut world, 3);
        world.settle();
        world.admit(&own);
        run(&mut world);
        set_collectors(&mut world, 2);
        world.settle();
        world.remove_terminating_pods();
        world.settle();
    }
    let queueing = world.status().queueing.as_ref().unwrap();
    assert_eq!(queueing.placements.len(), 4);
}

#[test]
fn lost_status_keeps_pods_and_quota() {
    let mut world = admitted();
    let pods: Vec<_> = world.pods.keys().cloned().collect();
    world.job.status = None;
    world.settle();
    assert!(world.pods.keys().eq(&pods), "{:?}", world.pod_names());
    assert_eq!(world.workload_names(), [BASE]);
    assert_eq!(world.status().phase, Some(Phase::Running));
    assert!(world.workload(BASE).reclaimable.is_empty());
}

/// An admitted job with a third collector, and the name of its Workload.
fn admitted_with_third_collector() -> (World, String) {
    let mut world = admitted();
    set_collectors(&mut world, 3);
    world.settle();
    let own = format!("{BASE}-collector-2");
    world.admit(&own);
    run(&mut world);
    (world, own)
}

/// A terminating pod of a lost plan may use the quota of the evicted replica.
#[test]
fn quota_is_kept_while_a_pod_is_unknown() {
    let (mut world, own) = admitted_with_third_collector();
    world.evict(&own, "Preempted");
    world.settle();
    world.job.status = None;
    world.settle();
    assert!(world.workload(&own).has_quota());
    world.remove_terminating_pods();
    world.settle();
    assert!(!world.workload(&own).has_quota());
}

/// After the loss, the second and third collector share the quota of the whole job.
#[test]
fn own_quota_is_kept_while_a_pod_is_unknown() {
    let (mut world, own) = admitted_with_third_collector();
    let first = world.wanted(Role::Collector).remove(0);
    world.exit(&first, 1, "Error");
    run(&mut world);
    world.job.status = None;
    world.settle();
    let is_terminating = |world: &World| world.pods.values().any(|pod| pod.deleting);
    assert!(is_terminating(&world) && world.workload(&own).has_quota());
    let next = format!("{BASE}-collector-0");
    assert!(world.workload_names().contains(&&*next));
    while is_terminating(&world) {
        world.remove_terminating_pods();
        world.settle();
    }
    assert_eq!(world.workload_names(), [BASE, &*next]);
}

#[test]
fn learner_group_has_one_workload() {
    let mut world = World::new(queued_job_with_group());
    world.serve_kueue();
    world.settle();
    let names: Vec<_> = pod_sets(&world, BASE)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        names,
        [
            "coordinator",
            "aggregator",
            "collector",
            "ddp-learner-gpu-2-of-6",
            "ddp-learner-gpu-4-of-6"
        ]
    );
    world.admit(BASE);
    run(&mut world);
    assert_eq!(world.pods.len(), 6);
    let member = world.wanted(Role::DdpLearner).remove(0);
    world.exit(&member, 1, "Error");
    world.settle();
    world.remove_terminating_pods();
    run(&mut world);
    world.remove_terminating_pods();
    run(&mut world);
    let running = world
        .pods
        .values()
        .filter(|pod| pod.is_active() && !pod.deleting);
    assert_eq!(running.count(), 6, "{:?}", world.pod_names());
    assert_eq!(
        world.workload_names(),
        [BASE],
        "its quota suffices for the replacement"
    );
}
