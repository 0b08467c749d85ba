//! Replica counts of the status.

use di_api::{DIJob, DIJobStatus, PlanEntry, ReplicaCounts, Role, names};
use di_plan::{Stage, is_ready};
use kube::ResourceExt;

use super::observed::Observed;

pub(super) fn set_counts(observed: &Observed, status: &mut DIJobStatus) {
    status.replica_status.clear();
    for pod in observed.own_pods() {
        let Some(role) = pod.role else { continue };
        let counts: &mut ReplicaCounts = status
            .replica_status
            .entry(role.status_key().to_owned())
            .or_default();
        match pod.stage() {
            Stage::Pending => counts.pending += 1,
            Stage::Active => counts.active += 1,
            Stage::Succeeded => counts.succeeded += 1,
            Stage::Failed => counts.failed += 1,
        }
    }
    let plan = &status.plan;
    // A terminating pod does not count, though it may still respond.
    let pod_is_ready = |name: &str| {
        let pod = observed.own_pod(name);
        pod.is_some_and(|pod| pod.ready && !pod.deleting)
    };
    let is_ready = |entry: &&PlanEntry| is_ready(plan, entry, pod_is_ready);
    let [collectors, learners] = [Role::Collector, Role::Learner].map(|role| {
        let counts = |e: &&PlanEntry| e.is_wanted() && e.counts_as(role);
        let wanted: Vec<_> = plan.iter().filter(counts).collect();
        let ready = wanted.iter().copied().filter(is_ready).count();
        let done = wanted.iter().filter(|entry| entry.done).count();
        (wanted.len(), describe_readiness(ready, wanted.len(), done))
    });
    status.collectors = saturating_i32(collectors.0);
    status.learners = saturating_i32(learners.0);
    status.collectors_ready = Some(collectors.1);
    status.learners_ready = Some(learners.1);
    status.selector = Some(collector_selector(&observed.job));
    status.observed_generation = observed.job.metadata.generation;
}

/// Selects the collectors, and of units their leaders.
fn collector_selector(job: &DIJob) -> String {
    let (job_label, role_label) = (names::labels::JOB, names::labels::ROLE);
    let role = Role::Collector.label();
    let all = format!("{job_label}={},{role_label}={role}", job.name_any());
    match job.spec.unit(Role::Collector) {
        Some(_) => format!("{all},{}=0", names::labels::UNIT_INDEX),
        None => all,
    }
}

fn describe_readiness(ready: usize, wanted: usize, done: usize) -> String {
    match done {
        0 => format!("{ready}/{wanted}"),
        _ => format!("{ready}/{wanted} ({done} done)"),
    }
}

fn saturating_i32(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
