//! Collectors and learners: who is replaced, let go of, taken in.

use di_api::{EntryState, Origin, Phase, PlanEntry, Reason, Role};
use di_plan::PodView;
use jiff::SignedDuration;

use super::*;
use crate::step::Step;

#[test]
fn a_failed_collector_is_replaced_under_a_fresh_name_and_kept_for_its_logs() {
    let mut world = running();
    let first = world.wanted(Role::Collector)[0].clone();
    world.exit(&first, 137, "OOMKilled");
    world.settle();
    assert_eq!(
        world.status().phase,
        Some(Phase::Running),
        "others never change the phase"
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
    world.kubelet_ends_deleted();
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

/// What the next look tells of those that were replaced.
fn told_replaced(world: &mut World) -> Vec<String> {
    let notes = world.look().notes.into_iter();
    let notes = notes.filter(|note| note.reason == Reason::ReplicaReplaced);
    notes.map(|note| note.message).collect()
}

#[test]
fn of_many_that_are_lost_at_one_time_one_event_tells_and_of_few_each() {
    for lost in [1, 5, 6, 200] {
        let yaml = JOB.replace("replicas: 2", &format!("replicas: {lost}"));
        let mut world = World::running(&yaml);
        let all = world.wanted(Role::Collector);
        assert_eq!(all.len(), lost);
        for name in &all {
            world.exit(name, 1, "Error");
        }
        let told = told_replaced(&mut world);
        let begins: Vec<_> = match lost.saturating_sub(5) {
            0 => all.iter().map(|name| format!("{name} failed: ")).collect(),
            more => {
                let (five, first) = (all[..5].join(", "), &all[0]);
                vec![format!(
                    "{five} and {more} more are replaced: {first} failed: "
                )]
            }
        };
        assert_eq!(told.len(), begins.len(), "{told:?}");
        for (told, begin) in told.iter().zip(&begins) {
            assert!(told.starts_with(begin), "{told}");
            assert!(told.ends_with(" takes its place"), "{told}");
        }
    }
}

#[test]
fn of_many_that_were_reported_at_one_time_one_event_tells_and_of_few_each() {
    for (reported, events) in [(5, 5), (6, 1)] {
        let yaml = JOB.replace("replicas: 2", &format!("replicas: {reported}"));
        let mut world = World::running(&yaml);
        let plan = &mut world.job.status.as_mut().unwrap().plan;
        let collectors = plan.iter_mut().filter(|e| e.role == Role::Collector);
        // As the endpoint leaves those that take the place of others, once their pods are there.
        for entry in collectors {
            (entry.uid, entry.reported) = (None, true);
            entry.replaces = Some(format!("old-{}", entry.index));
        }
        let told = told_replaced(&mut world);
        assert_eq!(told.len(), events, "{told:?}");
        assert!(told[0].contains("old-0 was reported as failed; "));
    }
}

#[test]
fn a_deleted_replica_is_replaced_and_a_finished_one_is_not() {
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
fn a_finished_replica_is_not_run_again_whatever_becomes_of_its_pod() {
    let mut world = running();
    let all = world.wanted(Role::Collector);
    world.exit(&all[0], 0, "Completed");
    world.settle();
    // Its node is removed, or somebody sweeps up what has ended.
    world.pods.remove(&all[0]);
    world.settle();
    assert_eq!(world.wanted(Role::Collector), all);
    assert!(!world.pods.contains_key(&all[0]));

    world.exit(&all[1], 0, "Completed");
    world.hold();
    world.job.spec.suspend = false;
    world.settle();
    assert_eq!(world.wanted(Role::Collector), all);
    assert!(all.iter().all(|name| !world.pods.contains_key(name)));
}

#[test]
fn nobody_waits_for_a_role_that_was_taken_out_of_a_held_job() {
    let mut world = running();
    let asked = "cartpole-learner-asked".to_owned();
    let asked = PlanEntry::new(asked, Role::Learner, Origin::Requested, 1);
    world.job.status.as_mut().unwrap().plan.push(asked);
    world.settle();
    assert_eq!(world.pods.len(), 5);
    world.hold();
    world.job.spec.learner = None;
    world.job.spec.suspend = false;
    world.settle();
    assert!(world.wanted(Role::Learner).is_empty());
    assert_eq!((world.pods.len(), world.services.len()), (3, 3));
}

#[test]
fn one_that_was_told_to_go_is_replaced_though_it_exits_with_0() {
    for tell in [
        (|pod: &mut PodView| pod.deleting = true) as fn(&mut PodView),
        |pod| pod.disrupted = true,
    ] {
        let mut world = running();
        let name = world.wanted(Role::Collector)[0].clone();
        world.exit(&name, 0, "Completed");
        tell(world.pods.get_mut(&name).unwrap());
        world.settle();
        // Which takes nobody away whom a kubelet has thrown out.
        world.kubelet_ends_deleted();
        world.settle();
        let all = world.wanted(Role::Collector);
        assert!(all.len() == 2 && !all.contains(&name), "{all:?}");
        assert!(all.iter().all(|name| world.pods.contains_key(name)));
    }
}

#[test]
fn one_that_is_lost_again_and_again_backs_off_though_its_kubelets_clock_is_behind() {
    for lose in [
        (|world: &mut World, name: &str| world.pods.get_mut(name).unwrap().deleting = true)
            as fn(&mut World, &str),
        |world, name| world.exit(name, 1, "Error"),
    ] {
        let mut world = running();
        let mut name = world.wanted(Role::Collector)[0].clone();
        for attempt in 1..4 {
            let pod = world.pods.get_mut(&name).unwrap();
            pod.started = Some(world.now - SignedDuration::from_hours(1));
            lose(&mut world, &name);
            world.settle();
            let mut plan = world.plan().iter();
            let next = plan.find(|e| e.replaces.as_ref() == Some(&name));
            let next = next.unwrap().clone();
            assert_eq!(next.attempt, attempt);
            world.kubelet_ends_deleted();
            world.now = next.not_before.map_or(world.now, |at| at.0);
            world.settle();
            name = next.name;
        }
    }
}

#[test]
fn one_that_ran_for_long_and_is_gone_was_healthy() {
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
fn the_address_of_one_that_goes_stays_until_its_pod_is_gone() {
    let mut world = running();
    let name = world.wanted(Role::Collector)[0].clone();
    world.pods.get_mut(&name).unwrap().deleting = true;
    // As after its container has ended, which its kubelet tells before it lets go of the pod.
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
fn a_pod_that_only_the_cache_lacks_is_not_replaced() {
    let mut world = running();
    let name = world.wanted(Role::Collector)[0].clone();
    let pod = world.pods.remove(&name).unwrap();
    let step = world.look();
    assert_eq!(
        step.ask,
        std::slice::from_ref(&name),
        "the server is asked first"
    );
    world.pods.insert(name.clone(), pod);
    world.settle();
    assert!(world.wanted(Role::Collector).contains(&name));
}

#[test]
fn fewer_declared_lets_the_not_ready_go_first_then_the_newest() {
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
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!((world.services.len(), world.plan().len()), (4, 3));
}

/// What a lost plan must be found to have been, in the order of names.
fn told(world: &World) -> Vec<PlanEntry> {
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
fn a_lost_plan_is_found_again_from_the_pods() {
    let mut world = running();
    let groups = serde_json::json!([{"name": "big", "replicas": 2, "resources": {"cpus": "4"}}]);
    let collector = world.job.spec.collector.as_mut().unwrap();
    collector.groups = serde_json::from_value(groups).unwrap();
    world.settle();
    world.run_all();
    // One has failed and is kept, the one in its place has its number.
    let failed = world.wanted(Role::Collector)[0].clone();
    world.exit(&failed, 1, "Error");
    world.settle();
    let second = world.plan().iter().find(|e| e.replaces.is_some());
    let second = second.unwrap().name.clone();
    world.run(&second);
    world.settle();
    let (plan, pods) = (told(&world), world.pods.clone());
    assert_eq!(plan.len(), 2 + 2 + 1 + 1);
    world.job.status = None;
    world.settle();
    assert_eq!(told(&world), plan);
    assert_eq!(world.pods, pods, "nothing is made, and nothing goes");
    assert_eq!(world.status().phase, Some(Phase::Running));
    // The next failure in that place frees the first.
    world.exit(&second, 1, "Error");
    world.settle();
    assert!(world.pods[&failed].deleting);
}

#[test]
fn pods_that_nobody_planned_are_taken_in_and_counted() {
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
    let coordinator = world.pods[COORDINATOR].incarnation();
    assert_eq!(
        owners,
        [Some(coordinator)],
        "its successor is served with it"
    );
    assert_eq!(world.status().replica_status["Collector"].active, 2);
}

#[test]
fn those_that_are_taken_in_are_told_of_once_and_one_that_is_kept_for_its_logs_is_not() {
    let mut world = running();
    let failed = world.wanted(Role::Collector)[0].clone();
    world.exit(&failed, 1, "Error");
    world.settle();
    let mut all = world.wanted(Role::Collector);
    all.extend(world.wanted(Role::Learner));
    all.sort();
    world.job.status = None;
    let asked = world.look().ask;
    assert!(asked.contains(&failed), "{asked:?}");
    world.asked = asked.into_iter().map(|name| (name, true)).collect();
    let told = |step: Step| {
        let notes = step.notes.into_iter();
        let notes = notes.filter(|note| note.reason == Reason::ReplicaAdopted);
        notes
            .map(|note| (note.warning, note.message))
            .collect::<Vec<_>>()
    };
    let message = format!("adopted {}: nobody had planned them", all.join(", "));
    assert_eq!(told(world.look()), [(false, message)]);
    world.settle();
    assert_eq!(told(world.look()), []);
}

#[test]
fn a_wait_that_another_clock_noted_is_not_waited_for() {
    let mut world = World::new(JOB);
    let planned = world.look().status;
    world.job.status = Some(planned);
    let ahead = world.now + SignedDuration::from_hours(1);
    for entry in &mut world.job.status.as_mut().unwrap().plan {
        entry.not_before = Some(Time(ahead));
    }
    world.settle();
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn who_takes_a_place_has_the_resources_that_its_group_has_by_then() {
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
        "it is as it was made"
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
