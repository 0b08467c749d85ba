//! The pods of a job.

use di_api::{DIJob, PlanEntry, PodTemplate};

use crate::{
    build::{BuildSettings, NewPod, build_placed_pod},
    gang::Gang,
};

/// Builds pods of a job. The gang is the same for all of them.
#[derive(Debug)]
pub struct PodBuilder<'a> {
    job: &'a DIJob,
    aggregator: Option<&'a PodTemplate>,
    settings: &'a BuildSettings,
    gang: Option<Gang<'a>>,
}

impl<'a> PodBuilder<'a> {
    /// A builder of the pods of this job.
    ///
    /// `aggregator` is the template of aggregators, which the job does not contain.
    pub fn new(
        job: &'a DIJob,
        aggregator: Option<&'a PodTemplate>,
        settings: &'a BuildSettings,
    ) -> Self {
        let status = job.status.as_ref();
        let has_gang = status.is_some_and(|status| status.scheduling.is_some());
        let scheduler = settings.gang.as_ref().filter(|_| has_gang);
        Self {
            job,
            aggregator,
            settings,
            gang: scheduler.map(|scheduler| Gang::new(job, aggregator, scheduler)),
        }
    }

    /// Builds the pod of a plan entry; `None` if the role has no template.
    pub fn build_pod(&self, entry: &PlanEntry) -> Option<NewPod> {
        let mut pod = build_placed_pod(self.job, entry, self.aggregator, self.settings)?;
        if let Some(gang) = &self.gang {
            gang.add_pod(&mut pod, entry);
        }
        Some(pod)
    }
}

/// Builds one pod, like [`PodBuilder::build_pod`].
pub fn build_pod(
    job: &DIJob,
    entry: &PlanEntry,
    aggregator: Option<&PodTemplate>,
    settings: &BuildSettings,
) -> Option<NewPod> {
    PodBuilder::new(job, aggregator, settings).build_pod(entry)
}
