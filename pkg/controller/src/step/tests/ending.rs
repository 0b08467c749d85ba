//! Tests of the end of a job, its clean-up, and suspension.

use std::time::Duration;

use di_api::{CleanPodPolicy, ConditionType, Phase, Reason, Role, find_condition, set_condition};
use jiff::SignedDuration;
use serde_json::json;

use super::*;

#[test]
fn end_is_written_before_clean_up() {
    let mut world = running();
    world.exit(COORDINATOR, 0, "Completed");
    let step = world.compute_step();
    assert_eq!(step.status.phase, Some(Phase::Succeeded));
    assert_ne!(
        world.job.status.as_ref(),
        Some(&step.status),
        "the reconciler writes it first"
    );
}

#[test]
fn f1_ended_job_never_runs_again() {
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
        // Also if only the phase is lost.
        world.job.status.as_mut().unwrap().phase = None;
        world.settle();
        assert!(world.pods.is_empty(), "{policy:?}");
    }
}

#[test]
fn deadline_fails_job_and_ttl_deletes_it() {
    let mut world = running();
    world.job.spec.active_deadline_seconds = Some(60);
    world.job.spec.ttl_seconds_after_finished = Some(30);
    assert_eq!(
        world.compute_step().requeue_after,
        Some(Duration::from_secs(60))
    );
    world.now += SignedDuration::from_secs(60);
    world.settle();
    assert_eq!(world.status().reason.as_deref(), Some("DeadlineExceeded"));
    assert!(!world.job_deleted);
    world.remove_terminating_pods();
    world.now += SignedDuration::from_secs(30);
    world.settle();
    assert!(world.job_deleted);
}

#[test]
fn unscheduled_coordinator_is_deleted_at_deadline() {
    for (policy, is_kept) in [
        (CleanPodPolicy::None, true),
        (CleanPodPolicy::Running, false),
        (CleanPodPolicy::All, false),
    ] {
        let mut world = World::new(job());
        world.job.spec.clean_pod_policy = policy;
        world.job.spec.active_deadline_seconds = Some(60);
        world.settle();
        world.pods.get_mut(COORDINATOR).unwrap().scheduled = Err("no room".into());
        world.settle();
        world.now += SignedDuration::from_secs(60);
        world.settle();
        assert_eq!(world.status().reason.as_deref(), Some("DeadlineExceeded"));
        // Without a node no kubelet can stop it.
        let pod = &world.pods[COORDINATOR];
        assert_eq!((pod.deleting, pod.deadline_requested), (!is_kept, false));
        world.remove_terminating_pods();
        world.settle();
        assert_eq!(world.pods.contains_key(COORDINATOR), is_kept, "{policy:?}");
        assert!(world.services.is_empty());
    }
}

#[test]
fn suspended_job_has_no_pods_and_resumes_with_its_plan() {
    let mut world = running();
    let plan = world.wanted(Role::Collector);
    world.job.spec.suspend = true;
    world.settle();
    assert_ne!(
        world.status().phase,
        Some(Phase::Suspended),
        "not before its pods are gone"
    );
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Suspended));
    assert!(world.services.is_empty());
    world.job.spec.suspend = false;
    let first = world.compute_step().status;
    let running = find_condition(&first.conditions, ConditionType::Running).unwrap();
    assert_eq!(running.reason, "CoordinatorPending", "it is resumed");
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert_eq!(world.wanted(Role::Collector), plan);
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn job_resumed_while_pods_terminate_keeps_their_names() {
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
    let ready = find_condition(&world.status().conditions, ConditionType::ReplicasReady);
    assert_eq!(ready.unwrap().status, "False");

    // The pods terminate one after the other.
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
fn suspended_coordinator_with_exit_code_0_does_not_end_job() {
    // The job is resumed before or after the pod is gone.
    for resumed_early in [false, true] {
        let mut world = running();
        world.job.spec.suspend = true;
        world.settle();
        assert!(world.pods[COORDINATOR].deleting);
        if resumed_early {
            world.job.spec.suspend = false;
            world.settle();
        }
        world.exit(COORDINATOR, 0, "Completed");
        world.settle();
        assert!(
            !world.status().phase.unwrap().is_terminal(),
            "{resumed_early}"
        );
        world.remove_terminating_pods();
        world.job.spec.suspend = false;
        world.settle();
        assert_eq!(
            world.status().phase,
            Some(Phase::Created),
            "{resumed_early}"
        );
        assert_eq!(world.pods.len(), 4, "{resumed_early}");
    }
}

#[test]
fn coordinator_success_before_its_deletion_ends_job() {
    let mut world = running();
    world.job.spec.suspend = true;
    let step = world.compute_step();
    world.job.status = Some(step.status);
    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Succeeded));
}

