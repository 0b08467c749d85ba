use di_api::{Origin, PlanEntry, names};
use di_plan::leader_of;

use crate::Job;

/// Finds the plan entry of a pod name. The job name may be left out.
///
/// For a ddp learner this is the entry of its aggregator, for another pod of a unit that of its
/// leader.
pub(crate) fn find_entry_of_pod<'a>(job: &'a Job, pod: &str) -> Result<&'a PlanEntry, String> {
    let pod = pod.strip_prefix("pod/").unwrap_or(pod);
    let plan = &job.status.plan;
    let coordinator = names::coordinator_name(job.name());
    let long = format!("{}-{pod}", job.name());
    let is_known = |name: &str| {
        let mut all = plan
            .iter()
            .flat_map(|e| e.replaces.iter().chain([&e.name]))
            .chain([&coordinator]);
        all.any(|known| known == name)
    };
    let pod = if is_known(&long) && !is_known(pod) {
        &long
    } else {
        pod
    };
    let find = |name: &str| plan.iter().find(|entry| entry.name == name);
    let entry = find(pod).map(|entry| leader_of(entry).and_then(find).unwrap_or(entry));
    if let Some(entry) = entry.filter(|entry| entry.is_wanted()) {
        return Ok(entry);
    }
    let successor = plan.iter().find(|e| e.replaces.as_deref() == Some(pod));
    Err(match (entry, successor) {
        (_, Some(next)) => format!("replica {pod} has been replaced by {}", next.name),
        (Some(_), None) => format!("replica {pod} is being removed already"),
        (None, None) if pod == coordinator => format!(
            "{pod} is the coordinator; to restart it: kubectl di restart {}",
            job.name()
        ),
        (None, None) => format!("job {:?} has no replica {pod:?}", job.name()),
    })
}

/// Finds the plan entry of a pod name, which must be declared in the spec.
pub(crate) fn find_declared_entry<'a>(job: &'a Job, pod: &str) -> Result<&'a PlanEntry, String> {
    let entry = find_entry_of_pod(job, pod)?;
    if entry.origin == Origin::Requested {
        return Err(format!(
            "replica {pod} was requested through the replica endpoint or adopted, and only the endpoint removes it; to replace it: kubectl di replicas restart {} {pod}",
            job.name()
        ));
    }
    Ok(entry)
}
