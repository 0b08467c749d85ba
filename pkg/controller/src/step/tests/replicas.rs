//! Tests of collectors and learners: replacement, scale-down, adoption.

use di_api::{EntryState, Origin, Phase, PlanEntry, Reason, Role};
use di_plan::PodView;
use jiff::SignedDuration;

use super::{
    pod_states::{Main, Sidecar, State},
    *,
};
use crate::step::{Step, step};

#[test]
fn failed_collector_is_replaced_and_kept_for_its_logs() {
    let mut world = running();
    let first = world.wanted(Role::Collector)[0].clone();
    world.exit(&first, 137, "OOMKilled");
    world.settle();
    assert_eq!(
        world.status().phase,
        Some(Phase::Running),
        "replicas never change the phase"
    );
    assert!(world.pods.contains_key(&first));
    let plan = world.plan();
    let second = plan
        .iter()
        .find(|e| e.replaces.as_ref() == Some(&first))
        .unwrap();
    assert_eq!((second.index, second.origin), (0, Origin::Declared));
    let second = second.name.clone();
    assert!(
        world.pods.contains_key(&second),
        "the first replacement is immediate"
    );

    world.run(&second);
    world.exit(&second, 1, "Error");
    world.settle();
    world.remove_terminating_pods();
    world.settle();
    assert!(
        !world.pods.contains_key(&first),
        "one failed pod per index is kept"
    );
    assert!(world.pods.contains_key(&second));
    let third = world
        .plan()
        .iter()
        .find(|e| e.replaces.as_ref() == Some(&second))
        .unwrap();
    let (third, wait) = (third.name.clone(), third.not_before.clone().unwrap().0);
    assert!(!world.pods.contains_key(&third), "further ones back off");
    assert_eq!(
        wait.duration_since(world.now),
        SignedDuration::from_secs(10)
    );
    world.now = wait;
    world.settle();
    assert!(world.pods.contains_key(&third));
}

#[test]
fn ended_replica_with_sidecar_is_stopped_and_kept() {
    for (code, ready) in [(0, "1/2 (1 done)"), (1, "2/2")] {
        let mut world = running();
        let first = world.wanted(Role::Collector)[0].clone();
        world.set_state(&first, State::of(Main::Exited(code), Sidecar::Running));
        world.settle();
        for name in world
            .wanted(Role::Collector)
            .iter()
            .filter(|name| **name != first)
        {
            world.run(name);
        }
        world.settle();
        let pod = &world.pods[&first];
        assert!(pod.deadline_requested && !pod.deleting, "exit code {code}");
        let counts = world.status().collectors_ready.as_deref();
        assert_eq!(counts, Some(ready), "exit code {code}");
        assert_eq!(world.wanted(Role::Collector).contains(&first), code == 0);
    }
}

#[test]
fn pod_without_label_is_deleted_and_replaced() {
    let mut world = running();
    let first = world.wanted(Role::Collector)[0].clone();
    let pod = world.pods.remove(&first).unwrap();
    // A live read has found it.
    world.live_reads.insert(first.clone(), true);
    let mut observed = world.observe();
    observed
        .unlabeled_pods
        .insert(first.clone(), pod.uid.clone());
    let step = step(&observed, &mut di_plan::RandomSuffixes);
    let deletion = Action::DeletePod {
        name: first.clone(),
        uid: pod.uid,
    };
    assert!(step.actions.contains(&deletion), "{:?}", step.actions);
    let replaced = step.status.plan.iter().find(|entry| entry.name == first);
    assert_eq!(replaced.unwrap().state, EntryState::Replaced);
    assert!(
        step.status
            .plan
            .iter()
            .any(|e| e.replaces.as_ref() == Some(&first))
    );
}

/// Messages of the `ReplicaReplaced` events of the next step.
fn replaced_messages(world: &mut World) -> Vec<String> {
    let events = world.compute_step().events.into_iter();
    let events = events.filter(|event| event.reason == Reason::ReplicaReplaced);
    events.map(|event| event.message).collect()
}

