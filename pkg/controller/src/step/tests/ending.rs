//! The end, and what is left after it; a held job, too.

use std::time::Duration;

use di_api::{CleanPodPolicy, ConditionType, Phase, Reason, Role, condition, set_condition};
use jiff::SignedDuration;

use super::*;

#[test]
fn the_end_is_written_before_anything_is_cleaned_up() {
    let mut world = running();
    world.exit(COORDINATOR, 0, "Completed");
    let step = world.look();
    assert_eq!(step.status.phase, Some(Phase::Succeeded));
    assert_ne!(
        world.job.status.as_ref(),
        Some(&step.status),
        "so the driver writes it first"
    );
}

#[test]
fn f1_an_ended_job_is_never_run_again() {
    for policy in [
        CleanPodPolicy::None,
        CleanPodPolicy::Running,
        CleanPodPolicy::All,
    ] {
        let mut world = running();
        world.job.spec.clean_pod_policy = policy;
        world.exit(COORDINATOR, 1, "Error");
        world.settle();
        world.pods.clear();
        world.settle();
        assert_eq!(world.status().phase, Some(Phase::Failed));
        assert!(world.pods.is_empty(), "{policy:?}");
        // Even if the phase alone were lost.
        world.job.status.as_mut().unwrap().phase = None;
        world.settle();
        assert!(world.pods.is_empty(), "{policy:?}");
    }
}

#[test]
fn deadline_and_ttl_are_kept() {
    let mut world = running();
    world.job.spec.active_deadline_seconds = Some(60);
    world.job.spec.ttl_seconds_after_finished = Some(30);
    assert_eq!(world.look().again, Some(Duration::from_secs(60)));
    world.now += SignedDuration::from_secs(60);
    world.settle();
    assert_eq!(world.status().reason.as_deref(), Some("DeadlineExceeded"));
    assert!(!world.job_deleted);
    world.kubelet_ends_deleted();
    world.now += SignedDuration::from_secs(30);
    world.settle();
    assert!(world.job_deleted);
}

#[test]
fn a_coordinator_that_found_no_node_until_its_deadline_does_not_wait_on() {
    for (policy, waits) in [
        (CleanPodPolicy::None, true),
        (CleanPodPolicy::Running, false),
        (CleanPodPolicy::All, false),
    ] {
        let mut world = World::new(JOB);
        world.job.spec.clean_pod_policy = policy;
        world.job.spec.active_deadline_seconds = Some(60);
        world.settle();
        world.pods.get_mut(COORDINATOR).unwrap().scheduled = Err("no room".into());
        world.settle();
        world.now += SignedDuration::from_secs(60);
        world.settle();
        assert_eq!(world.status().reason.as_deref(), Some("DeadlineExceeded"));
        // No kubelet has it that could end it where it is.
        let pod = &world.pods[COORDINATOR];
        assert_eq!((pod.deleting, pod.told_to_end), (!waits, false));
        world.kubelet_ends_deleted();
        world.settle();
        assert_eq!(world.pods.contains_key(COORDINATOR), waits, "{policy:?}");
        assert!(world.services.is_empty());
    }
}

