//! What a status may say of the pods that are there.

use std::collections::BTreeMap;

use di_api::{Phase, ReplicaCounts, Role};
use di_plan::{PodPhase, PodView, Stage};

use super::{Model, wanted};
use crate::step::tests::world::COORDINATOR;

/// Pods by role and stage, as the status tells of them.
fn counted<'a>(pods: impl Iterator<Item = &'a PodView>) -> BTreeMap<String, ReplicaCounts> {
    let mut all: BTreeMap<String, ReplicaCounts> = BTreeMap::new();
    for pod in pods {
        let counts = all.entry(pod.role.unwrap().key().to_owned()).or_default();
        *match pod.stage() {
            Stage::Pending => &mut counts.pending,
            Stage::Active => &mut counts.active,
            Stage::Succeeded => &mut counts.succeeded,
            Stage::Failed => &mut counts.failed,
        } += 1;
    }
    all
}

/// Phases that tell the truth of a job that goes on and has this coordinator.
fn phases(coordinator: Option<&PodView>) -> &'static [Option<Phase>] {
    const NOT_THERE: &[Option<Phase>] = &[None, Some(Phase::Created)];
    match coordinator {
        Some(pod) if pod.phase == PodPhase::Unknown => &[Some(Phase::Unknown)],
        Some(pod) if pod.deleting => NOT_THERE,
        Some(pod) if pod.stage() == Stage::Active => &[Some(Phase::Running)],
        Some(_) => &[Some(Phase::Created)],
        None => NOT_THERE,
    }
}

/// Whoever has seen all and rests has told of it as it is.
pub(super) fn check_told(model: &Model) {
    let status = model.status();
    let own = || model.own_pods();
    assert_eq!(status.replica_status, counted(own()));
    let collectors = wanted(&status.plan, Role::Collector);
    let is_ready =
        |pod: &&PodView| pod.ready && !pod.deleting && collectors.contains(pod.name.as_str());
    let ready = own().filter(is_ready);
    let ready = format!("{}/{}", ready.count(), collectors.len());
    assert_eq!(status.collectors_ready.as_deref(), Some(ready.as_str()));
    if status.phase.is_some_and(Phase::is_terminal) {
        return;
    }
    let coordinator = own().find(|pod| pod.name == COORDINATOR);
    if model.job.spec.suspend {
        let held = status.phase == Some(Phase::Suspended);
        assert_eq!(held, own().next().is_none(), "{:?}", status.phase);
    } else {
        let phases = phases(coordinator);
        assert!(phases.contains(&status.phase), "{:?}", status.phase);
    }
}
