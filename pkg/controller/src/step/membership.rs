//! The membership: the replicas that the plan records as listed, and their generation. See
//! docs/decisions/0039.

use di_api::DIJobStatus;
use di_plan::{Job, next_generation, record_members};

use super::observed::Observed;

/// Records which replicas are listed, and counts the change of their set. A job that may have no
/// pods lists none.
pub(super) fn record_membership(observed: &Observed, status: &mut DIJobStatus) {
    // A job that ended under an older version is not written again.
    if status.membership_generation.is_none() && status.has_ended() {
        return;
    }
    let job = &*observed.job;
    let is_queued = job.queue_name().is_some() && status.queueing.is_none();
    if job.spec.suspend || is_queued || status.has_ended() {
        for entry in &mut status.plan {
            entry.listed = false;
        }
    } else {
        record_members(job, &mut status.plan, |name| observed.own_pod(name));
    }
    let generation = status.membership_generation.unwrap_or(0);
    let generation = next_generation(job.plan_entries(), &mut status.plan, generation);
    status.membership_generation = Some(generation);
}