#[test]
fn lost_replicas_above_five_share_one_event() {
    for lost in [1, 5, 6, 200] {
        let mut world = World::running(job().collectors(lost));
        let all = world.wanted(Role::Collector);
        assert_eq!(all.len(), lost);
        for name in &all {
            world.exit(name, 1, "Error");
        }
        let messages = replaced_messages(&mut world);
        let begins: Vec<_> = match lost.saturating_sub(5) {
            0 => all.iter().map(|name| format!("{name} failed: ")).collect(),
            more => {
                let (five, first) = (all[..5].join(", "), &all[0]);
                vec![format!(
                    "{five} and {more} more are replaced: {first} failed: "
                )]
            }
        };
        assert_eq!(messages.len(), begins.len(), "{messages:?}");
        for (message, begin) in messages.iter().zip(&begins) {
            assert!(message.starts_with(begin), "{message}");
            assert!(message.ends_with(" replaces it"), "{message}");
        }
    }
}

#[test]
fn reported_replicas_above_five_share_one_event() {
    for (reported, events) in [(5, 5), (6, 1)] {
        let mut world = World::running(job().collectors(reported));
        let plan = &mut world.job.status.as_mut().unwrap().plan;
        let collectors = plan.iter_mut().filter(|e| e.role == Role::Collector);
        // Replacements as the endpoint plans them, with existing pods.
        for entry in collectors {
            (entry.uid, entry.reported) = (None, true);
            entry.replaces = Some(format!("old-{}", entry.index));
        }
        let messages = replaced_messages(&mut world);
        assert_eq!(messages.len(), events, "{messages:?}");
        assert!(messages[0].contains("old-0 was reported as failed; "));
    }
}

#[test]
fn deleted_replica_is_replaced_completed_one_is_not() {
    let mut world = running();
    let all = world.wanted(Role::Collector);
    world.pods.remove(&all[0]);
    world.exit(&all[1], 0, "Completed");
    world.settle();
    assert!(!world.wanted(Role::Collector).contains(&all[0]));
    assert!(world.wanted(Role::Collector).contains(&all[1]));
    assert_eq!(world.wanted(Role::Collector).len(), 2);
}

#[test]
fn completed_replica_never_runs_again() {
    let mut world = running();
    let all = world.wanted(Role::Collector);
    world.exit(&all[0], 0, "Completed");
    world.settle();
    // The pod is removed with its node, or by the pod garbage collector.
    world.pods.remove(&all[0]);
    world.settle();
    assert_eq!(world.wanted(Role::Collector), all);
    assert!(!world.pods.contains_key(&all[0]));

    world.exit(&all[1], 0, "Completed");
    world.suspend_and_settle();
    world.job.spec.suspend = false;
    world.settle();
    assert_eq!(world.wanted(Role::Collector), all);
    assert!(all.iter().all(|name| !world.pods.contains_key(name)));
}

#[test]
fn role_removed_during_suspension_is_not_recreated() {
    let mut world = running();
    let requested = "j-learner-requested".to_owned();
    let requested = PlanEntry::new(requested, Role::Learner, Origin::Requested, 1);
    world.job.status.as_mut().unwrap().plan.push(requested);
    world.settle();
    assert_eq!(world.pods.len(), 5);
    world.suspend_and_settle();
    world.job.spec.learner = None;
    world.job.spec.suspend = false;
    world.settle();
    assert!(world.wanted(Role::Learner).is_empty());
    assert_eq!((world.pods.len(), world.services.len()), (3, 3));
}

#[test]
fn deleted_or_evicted_replica_with_exit_code_0_is_replaced() {
    for disturb in [
        (|pod: &mut PodView| pod.deleting = true) as fn(&mut PodView),
        |pod| pod.disrupted = true,
    ] {
        let mut world = running();
        let name = world.wanted(Role::Collector)[0].clone();
        world.exit(&name, 0, "Completed");
        disturb(world.pods.get_mut(&name).unwrap());
        world.settle();
        // An evicted pod is not terminating, so it stays.
        world.remove_terminating_pods();
        world.settle();
        let all = world.wanted(Role::Collector);
        assert!(all.len() == 2 && !all.contains(&name), "{all:?}");
        assert!(all.iter().all(|name| world.pods.contains_key(name)));
    }
}

#[test]
fn repeated_replica_loss_backs_off_despite_late_clock() {
    for fail in [
        (|world: &mut World, name: &str| world.pods.get_mut(name).unwrap().deleting = true)
            as fn(&mut World, &str),
        |world, name| world.exit(name, 1, "Error"),
    ] {
        let mut world = running();
        let mut name = world.wanted(Role::Collector)[0].clone();
        for attempt in 1..4 {
            let pod = world.pods.get_mut(&name).unwrap();
            pod.started = Some(world.now - SignedDuration::from_hours(1));
            fail(&mut world, &name);
            world.settle();
            let mut plan = world.plan().iter();
            let next = plan.find(|e| e.replaces.as_ref() == Some(&name));
            let next = next.unwrap().clone();
            assert_eq!(next.attempt, attempt);
            world.remove_terminating_pods();
            world.now = next.not_before.map_or(world.now, |at| at.0);
            world.settle();
            name = next.name;
        }
    }
}

