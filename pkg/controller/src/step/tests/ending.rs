//! The end, and what is left after it; a held job, too.

use std::time::Duration;

use di_api::{CleanPodPolicy, Phase, Role};
use di_plan::{End, PodPhase};
use jiff::SignedDuration;
use proptest::prelude::*;

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
fn an_ended_job_is_never_run_again() {
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
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert_eq!(world.wanted(Role::Collector), plan);
    assert_eq!(world.pods.len(), 4);
}

fn phases() -> impl Strategy<Value = (PodPhase, Option<i32>, bool)> {
    prop_oneof![
        Just((PodPhase::Pending, None, false)),
        Just((PodPhase::Running, None, false)),
        Just((PodPhase::Running, None, true)),
        Just((PodPhase::Running, Some(0), false)),
        Just((PodPhase::Running, Some(1), false)),
        Just((PodPhase::Succeeded, Some(0), false)),
        Just((PodPhase::Failed, Some(137), false)),
    ]
}

proptest! {
    /// What remains is exactly what the policy says, whatever state the pods were in when the job ended.
    #[test]
    fn what_remains_is_what_the_policy_says(
        policy in prop_oneof![Just(CleanPodPolicy::None), Just(CleanPodPolicy::Running), Just(CleanPodPolicy::All)],
        states in proptest::collection::vec(phases(), 3),
        succeeds in any::<bool>(),
        sidecar in any::<bool>(),
    ) {
        let mut world = running();
        world.job.spec.clean_pod_policy = policy;
        let workers: Vec<String> = world.pods.keys().filter(|n| *n != COORDINATOR).cloned().collect();
        for (name, (phase, code, deleting)) in workers.iter().zip(&states) {
            let pod = world.pods.get_mut(name).unwrap();
            pod.phase = *phase;
            pod.deleting = *deleting;
            pod.end = code.map(|code| End { exit_code: Some(code), reason: "x".into(), at: None });
        }
        world.exit(COORDINATOR, i32::from(!succeeds), "x");
        if sidecar {
            world.pods.get_mut(COORDINATOR).unwrap().phase = PodPhase::Running;
        }
        let before: Vec<String> = world.pods.values().filter(|p| !p.deleting).map(|p| p.name.clone()).collect();
        let over = |world: &World, n: &str| matches!(world.pods[n].phase, PodPhase::Succeeded | PodPhase::Failed);
        let expected: Vec<String> = before.into_iter().filter(|name| match policy {
            CleanPodPolicy::None => true,
            CleanPodPolicy::Running => name == COORDINATOR || over(&world, name),
            CleanPodPolicy::All => false,
        }).collect();
        world.settle();
        world.kubelet_ends_deleted();
        world.settle();
        prop_assert_eq!(world.pod_names(), expected);
        prop_assert!(world.services.is_empty());
        prop_assert_eq!(world.status().phase, Some(if succeeds { Phase::Succeeded } else { Phase::Failed }));
        let writes = world.status_writes;
        world.settle();
        prop_assert_eq!(writes, world.status_writes, "nothing is written when nothing changed");
    }
}
