//! Tests of units: replicas of several pods.

use di_api::{ListWhen, PlanEntry, Role, UnitRestart, UnitStart, names};
use di_fixtures::Job;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{
    fake_cluster::{COORDINATOR, World},
    fake_kueue::BASE,
    queueing::run,
};

/// A job with two collectors of three pods.
fn job() -> Job {
    Job::test()
        .collectors(2)
        .spec(json!({"collector": {"unit": {"size": 3}}}))
}

fn with_unit(fields: &Value) -> Job {
    job().spec(json!({"collector": {"unit": fields}}))
}

fn running(fields: &Value) -> World {
    World::running(with_unit(fields))
}

fn single_pods() -> Value {
    json!({"restart": UnitRestart::Pod})
}

/// Names of the pods of the first unit, the leader first.
fn first_unit(world: &World) -> Vec<String> {
    let in_first = |entry: &&PlanEntry| entry.is_wanted() && entry.index == 0;
    let mut pods: Vec<_> = world.plan().iter().filter(in_first).collect();
    pods.sort_by_key(|entry| entry.unit.as_ref().unwrap().index);
    pods.iter().map(|entry| entry.name.clone()).collect()
}

fn listed(world: &World) -> Vec<String> {
    let listed = world.plan().iter().filter(|entry| entry.listed);
    listed.map(|entry| entry.name.clone()).collect()
}

/// Starts all wanted pods.
fn run_wanted(world: &mut World) {
    for name in world.wanted(Role::Collector) {
        if world.pods.contains_key(&name) {
            world.run(&name);
        }
    }
    world.settle();
}

fn settle_without_terminating_pods(world: &mut World) {
    world.settle();
    world.remove_terminating_pods();
    world.settle();
}

#[test]
fn unit_counts_as_one_replica() {
    let mut world = World::new(job());
    world.settle();
    assert_eq!(listed(&world), [""; 0]);
    world.run_all();
    world.settle();
    assert_eq!(world.pods.len(), 1 + 2 * 3);
    assert_eq!(world.services.len(), world.pods.len());
    let status = world.status();
    assert_eq!(status.collectors, 2);
    assert_eq!(status.collectors_ready.as_deref(), Some("2/2"));
    assert_eq!(status.replica_status["Collector"].active, 6);
    let selector = status.selector.as_deref().unwrap();
    assert!(selector.ends_with(",unit-index=0"), "{selector}");
    assert_eq!(status.membership_generation, Some(1));
    assert_eq!(listed(&world).len(), 2);
    let member = first_unit(&world)[2].clone();
    world.pods.get_mut(&member).unwrap().ready = false;
    world.settle();
    let ready = world.status().collectors_ready.as_deref();
    assert_eq!(ready, Some("1/2"));
    assert_eq!(listed(&world).len(), 2, "it runs");
    world.job.spec.collector.as_mut().unwrap().list_when = ListWhen::Ready;
    world.settle();
    assert_eq!(listed(&world).len(), 1);
}

#[test]
fn lost_pod_replaces_whole_unit() {
    for lost in 0..3 {
        let mut world = running(&json!({}));
        let before = first_unit(&world);
        world.exit(&before[lost], 1, "Error");
        world.settle();
        assert_eq!(listed(&world).len(), 1, "its new pods have no nodes");
        settle_without_terminating_pods(&mut world);
        let after = first_unit(&world);
        assert_eq!(after.len(), 3);
        assert!(after.iter().all(|name| !before.contains(name)));
        let kept: Vec<_> = before
            .iter()
            .filter(|name| world.pods.contains_key(*name))
            .collect();
        assert_eq!(kept, [&before[lost]], "the failed pod, for its log");
        assert_eq!(world.pods.len(), 1 + 2 * 3 + 1);
        run_wanted(&mut world);
        assert!(listed(&world).contains(&after[0]));
        assert_eq!(world.status().collectors_ready.as_deref(), Some("2/2"));
    }
}