#[test]
fn long_run_of_deleted_replica_resets_its_backoff() {
    let mut world = running();
    let mut name = world.wanted(Role::Collector)[0].clone();
    for (hours, attempt) in [(1, 1), (0, 2), (1, 1)] {
        world.now += SignedDuration::from_hours(hours);
        world.pods.remove(&name);
        world.settle();
        let mut plan = world.plan().iter();
        let next = plan.find(|e| e.replaces.as_ref() == Some(&name));
        let next = next.unwrap().clone();
        assert_eq!(next.attempt, attempt);
        if let Some(at) = next.not_before {
            world.now = at.0;
            world.settle();
        }
        world.run(&next.name);
        world.settle();
        name = next.name;
    }
}

#[test]
fn service_of_terminating_replica_stays_until_pod_is_gone() {
    let mut world = running();
    let name = world.wanted(Role::Collector)[0].clone();
    world.pods.get_mut(&name).unwrap().deleting = true;
    // The kubelet reports the end of the container before it removes the pod.
    world.exit(&name, 143, "Error");
    world.settle();
    let mut plan = world.plan().iter();
    let state = |entry: &PlanEntry| (entry.name == name).then_some(entry.state);
    assert_eq!(plan.find_map(state), Some(EntryState::Replaced));
    assert!(world.services.contains_key(&name));
    world.pods.remove(&name);
    world.settle();
    assert!(!world.services.contains_key(&name));
}

#[test]
fn pod_missing_only_in_cache_is_not_replaced() {
    let mut world = running();
    let name = world.wanted(Role::Collector)[0].clone();
    let pod = world.pods.remove(&name).unwrap();
    let step = world.compute_step();
    assert_eq!(
        step.needs_live_read,
        std::slice::from_ref(&name),
        "a live read comes first"
    );
    world.pods.insert(name.clone(), pod);
    world.settle();
    assert!(world.wanted(Role::Collector).contains(&name));
}

#[test]
fn scale_down_deletes_unready_then_newest_replicas() {
    let mut world = running();
    world.job.spec.collector.as_mut().unwrap().replicas = 4;
    world.now += SignedDuration::from_secs(5);
    world.settle();
    let all = world.wanted(Role::Collector);
    world.run_all();
    world.pods.get_mut(&all[0]).unwrap().ready = false;
    world.settle();
    world.job.spec.collector.as_mut().unwrap().replicas = 2;
    world.settle();
    assert_eq!(
        world.wanted(Role::Collector),
        [all[1].clone(), all[2].clone()]
    );
    assert_eq!(
        world
            .plan()
            .iter()
            .filter(|e| e.state == EntryState::Removing)
            .count(),
        2
    );
    assert_eq!(
        world.services.len(),
        6,
        "services stay until their pods are gone"
    );
    world.remove_terminating_pods();
    world.settle();
    assert_eq!((world.services.len(), world.plan().len()), (4, 3));
}

/// The part of the plan that can be recovered from pods, sorted by name.
fn recoverable_plan(world: &World) -> Vec<PlanEntry> {
    let mut plan = world.plan().to_vec();
    plan.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in &mut plan {
        (entry.planned_at, entry.attempt) = (None, 0);
        if !entry.is_wanted() {
            entry.origin = Origin::Requested;
        }
    }
    plan
}

#[test]
fn lost_plan_is_recovered_from_pods() {
    let mut world = running();
    let groups = serde_json::json!([{"name": "big", "replicas": 2, "resources": {"cpus": "4"}}]);
    let collector = world.job.spec.collector.as_mut().unwrap();
    collector.groups = serde_json::from_value(groups).unwrap();
    world.settle();
    world.run_all();
    // A failed pod is kept. Its replacement has its index.
    let failed = world.wanted(Role::Collector)[0].clone();
    world.exit(&failed, 1, "Error");
    world.settle();
    let second = world.plan().iter().find(|e| e.replaces.is_some());
    let second = second.unwrap().name.clone();
    world.run(&second);
    world.settle();
    let (plan, pods) = (recoverable_plan(&world), world.pods.clone());
    assert_eq!(plan.len(), 2 + 2 + 1 + 1);
    world.job.status = None;
    world.settle();
    assert_eq!(recoverable_plan(&world), plan);
    assert_eq!(world.pods, pods, "no pod is created or deleted");
    assert_eq!(world.status().phase, Some(Phase::Running));
    // The next failure of that index deletes the first failed pod.
    world.exit(&second, 1, "Error");
    world.settle();
    assert!(world.pods[&failed].deleting);
}