#[test]
fn running_job_with_lost_status_is_not_validated_again() {
    let mut world = running();
    let coordinator = &mut world.job.spec.coordinator.template;
    coordinator.0["spec"]["containers"][0]["name"] = json!("main");
    world.job.status = None;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Running));
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn suspended_job_is_validated_when_resumed() {
    // The job ran before its spec became invalid, or was created suspended.
    for ran in [true, false] {
        let mut world = if ran { running() } else { World::new(job()) };
        if ran {
            world.suspend_and_settle();
        }
        let coordinator = &mut world.job.spec.coordinator.template;
        coordinator.0["spec"]["containers"][0]["name"] = json!("main");
        world.suspend_and_settle();
        assert!(world.pods.is_empty() && world.services.is_empty());

        let mut fixed = world.clone();
        let coordinator = &mut fixed.job.spec.coordinator.template;
        coordinator.0["spec"]["containers"][0]["name"] = json!("di-container");
        fixed.job.spec.suspend = false;
        fixed.settle();
        assert_eq!(fixed.status().phase, Some(Phase::Created), "{ran}");

        world.job.spec.suspend = false;
        world.settle();
        let status = world.status();
        assert_eq!(status.phase, Some(Phase::Failed), "{ran}");
        assert_eq!(status.reason.as_deref(), Some("InvalidSpec"), "{ran}");
        assert!(world.pods.is_empty());
    }
}

#[test]
fn job_is_suspended_only_after_live_reads_find_no_pod() {
    let mut world = running();
    world.job.spec.suspend = true;
    world.settle();
    let unseen = world.pods.clone();
    world.pods.clear();
    let step = world.compute_step();
    assert_ne!(step.status.phase, Some(Phase::Suspended));
    let mut unverified = step.needs_live_read;
    unverified.sort();
    let all: Vec<_> = unseen.keys().cloned().collect();
    assert_eq!(unverified, all);

    world.live_reads = unverified.into_iter().map(|name| (name, false)).collect();
    assert_eq!(world.compute_step().status.phase, Some(Phase::Suspended));
}

#[test]
fn suspended_job_with_late_pod_is_not_suspended() {
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
    world.remove_terminating_pods();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Suspended));
}

#[test]
fn end_condition_without_phase_sets_phase() {
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
fn suspending_job_is_created_while_pods_terminate() {
    let mut world = running();
    world.job.spec.suspend = true;
    world.settle();
    world.pods.remove(COORDINATOR);
    world.settle();
    assert!(!world.pods.is_empty(), "some pods still terminate");
    let status = world.status();
    assert_eq!(status.phase, Some(Phase::Created));
    assert_eq!(status.start_time, None);
    let before = world.now;
    world.now += SignedDuration::from_secs(3600);
    world.job.spec.suspend = false;
    world.settle();
    let start = world.status().start_time.as_ref().unwrap().0;
    assert_eq!(
        start.duration_since(before).as_secs(),
        3600,
        "the start time is reset"
    );
}

#[test]
fn coordinator_kept_by_failed_suspension_is_restarted() {
    let mut world = running();
    let old = world.pods[COORDINATOR].uid.clone();
    world.job.spec.suspend = true;
    // The actions of this step are never applied.
    world.job.status = Some(world.compute_step().status);
    world.job.spec.suspend = false;
    world.settle();
    assert!(world.pods[COORDINATOR].deleting);
    // Its exit code does not end the job.
    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    world.remove_terminating_pods();
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
fn coordinator_deleted_after_its_end_ends_job() {
    for (code, deleting, policy, ends) in [
        (0, true, CleanPodPolicy::Running, Some(Phase::Succeeded)),
        (0, false, CleanPodPolicy::All, Some(Phase::Succeeded)),
        (1, false, CleanPodPolicy::All, Some(Phase::Failed)),
        // It failed after its deletion, so it is replaced.
        (1, true, CleanPodPolicy::Running, None),
    ] {
        let mut world = running();
        world.job.spec.clean_pod_policy = policy;
        world.exit(COORDINATOR, code, "");
        let mut deleted = world.pods.remove(COORDINATOR).unwrap();
        deleted.deleting = deleting;
        world.final_coordinator_state = Some(deleted);
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