#[test]
fn single_pod_is_replaced_alone() {
    for lost in 1..3 {
        let mut world = running(&single_pods());
        let before = first_unit(&world);
        world.exit(&before[lost], 1, "Error");
        settle_without_terminating_pods(&mut world);
        let after = first_unit(&world);
        for place in 0..3 {
            let is_same = after[place] == before[place];
            assert_eq!(is_same, place != lost, "{after:?}");
        }
        let new = world.object(&after[lost]);
        let labels = new.metadata.labels.as_ref().unwrap();
        assert_eq!(labels[names::labels::UNIT], before[0]);
        assert!(world.pods.contains_key(&before[lost]), "for its log");
        assert_eq!(listed(&world).len(), 1, "incomplete");
        run_wanted(&mut world);
        assert_eq!(listed(&world).len(), 2);
    }
    let mut world = running(&single_pods());
    let before = first_unit(&world);
    world.exit(&before[0], 1, "Error");
    settle_without_terminating_pods(&mut world);
    let after = first_unit(&world);
    assert!(after.iter().all(|name| !before.contains(name)), "leader");
}

#[test]
fn leader_and_other_pod_lost_together_replace_unit_once() {
    let mut world = running(&single_pods());
    let before = first_unit(&world);
    for name in &before[..2] {
        world.exit(name, 1, "Error");
    }
    settle_without_terminating_pods(&mut world);
    assert_eq!(first_unit(&world).len(), 3);
    assert_eq!(world.pods.len(), 1 + 2 * 3 + 2, "and both failed pods");
    let leaders = world.plan().iter().filter(|entry| entry.leads_group());
    assert_eq!(leaders.filter(|entry| entry.index == 0).count(), 2);
}

#[test]
fn pod_on_lost_node_is_replaced_as_restart_says() {
    for (fields, replaced) in [(json!({}), 3), (single_pods(), 1)] {
        let mut world = running(&fields);
        let before = first_unit(&world);
        // Kubernetes deletes the pods of a lost node, and no kubelet confirms it.
        world.pods.get_mut(&before[1]).unwrap().deleting = true;
        world.settle();
        let after = first_unit(&world);
        let new = after.iter().filter(|name| !before.contains(name));
        assert_eq!(new.count(), replaced, "{fields}");
    }
}

#[test]
fn single_pod_has_backoff_of_its_own() {
    let mut world = running(&single_pods());
    for _ in 0..2 {
        let pods = first_unit(&world);
        world.exit(&pods[1], 1, "Error");
        settle_without_terminating_pods(&mut world);
        let next = first_unit(&world)[1].clone();
        if world.pods.contains_key(&next) {
            world.run(&next);
            world.settle();
        }
    }
    let pods = first_unit(&world);
    assert!(!world.pods.contains_key(&pods[1]), "it waits");
    assert!(world.pods.contains_key(&pods[2]), "the others run");
    let attempt = |name: &String| {
        let entry = di_plan::find_entry(world.plan(), name);
        entry.unwrap().attempt
    };
    assert_eq!([attempt(&pods[0]), attempt(&pods[1])], [0, 2]);
    world.now += SignedDuration::from_secs(10);
    world.settle();
    assert!(world.pods.contains_key(&pods[1]));
}

#[test]
fn other_pods_start_after_their_leader_has_a_node() {
    let fields = json!({"start": UnitStart::LeaderFirst});
    let mut world = World::new(with_unit(&fields));
    world.settle();
    assert_eq!(world.pods.len(), 1 + 2, "leaders only");
    assert_eq!(world.services.len(), 1 + 2 * 3);
    let leader = first_unit(&world)[0].clone();
    world.run(&leader);
    world.settle();
    assert_eq!(world.pods.len(), 1 + 2 + 2, "the unit of that leader");
}

#[test]
fn pods_of_waiting_gang_do_not_wait_for_their_leader() {
    let fields = json!({"start": UnitStart::LeaderFirst});
    let gang = json!({"scheduling": {"gang": {"minCollectors": 1}}});
    let mut world = World::new(with_unit(&fields).spec(gang));
    world.serve_gangs();
    world.settle();
    let mut expected = first_unit(&world);
    expected.push(COORDINATOR.to_owned());
    expected.sort();
    assert_eq!(world.pod_names(), expected);
}

