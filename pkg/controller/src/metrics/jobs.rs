use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
};

use di_api::{Phase, Reason};
use di_cache::WatchedJob;
use kube::runtime::reflector::Store;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::MetricType,
};

/// Jobs by phase and reason, counted when somebody asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jobs(Arc<OnceLock<Store<WatchedJob>>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct Labels {
    phase: &'static str,
    reason: &'static str,
}

/// The phase of jobs that have none yet.
const NONE: &str = "None";
/// A reason that is none of ours, so that nobody who writes to a status makes further series.
const OTHER: &str = "Other";

impl Jobs {
    /// Has these counted from now on; none are before, as where another process leads.
    pub fn follow(&self, jobs: Store<WatchedJob>) {
        // Only one reconciler ever runs in a process.
        self.0.set(jobs).ok();
    }

    fn count(&self) -> BTreeMap<Labels, i64> {
        let phases = [NONE].into_iter().chain(Phase::ALL.map(Phase::as_str));
        let none = |phase| (Labels { phase, reason: "" }, 0);
        let mut counts: BTreeMap<_, _> = phases.map(none).collect();
        let jobs = self.0.get().map(Store::state).unwrap_or_default();
        for labels in jobs.iter().filter_map(|job| labels(job)) {
            *counts.entry(labels).or_default() += 1;
        }
        counts
    }
}

/// Nothing for what is going, or cannot be read.
fn labels(job: &WatchedJob) -> Option<Labels> {
    let job = job.0.as_ref().ok()?;
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = job.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref());
    let known = |word| Reason::among(Reason::ALL, word).map_or(OTHER, Reason::as_str);
    Some(Labels {
        phase: status
            .and_then(|status| status.phase)
            .map_or(NONE, Phase::as_str),
        reason: reason.map_or("", known),
    })
}

impl Collector for Jobs {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Jobs by phase and reason.";
        let mut family = encoder.encode_descriptor("jobs", help, None, MetricType::Gauge)?;
        for (labels, count) in self.count() {
            family.encode_family(&labels)?.encode_gauge(&count)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher::Event};
    use serde_json::{Value, json};

    use super::*;

    fn job(name: &str, status: &Value) -> WatchedJob {
        let going = (name == "going").then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": name, "namespace": "ns", "deletionTimestamp": going},
            "spec": {"coordinator": {"template": {}}}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn jobs_are_counted_by_phase_and_reason() {
        let jobs = Jobs::default();
        let counted = |phase, reason| jobs.count().get(&Labels { phase, reason }).copied();
        assert_eq!(counted("Running", ""), Some(0), "another leads");
        assert_eq!(jobs.count().len(), 7);

        let (reader, mut writer) = reflector::store();
        writer.apply_watcher_event(&Event::Init);
        for (name, status) in [
            ("new", json!(null)),
            ("refused", json!({"reason": "QuotaExceeded"})),
            ("one", json!({"phase": "Running"})),
            ("two", json!({"phase": "Running"})),
            (
                "stuck",
                json!({"phase": "Running", "reason": "Unschedulable"}),
            ),
            ("forged", json!({"phase": "Failed", "reason": "whatever"})),
            ("unreadable", json!({"phase": 7})),
            ("going", json!({})),
        ] {
            writer.apply_watcher_event(&Event::InitApply(job(name, &status)));
        }
        writer.apply_watcher_event(&Event::InitDone);
        jobs.follow(reader);
        for (phase, reason, count) in [
            ("None", "", 1),
            ("None", "QuotaExceeded", 1),
            ("Running", "", 2),
            ("Running", "Unschedulable", 1),
            ("Failed", "Other", 1),
        ] {
            assert_eq!(counted(phase, reason), Some(count), "{phase} {reason}");
        }
        assert_eq!(jobs.count().values().sum::<i64>(), 6);
    }
}
