//! The counts of the status.

use di_api::{DIJobStatus, ReplicaCounts, Role, names};
use di_plan::Stage;
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
    let wanted = |status: &DIJobStatus, roles: &[Role]| {
        status
            .plan
            .iter()
            .filter(|entry| entry.is_wanted() && roles.contains(&entry.role))
            .map(|entry| entry.name.clone())
            .collect::<Vec<_>>()
    };
    let ready = |names: &[String]| {
        names
            .iter()
            .filter(|name| seen.pod(name).is_some_and(|pod| pod.ready))
            .count()
    };
    let collectors = wanted(status, &[Role::Collector]);
    let learners = wanted(status, &[Role::Learner, Role::Aggregator]);
    status.collectors = count(collectors.len());
    status.learners = count(learners.len());
    status.collectors_ready = Some(format!("{}/{}", ready(&collectors), collectors.len()));
    status.learners_ready = Some(format!("{}/{}", ready(&learners), learners.len()));
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
