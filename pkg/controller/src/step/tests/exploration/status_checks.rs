//! Checks that the status matches the existing pods.

use std::collections::BTreeMap;

use di_api::{Phase, ReplicaCounts, Role};
use di_cache::QueueApi;
use di_plan::{PodPhase, PodView, Stage};

use super::{Model, wanted_names};
use crate::step::tests::fake_cluster::COORDINATOR;

/// Counts pods by role and stage, as in the status.
fn count_pods<'a>(pods: impl Iterator<Item = &'a PodView>) -> BTreeMap<String, ReplicaCounts> {
    let mut all: BTreeMap<String, ReplicaCounts> = BTreeMap::new();
    for pod in pods {
        let counts = all
            .entry(pod.role.unwrap().status_key().to_owned())
            .or_default();
        *match pod.stage() {
            Stage::Pending => &mut counts.pending,
            Stage::Active => &mut counts.active,
            Stage::Succeeded => &mut counts.succeeded,
            Stage::Failed => &mut counts.failed,
        } += 1;
    }
    all
}

/// Returns the correct phases of an active job with this coordinator.
fn expected_phases(coordinator: Option<&PodView>) -> &'static [Option<Phase>] {
    const NO_COORDINATOR: &[Option<Phase>] = &[None, Some(Phase::Created)];
    match coordinator {
        Some(pod) if pod.phase == PodPhase::Unknown => &[Some(Phase::Unknown)],
        Some(pod) if pod.deleting => NO_COORDINATOR,
        Some(pod) if pod.stage() == Stage::Active => &[Some(Phase::Running)],
        Some(_) => &[Some(Phase::Created)],
        None => NO_COORDINATOR,
    }
}

/// Checks the status after a reconcile with current caches that had nothing left to do.
pub(super) fn check_status(model: &Model) {
    let status = model.status();
    let own = || model.own_pods();
    assert_eq!(status.replica_status, count_pods(own()));
    let collectors = wanted_names(&status.plan, Role::Collector);
    let is_ready =
        |pod: &&PodView| pod.ready && !pod.deleting && collectors.contains(pod.name.as_str());
    let ready = own().filter(is_ready);
    let ready = format!("{}/{}", ready.count(), collectors.len());
    let done = status.plan.iter();
    let done = done.filter(|e| e.done && collectors.contains(e.name.as_str()));
    let ready = match done.count() {
        0 => ready,
        done => format!("{ready} ({done} done)"),
    };
    assert_eq!(status.collectors_ready.as_deref(), Some(ready.as_str()));
    if status.phase.is_some_and(Phase::is_terminal) {
        return;
    }
    let coordinator = own().find(|pod| pod.name == COORDINATOR);
    if model.job.spec.suspend {
        let is_suspended = status.phase == Some(Phase::Suspended);
        assert_eq!(is_suspended, own().next().is_none(), "{:?}", status.phase);
    } else if model.waits_in_queue() {
        // The phase stays until it is known whether Kueue can be used.
        if model.queue().api != QueueApi::Unknown {
            let is_queued = status.phase == Some(Phase::Queued);
            assert_eq!(is_queued, own().next().is_none(), "{:?}", status.phase);
        }
    } else {
        let phases = expected_phases(coordinator);
        assert!(phases.contains(&status.phase), "{:?}", status.phase);
    }
}
