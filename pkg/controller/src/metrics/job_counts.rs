//! Number of jobs by phase and reason, counted at each scrape.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use di_api::{Phase, Reason};
use di_cache::WatchedJob;
use kube::runtime::reflector::Store;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::MetricType,
};

/// Collector of the number of jobs by phase and reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobCounts(Arc<RwLock<Option<Store<WatchedJob>>>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct JobLabels {
    phase: &'static str,
    reason: &'static str,
}

/// Label value of jobs without a phase.
const NO_PHASE: &str = "None";
/// Label value of unknown reasons. It bounds the number of series, as any client may write a
/// status.
const OTHER_REASON: &str = "Other";

impl JobCounts {
    /// Sets the jobs to count. Before, the counts are 0, as in a process that does not lead.
    pub fn set_store(&self, jobs: Store<WatchedJob>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(jobs);
    }

    fn count_jobs(&self) -> BTreeMap<JobLabels, i64> {
        let phases = [NO_PHASE].into_iter().chain(Phase::ALL.map(Phase::as_str));
        let zero = |phase| (JobLabels { phase, reason: "" }, 0);
        let mut counts: BTreeMap<_, _> = phases.map(zero).collect();
        let jobs = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let jobs = jobs.as_ref().map(Store::state).unwrap_or_default();
        for labels in jobs.iter().filter_map(|job| labels_of(job)) {
            *counts.entry(labels).or_default() += 1;
        }
        counts
    }
}

/// Returns `None` for a job that is being deleted, or cannot be decoded.
fn labels_of(job: &WatchedJob) -> Option<JobLabels> {
    let job = job.0.as_ref().ok()?;
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = job.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref());
    let known = |word| Reason::find_in(Reason::ALL, word).map_or(OTHER_REASON, Reason::as_str);
    Some(JobLabels {
        phase: status
            .and_then(|status| status.phase)
            .map_or(NO_PHASE, Phase::as_str),
        reason: reason.map_or("", known),
    })
}

impl Collector for JobCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Number of jobs by phase and reason.";
        let mut family = encoder.encode_descriptor("jobs", help, None, MetricType::Gauge)?;
        for (labels, count) in self.count_jobs() {
            family.encode_family(&labels)?.encode_gauge(&count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use di_fixtures::Job;
    use kube::runtime::{reflector, watcher::Event};
    use serde_json::{Value, json};

    use super::*;

    fn job(name: &str, status: &Value) -> WatchedJob {
        let deleted_at = (name == "deleted").then_some("2026-01-01T00:00:00Z");
        let job = Job::test().named(name).status(status.clone());
        job.metadata(json!({"deletionTimestamp": deleted_at}))
            .build()
    }

    #[test]
    fn jobs_are_counted_by_phase_and_reason() {
        let jobs = JobCounts::default();
        let counted = |phase, reason| jobs.count_jobs().get(&JobLabels { phase, reason }).copied();
        assert_eq!(counted("Running", ""), Some(0), "another process leads");
        assert_eq!(jobs.count_jobs().len(), 8);

        let (reader, mut writer) = reflector::store();
        writer.apply_watcher_event(&Event::Init);
        for (name, status) in [
            ("new", json!(null)),
            ("rejected", json!({"reason": "QuotaExceeded"})),
            ("one", json!({"phase": "Running"})),
            ("two", json!({"phase": "Running"})),
            (
                "stuck",
                json!({"phase": "Running", "reason": "Unschedulable"}),
            ),
            ("forged", json!({"phase": "Failed", "reason": "Forged"})),
            ("unreadable", json!({"phase": 7})),
            ("deleted", json!({})),
        ] {
            writer.apply_watcher_event(&Event::InitApply(job(name, &status)));
        }
        writer.apply_watcher_event(&Event::InitDone);
        jobs.set_store(reader);
        for (phase, reason, count) in [
            ("None", "", 1),
            ("None", "QuotaExceeded", 1),
            ("Running", "", 2),
            ("Running", "Unschedulable", 1),
            ("Failed", "Other", 1),
        ] {
            assert_eq!(counted(phase, reason), Some(count), "{phase} {reason}");
        }
        assert_eq!(jobs.count_jobs().values().sum::<i64>(), 6);

        // A process that leads again has a new store.
        let (reader, _writer) = reflector::store();
        jobs.set_store(reader);
        assert_eq!(jobs.count_jobs().values().sum::<i64>(), 0);
    }
}