#[test]
fn a_suspended_job_frees_everything_and_goes_on_with_its_plan() {
    let mut world = running();
    let plan = world.wanted(Role::Collector);
    world.job.spec.suspend = true;
    world.settle();
    assert_ne!(
        world.status().phase,
        Some(Phase::Suspended),
        "not before its pods are gone"
    );
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Suspended));
    assert!(world.services.is_empty());
    world.job.spec.suspend = false;
    let first = world.look().status;
    let running = condition(&first.conditions, ConditionType::Running).unwrap();
    assert_eq!(
        running.reason, "CoordinatorPending",
        "it is not held any more"
    );
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert_eq!(world.wanted(Role::Collector), plan);
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn a_job_that_is_let_go_on_before_its_pods_are_gone_keeps_their_names() {
    let mut world = running();
    let (plan, old) = (world.wanted(Role::Collector), world.pods.clone());
    world.job.spec.suspend = true;
    world.settle();
    world.job.spec.suspend = false;
    world.settle();
    assert_eq!(world.wanted(Role::Collector), plan);
    assert!(world.pods.keys().eq(old.keys()));
    assert!(world.pods.values().all(|pod| pod.deleting && pod.ready));
    assert_eq!(world.status().collectors_ready.as_deref(), Some("0/2"));
    let ready = condition(&world.status().conditions, ConditionType::ReplicasReady);
    assert_eq!(ready.unwrap().status, "False");

    // One after the other, as each has saved what it has.
    for name in old.keys() {
        world.pods.remove(name);
        world.settle();
        assert_eq!(world.wanted(Role::Collector), plan);
        assert_ne!(world.pods[name].uid, old[name].uid, "{name}");
    }
    assert_eq!(world.pods.len(), old.len());
    assert_eq!(world.services.len(), old.len());
}

#[test]
fn a_held_coordinator_that_saves_what_it_has_and_exits_has_not_ended_the_job() {
    // Whether it is let go on before it is gone, or after.
    for hasty in [false, true] {
        let mut world = running();
        world.job.spec.suspend = true;
        world.settle();
        assert!(world.pods[COORDINATOR].deleting);
        if hasty {
            world.job.spec.suspend = false;
            world.settle();
        }
        world.exit(COORDINATOR, 0, "Completed");
        world.settle();
        assert!(!world.status().phase.unwrap().is_terminal(), "{hasty}");
        world.kubelet_ends_deleted();
        world.job.spec.suspend = false;
        world.settle();
        assert_eq!(world.status().phase, Some(Phase::Created), "{hasty}");
        assert_eq!(world.pods.len(), 4, "{hasty}");
    }
}

#[test]
fn a_coordinator_that_ended_well_just_before_it_was_told_to_go_has_ended_the_job() {
    let mut world = running();
    world.job.spec.suspend = true;
    let step = world.look();
    world.job.status = Some(step.status);
    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Succeeded));
}

#[test]
fn a_job_that_runs_is_not_judged_anew_when_its_status_is_lost() {
    let mut world = running();
    let coordinator = &mut world.job.spec.coordinator.template;
    coordinator.spec.as_mut().unwrap().containers[0].name = "main".into();
    world.job.status = None;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Running));
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn a_held_job_is_not_judged_before_it_goes_on() {
    // Whether it ran before, when its mistake was none yet, or was made held.
    for ran in [true, false] {
        let mut world = if ran { running() } else { World::new(JOB) };
        if ran {
            world.hold();
        }
        let coordinator = &mut world.job.spec.coordinator.template;
        coordinator.spec.as_mut().unwrap().containers[0].name = "main".into();
        world.hold();
        assert!(world.pods.is_empty() && world.services.is_empty());

        let mut mended = world.clone();
        let coordinator = &mut mended.job.spec.coordinator.template;
        coordinator.spec.as_mut().unwrap().containers[0].name = "di-container".into();
        mended.job.spec.suspend = false;
        mended.settle();
        assert_eq!(mended.status().phase, Some(Phase::Created), "{ran}");

        world.job.spec.suspend = false;
        world.settle();
        let status = world.status();
        assert_eq!(status.phase, Some(Phase::Failed), "{ran}");
        assert_eq!(status.reason.as_deref(), Some("InvalidSpec"), "{ran}");
        assert!(world.pods.is_empty());
    }
}