#[test]
fn resumed_unit_has_the_same_names() {
    let mut world = running(&json!({}));
    let before = first_unit(&world);
    world.suspend_and_settle();
    assert_eq!(listed(&world), [""; 0]);
    world.job.spec.suspend = false;
    world.settle();
    assert_eq!(first_unit(&world), before);
    assert_eq!(world.pods.len(), 1 + 2 * 3);
}

#[test]
fn done_unit_with_replaced_pod_is_done_after_resume() {
    let mut world = running(&single_pods());
    let before = first_unit(&world);
    world.exit(&before[1], 1, "Error");
    settle_without_terminating_pods(&mut world);
    run_wanted(&mut world);
    for name in first_unit(&world) {
        world.exit(&name, 0, "Completed");
    }
    world.settle();
    world.suspend_and_settle();
    world.job.spec.suspend = false;
    world.settle();
    assert_eq!(world.pods.len(), 1 + 3, "the other unit");
}

#[test]
fn removed_unit_is_deleted_as_a_whole() {
    let mut world = running(&json!({}));
    world.job.spec.collector.as_mut().unwrap().replicas = 1;
    settle_without_terminating_pods(&mut world);
    assert_eq!((world.pods.len(), world.services.len()), (4, 4));
    assert_eq!(world.plan().len(), 3);
}

#[test]
fn units_are_adopted_after_status_is_lost() {
    for fields in [json!({}), single_pods()] {
        let mut world = running(&fields);
        let pods = world.pods.clone();
        world.job.status = None;
        world.settle();
        assert_eq!(world.pods, pods);
        assert_eq!(world.plan().len(), 6);
        assert!(world.plan().iter().all(PlanEntry::is_wanted));
        assert_eq!(world.status().collectors_ready.as_deref(), Some("2/2"));
    }
}

#[test]
fn incomplete_unit_of_lost_status_is_replaced_or_completed() {
    for (fields, keeps_leader) in [(json!({}), false), (single_pods(), true)] {
        let mut world = running(&fields);
        let before = first_unit(&world);
        world.pods.remove(&before[1]);
        world.job.status = None;
        settle_without_terminating_pods(&mut world);
        let after = first_unit(&world);
        assert_eq!(after.len(), 3, "{fields}");
        assert_eq!(after[0] == before[0], keeps_leader, "{fields}");
        assert_eq!(world.pods.len(), 1 + 2 * 3);
    }
}

/// Returns the number of pods that use quota.
fn active_pods(world: &World) -> usize {
    let pods = world.pods.values();
    pods.filter(|pod| pod.is_active()).count()
}

#[test]
fn unit_has_one_quota_for_all_its_pods() {
    for fields in [json!({}), single_pods()] {
        let labels = json!({"labels": {"kueue.x-k8s.io/queue-name": "team"}});
        let mut world = World::new(with_unit(&fields).metadata(labels));
        world.serve_kueue();
        world.settle();
        let pod_sets = &world.workload_object(BASE).data["spec"]["podSets"];
        let pod_sets = pod_sets.as_array().unwrap().iter();
        let counts: Vec<_> = pod_sets
            .map(|set| json!([set["name"], set["count"]]))
            .collect();
        let expected = json!([
            ["coordinator", 1],
            ["collector", 4],
            ["collector-leader", 2]
        ]);
        assert_eq!(json!(counts), expected);
        world.admit(BASE);
        run(&mut world);
        assert_eq!(active_pods(&world), 1 + 2 * 3);

        let lost = first_unit(&world)[1].clone();
        world.exit(&lost, 1, "Error");
        world.settle();
        world.remove_terminating_pods();
        run(&mut world);
        assert_eq!(active_pods(&world), 1 + 2 * 3, "with the same quota");
        assert_eq!(world.workload_names(), [BASE]);

        world.job.spec.collector.as_mut().unwrap().replicas = 3;
        world.settle();
        let own = format!("{BASE}-collector-2");
        assert_eq!(world.workload_names(), [BASE, &*own]);
        assert_eq!(active_pods(&world), 1 + 2 * 3, "the new one waits");
        world.admit(&own);
        run(&mut world);
        assert_eq!(active_pods(&world), 1 + 3 * 3);
        let ready = world.status().collectors_ready.as_deref();
        assert_eq!(ready, Some("3/3"));
    }
}
