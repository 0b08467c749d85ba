//! The counts of the status.

use di_api::{DIJobStatus, PlanEntry, ReplicaCounts, Role, names};
use di_plan::{Stage, is_ready};
use kube::ResourceExt;

use super::Observed;

pub(super) fn fill(seen: &Observed<'_>, status: &mut DIJobStatus) {
    status.replica_status.clear();
    for pod in seen.own_pods() {
        let Some(role) = pod.role else { continue };
        let counts: &mut ReplicaCounts = status
            .replica_status
            .entry(role.key().to_owned())
            .or_default();
        match pod.stage() {
            Stage::Pending => counts.pending += 1,
            Stage::Active => counts.active += 1,
            Stage::Succeeded => counts.succeeded += 1,
            Stage::Failed => counts.failed += 1,
        }
    }
    let plan = &status.plan;
    // One that goes is nobody's any more, though it may answer yet.
    let pod_is_ready = |name: &str| seen.pod(name).is_some_and(|pod| pod.ready && !pod.deleting);
    let ready = |entry: &&PlanEntry| is_ready(plan, entry, pod_is_ready);
    let [collectors, learners] = [Role::Collector, Role::Learner].map(|role| {
        let of_role = |e: &&PlanEntry| e.is_wanted() && e.role.counted_as() == role;
        let wanted: Vec<_> = plan.iter().filter(of_role).collect();
        (wanted.iter().copied().filter(ready).count(), wanted.len())
    });
    status.collectors = count(collectors.1);
    status.learners = count(learners.1);
    status.collectors_ready = Some(format!("{}/{}", collectors.0, collectors.1));
    status.learners_ready = Some(format!("{}/{}", learners.0, learners.1));
    status.selector = Some(format!(
        "{}={},{}={}",
        names::labels::JOB,
        seen.job.name_any(),
        names::labels::ROLE,
        Role::Collector.label()
    ));
    status.observed_generation = seen.job.metadata.generation;
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
