//! The existing Workloads of a job.

use di_api::PlanEntry;
use di_plan::{WorkloadView, job_object_name, replica_workload_name};
use kube::ResourceExt;

use super::super::{
    observed::Observed,
    outcome::{Action, Step},
};

/// Name of the Workload of the coordinator and the declared replicas.
pub(super) fn base_name(observed: &Observed) -> String {
    job_object_name(&observed.job.name_any(), observed.job_uid())
}

/// Workloads of the job that are not being deleted.
pub(super) fn own_workloads(observed: &Observed) -> impl Iterator<Item = &WorkloadView> {
    let uid = observed.job_uid();
    let all = observed.queue.workloads.iter();
    all.filter(move |workload| workload.owner.as_deref() == Some(uid) && !workload.deleting)
}

/// The Workload of a replica with quota of its own.
pub(super) fn workload_of<'a>(
    observed: &'a Observed,
    owner: &PlanEntry,
) -> Option<&'a WorkloadView> {
    let name = replica_workload_name(&base_name(observed), owner);
    own_workloads(observed).find(|workload| workload.name == name)
}

/// Whether a Workload of this name exists, also one of another owner or one that is being deleted.
pub(super) fn is_name_taken(observed: &Observed, name: &str) -> bool {
    let mut all = observed.queue.workloads.iter();
    all.any(|workload| workload.name == name)
}

/// Deletes the Workloads of the job that `is_deleted` selects.
pub(super) fn delete_workloads(
    observed: &Observed,
    step: &mut Step,
    is_deleted: impl Fn(&WorkloadView) -> bool,
) {
    let deleted = own_workloads(observed).filter(|workload| is_deleted(workload));
    step.actions.extend(deleted.map(Action::delete_workload));
}

/// Takes the quota from all replicas of a job that is stopped.
pub(super) fn clear_quota(step: &mut Step) {
    step.status.queueing = None;
    for entry in &mut step.status.plan {
        (entry.queue, entry.placement) = (None, None);
    }
}