#[test]
fn a_job_is_not_said_to_be_held_while_the_server_may_have_pods_that_no_watch_has_shown() {
    let mut world = running();
    world.job.spec.suspend = true;
    world.settle();
    let unseen = world.pods.clone();
    world.pods.clear();
    let step = world.look();
    assert_ne!(step.status.phase, Some(Phase::Suspended));
    let mut asked = step.ask;
    asked.sort();
    let all: Vec<_> = unseen.keys().cloned().collect();
    assert_eq!(asked, all);

    world.asked = asked.into_iter().map(|name| (name, false)).collect();
    assert_eq!(world.look().status.phase, Some(Phase::Suspended));
}

#[test]
fn a_held_job_that_has_a_pod_after_all_does_not_say_that_none_is_left() {
    let mut world = running();
    let unseen = world.pods.clone();
    world.pods.clear();
    world.job.spec.suspend = true;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Suspended));
    world.pods = unseen;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert!(world.pods.values().all(|pod| pod.deleting));
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Suspended));
}

#[test]
fn an_end_that_stands_in_a_condition_only_is_told_by_the_phase_too() {
    for (type_, phase) in [
        (ConditionType::Succeeded, Phase::Succeeded),
        (ConditionType::Failed, Phase::Failed),
    ] {
        let mut world = running();
        let status = world.job.status.as_mut().unwrap();
        let by_hand = Reason::Ended;
        let time = Time(world.now);
        set_condition(
            &mut status.conditions,
            type_,
            true,
            by_hand,
            "by hand",
            None,
            &time,
        );
        world.settle();
        assert_eq!(world.status().phase, Some(phase));
        assert!(world.status().completion_time.is_some());
    }
}

#[test]
fn a_held_job_does_not_say_that_it_runs_while_its_pods_go() {
    let mut world = running();
    world.job.spec.suspend = true;
    world.settle();
    world.pods.remove(COORDINATOR);
    world.settle();
    assert!(!world.pods.is_empty(), "some take their time");
    let status = world.status();
    assert_eq!(status.phase, Some(Phase::Created));
    assert_eq!(status.start_time, None);
    let before = world.now;
    world.now += SignedDuration::from_secs(3600);
    world.job.spec.suspend = false;
    world.settle();
    let began = world.status().start_time.as_ref().unwrap().0;
    assert_eq!(
        began.duration_since(before).as_secs(),
        3600,
        "its time starts anew"
    );
}

#[test]
fn a_coordinator_whose_deletion_failed_when_its_job_was_held_does_not_go_on_after() {
    let mut world = running();
    let old = world.pods[COORDINATOR].uid.clone();
    world.job.spec.suspend = true;
    // What follows is never done.
    world.job.status = Some(world.look().status);
    world.job.spec.suspend = false;
    world.settle();
    assert!(world.pods[COORDINATOR].deleting);
    // It may still say how it ended, which says nothing of the job.
    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    world.run(COORDINATOR);
    world.settle();
    assert_ne!(world.pods[COORDINATOR].uid, old);
    assert_eq!(world.status().phase, Some(Phase::Running));
    world.exit(COORDINATOR, 1, "Error");
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Failed));
}

#[test]
fn a_coordinator_that_ended_and_went_before_anybody_looked_has_ended_its_job() {
    for (code, deleting, policy, ends) in [
        (0, true, CleanPodPolicy::Running, Some(Phase::Succeeded)),
        (0, false, CleanPodPolicy::All, Some(Phase::Succeeded)),
        (1, false, CleanPodPolicy::All, Some(Phase::Failed)),
        // It was told to go, so another takes its place.
        (1, true, CleanPodPolicy::Running, None),
    ] {
        let mut world = running();
        world.job.spec.clean_pod_policy = policy;
        world.exit(COORDINATOR, code, "");
        let mut gone = world.pods.remove(COORDINATOR).unwrap();
        gone.deleting = deleting;
        world.gone = Some(gone);
        world.settle();
        let phase = world.status().phase;
        assert_eq!(
            phase.filter(|phase| phase.is_terminal()),
            ends,
            "{code} {deleting}"
        );
        assert_eq!(world.pods.contains_key(COORDINATOR), ends.is_none());
    }
}
