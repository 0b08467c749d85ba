//! Checks that the status matches the existing pods.

use std::collections::{BTreeMap, BTreeSet};

use di_api::{DIJob, DIJobStatus, Phase, PlanEntry, ReplicaCounts, Role};
use di_cache::QueueApi;
use di_plan::{PodPhase, PodView, Stage, wanted_members};

use super::Model;
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

/// Checks that the generation of the membership counts the changes of the listed replicas.
pub(super) fn check_membership(job: &DIJob, status: &DIJobStatus) {
    let listed = |status: &DIJobStatus| -> BTreeSet<String> {
        let listed = status.plan.iter().filter(|entry| entry.listed);
        listed.map(|entry| entry.name.clone()).collect()
    };
    let before = job.status.clone().unwrap_or_default();
    let is_changed = listed(&before) != listed(status);
    if let Some(generation) = status.membership_generation {
        let known = before.membership_generation.unwrap_or(0);
        assert_eq!(generation, known + i64::from(is_changed));
    } else {
        assert!(!is_changed);
    }
    if job.metadata.deletion_timestamp.is_none() {
        assert!(
            status
                .plan
                .iter()
                .all(|entry| entry.is_wanted() || !entry.listed)
        );
        assert!(!job.spec.suspend || listed(status).is_empty());
    }
}

/// Checks that each listed unit is complete: the pods that the step saw have nodes and run.
pub(super) fn check_listed_units(
    job: &DIJob,
    status: &DIJobStatus,
    pods: &BTreeMap<String, PodView>,
) {
    if job.metadata.deletion_timestamp.is_some() {
        return;
    }
    let listed = status.plan.iter().filter(|entry| entry.listed);
    for leader in listed.filter(|entry| entry.is_in_unit()) {
        let members: Vec<_> = wanted_members(&status.plan, &leader.name).collect();
        let places: BTreeSet<_> = members
            .iter()
            .map(|entry| entry.unit.as_ref().unwrap().index)
            .collect();
        let size = leader.unit.as_ref().unwrap().size;
        assert_eq!(i32::try_from(places.len() + 1), Ok(size), "{leader:?}");
        for entry in members.into_iter().chain([leader]) {
            let runs = |pod: &PodView| pod.end.is_none() && !pod.deleting;
            let pod = pods.get(&entry.name).filter(|pod| runs(pod));
            let has_node = pod.is_some_and(|pod| pod.scheduled == Ok(true));
            assert!(has_node, "{} of a listed unit", entry.name);
        }
    }
}

/// Checks the status after a reconcile with current caches that had nothing left to do.
pub(super) fn check_status(model: &Model) {
    let status = model.status();
    let own = || model.own_pods();
    assert_eq!(status.replica_status, count_pods(own()));
    let ready: BTreeSet<&str> = own()
        .filter(|pod| pod.ready && !pod.deleting)
        .map(|pod| pod.name.as_str())
        .collect();
    let counts = |e: &&PlanEntry| e.is_wanted() && e.is_replica() && e.role == Role::Collector;
    let collectors = || status.plan.iter().filter(counts);
    let is_ready = |replica: &&PlanEntry| {
        let size = replica.unit.as_ref().map_or(1, |place| place.size);
        let members = wanted_members(&status.plan, &replica.name);
        let pods = members.chain([*replica]);
        let ready_pods = pods.filter(|entry| ready.contains(&*entry.name)).count();
        i32::try_from(ready_pods) == Ok(size)
    };
    let done = collectors().filter(|entry| entry.done);
    let ready = format!(
        "{}/{}",
        collectors().filter(is_ready).count(),
        collectors().count()
    );
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