#[test]
fn orphan_pods_are_adopted_and_counted() {
    let mut world = running();
    let all = world.wanted(Role::Collector);
    world.job.spec.collector.as_mut().unwrap().replicas = 1;
    world.job.status = None;
    world.settle();
    assert_eq!(world.wanted(Role::Collector), all);
    let origins = world.plan().iter().filter(|e| e.role == Role::Collector);
    let origins: Vec<_> = origins.map(|entry| entry.origin).collect();
    assert_eq!(origins, [Origin::Declared, Origin::Requested]);
    let requested = world
        .plan()
        .iter()
        .filter(|e| e.origin == Origin::Requested);
    let owners: Vec<_> = requested.map(|e| e.claimed_by.clone()).collect();
    let coordinator = world.pods[COORDINATOR].coordinator_instance();
    assert_eq!(
        owners,
        [Some(coordinator)],
        "the next coordinator instance inherits it"
    );
    assert_eq!(world.status().replica_status["Collector"].active, 2);
}

#[test]
fn adoption_emits_one_event_without_failed_pods() {
    let mut world = running();
    let failed = world.wanted(Role::Collector)[0].clone();
    world.exit(&failed, 1, "Error");
    world.settle();
    let mut all = world.wanted(Role::Collector);
    all.extend(world.wanted(Role::Learner));
    all.sort();
    world.job.status = None;
    let unverified = world.compute_step().needs_live_read;
    assert!(unverified.contains(&failed), "{unverified:?}");
    world.live_reads = unverified.into_iter().map(|name| (name, true)).collect();
    let adopted = |step: Step| {
        let events = step.events.into_iter();
        let events = events.filter(|event| event.reason == Reason::ReplicaAdopted);
        events
            .map(|event| (event.warning, event.message))
            .collect::<Vec<_>>()
    };
    let message = format!("adopted pods without a plan entry: {}", all.join(", "));
    assert_eq!(adopted(world.compute_step()), [(false, message)]);
    world.settle();
    assert_eq!(adopted(world.compute_step()), []);
}

#[test]
fn backoff_time_of_fast_clock_is_ignored() {
    let mut world = World::new(job());
    let planned = world.compute_step().status;
    world.job.status = Some(planned);
    let ahead = world.now + SignedDuration::from_hours(1);
    for entry in &mut world.job.status.as_mut().unwrap().plan {
        entry.not_before = Some(Time(ahead));
    }
    world.settle();
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn replacement_has_current_resources_of_its_group() {
    let mut world = running();
    let groups = |cpus: &str| {
        let groups =
            serde_json::json!([{"name": "big", "replicas": 1, "resources": {"cpus": cpus}}]);
        serde_json::from_value(groups).unwrap()
    };
    world.job.spec.collector.as_mut().unwrap().groups = groups("4");
    world.settle();
    world.run_all();
    world.settle();
    let big = |world: &World| {
        let mut plan = world.plan().iter();
        let entry = plan.find(|e| e.group.is_some() && e.is_wanted()).unwrap();
        let cpus = entry.resources.cpus.as_ref().unwrap().0.clone();
        (entry.name.clone(), cpus)
    };
    let (first, _) = big(&world);
    world.job.spec.collector.as_mut().unwrap().groups = groups("8");
    world.settle();
    assert_eq!(
        big(&world),
        (first.clone(), "4".to_owned()),
        "existing pods do not change"
    );
    world.exit(&first, 1, "Error");
    world.settle();
    let (second, cpus) = big(&world);
    assert_ne!(second, first);
    assert_eq!(cpus, "8");
    let pod = world.object(&second);
    let main = &pod.spec.as_ref().unwrap().containers[0];
    let resources = main.resources.as_ref().unwrap();
    assert_eq!(resources.limits.as_ref().unwrap()["cpu"].0, "8");
}
