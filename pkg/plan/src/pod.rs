//! The pods of a job.

use di_api::{DIJob, PlanEntry, PodTemplate};

use crate::{
    build::{BuildSettings, NewPod, build_placed_pod},
    gang::add_to_gang,
};

/// Builds the pod of a plan entry; `None` if the role has no template.
///
/// `aggregator` is the template of aggregators, which the job does not contain.
pub fn build_pod(
    job: &DIJob,
    entry: &PlanEntry,
    aggregator: Option<&PodTemplate>,
    settings: &BuildSettings,
) -> Option<NewPod> {
    let mut pod = build_placed_pod(job, entry, aggregator, settings)?;
    let has_gang = job
        .status
        .as_ref()
        .is_some_and(|status| status.scheduling.is_some());
    if let Some(scheduler) = settings.gang.as_ref().filter(|_| has_gang) {
        add_to_gang(&mut pod, job, entry, aggregator, scheduler);
    }
    Some(pod)
}
