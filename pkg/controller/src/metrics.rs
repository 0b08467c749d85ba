//! Prometheus metrics of the reconciler.

mod job_counts;

use std::time::Instant;

use di_api::{FailureAction, Reason, Role};
use di_cache::WatchErrors;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::Error;
use job_counts::JobCounts;

/// Metrics of the reconciler.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// 1 if this process leads, else 0.
    pub leader: Gauge,
    pub(crate) jobs: JobCounts,
    pub(crate) reconciles: Counter,
    pub(crate) failures: Family<ReasonLabel, Counter>,
    pub(crate) duration: Histogram,
    pub(crate) active: Gauge,
    pub(crate) max_concurrent: Gauge,
    pub(crate) writes: Family<WriteLabels, Counter>,
    pub(crate) events: Family<ReasonLabel, Counter>,
    pub(crate) queue_errors: Counter,
    pod_failures: Family<FailureLabels, Counter>,
    pub(crate) watch_errors: WatchErrors,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabel {
    pub reason: &'static str,
}

impl From<Reason> for ReasonLabel {
    fn from(reason: Reason) -> Self {
        Self {
            reason: reason.as_str(),
        }
    }
}

/// Labels of failures of pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    role: &'static str,
    reason: &'static str,
    action: &'static str,
}

impl FailureLabels {
    fn all() -> impl Iterator<Item = Self> {
        let actions = FailureAction::ALL.into_iter();
        let reasons = FAILURE_REASONS.into_iter().chain(["Other"]);
        let pairs =
            actions.flat_map(move |action| reasons.clone().map(move |reason| (reason, action)));
        pairs.flat_map(|(reason, action)| Role::ALL.map(|role| Self::new(role, reason, action)))
    }

    fn new(role: Role, reason: &str, action: FailureAction) -> Self {
        let known = FAILURE_REASONS.into_iter().find(|known| *known == reason);
        Self {
            role: role.label(),
            reason: known.unwrap_or("Other"),
            action: action.as_str(),
        }
    }
}

/// Reasons of failures in metrics. All others are `Other`: container runtimes define more reasons.
const FAILURE_REASONS: [&str; 9] = [
    "Error",
    "OOMKilled",
    "Evicted",
    "DeadlineExceeded",
    "StartError",
    "ContainerCannotRun",
    "ErrImagePull",
    "ImagePullBackOff",
    "CreateContainerConfigError",
];

/// Labels of a request, named as in RBAC rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WriteLabels {
    pub verb: &'static str,
    pub resource: &'static str,
}

/// All requests that the reconciler sends.
const REQUESTS: [(&str, &str); 23] = [
    ("create", "pods"),
    ("create", "services"),
    ("create", "events"),
    ("create", "workloads"),
    ("create", "podgroups"),
    ("delete", "pods"),
    ("delete", "services"),
    ("delete", "dijobs"),
    ("delete", "workloads"),
    ("delete", "podgroups"),
    ("get", "pods"),
    ("get", "services"),
    ("get", "dijobs"),
    ("get", "workloads"),
    ("get", "podgroups"),
    ("get", "resourceflavors"),
    ("get", "workloadpriorityclasses"),
    ("get", "priorityclasses"),
    ("patch", "pods"),
    ("patch", "dijobs/status"),
    ("patch", "workloads"),
    ("patch", "podgroups"),
    ("patch", "workloads/status"),
];

impl Metrics {
    /// Creates the metrics and registers them.
    pub fn new(registry: &mut Registry) -> Self {
        // Each series starts at 0, so that `increase()` counts the first event too.
        let resources = [
            "dijobs",
            "pods",
            "services",
            "nodes",
            "aggregatorconfigs",
            "workloads",
            "podgroups",
        ];
        let watch_errors = WatchErrors::register(registry, resources);
        let pod_failures = Family::<FailureLabels, Counter>::default();
        let description = "Number of failures of pods by role, reason, and action of the failure rule, Count without one";
        registry.register("di_failures", description, pod_failures.clone());
        for labels in FailureLabels::all() {
            pod_failures.get_or_create_owned(&labels);
        }
        let registry = registry.sub_registry_with_prefix("di_controller");
        let jobs = JobCounts::default();
        registry.register_collector(Box::new(jobs.clone()));
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let leader = gauge("leader", "1 if this process is the leader, else 0");
        let active = gauge("active_reconciles", "Number of reconciles that are running");
        let max_concurrent = gauge(
            "max_concurrent_reconciles",
            "Maximum number of concurrent reconciles",
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let reconciles = counter("reconciles", "Number of reconciles");
        let queue_errors = counter("queue_errors", "Number of errors of the work queue");
        let mut by_reason = |name: &str, help: &str, reasons: &[Reason]| {
            let family = Family::<ReasonLabel, Counter>::default();
            for reason in reasons {
                family.get_or_create_owned(&ReasonLabel::from(*reason));
            }
            registry.register(name, help, family.clone());
            family
        };
        let failures = by_reason(
            "reconcile_failures",
            "Number of failed reconciles by reason",
            &Error::REASONS,
        );
        let events = by_reason(
            "events",
            "Number of emitted Kubernetes events by reason",
            Reason::ALL,
        );
        let duration = Histogram::new(exponential_buckets(0.001, 2.0, 14));
        registry.register(
            "reconcile_duration_seconds",
            "Duration of reconciles in seconds",
            duration.clone(),
        );
        let writes = Family::<WriteLabels, Counter>::default();
        for (verb, resource) in REQUESTS {
            writes.get_or_create_owned(&WriteLabels { verb, resource });
        }
        registry.register(
            "writes",
            "Number of requests to the API server (writes and reads of single objects) by verb and resource",
            writes.clone(),
        );
        Self {
            leader,
            jobs,
            reconciles,
            failures,
            duration,
            active,
            max_concurrent,
            writes,
            events,
            queue_errors,
            pod_failures,
            watch_errors,
        }
    }

    /// Counts failures of pods.
    pub(crate) fn count_failures(&self, failures: &[(Role, String, FailureAction)]) {
        for (role, reason, action) in failures {
            let labels = FailureLabels::new(*role, reason, *action);
            self.pod_failures.get_or_create_owned(&labels).inc();
        }
    }

    /// Counts a reconcile as active until the returned guard is dropped.
    pub(crate) fn track_reconcile(&self) -> ActiveReconcile<'_> {
        self.reconciles.inc();
        self.active.inc();
        ActiveReconcile {
            metrics: self,
            start: Instant::now(),
        }
    }
}

/// Guard of an active reconcile.
pub(crate) struct ActiveReconcile<'a> {
    metrics: &'a Metrics,
    start: Instant,
}

impl Drop for ActiveReconcile<'_> {
    fn drop(&mut self) {
        self.metrics.active.dec();
        let seconds = self.start.elapsed().as_secs_f64();
        self.metrics.duration.observe(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconcile_is_active_until_guard_is_dropped() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let text = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        let active = metrics.track_reconcile();
        assert!(text().contains("di_controller_active_reconciles 1"));
        drop(active);
        let text = text();
        for line in [
            "di_controller_active_reconciles 0",
            "di_controller_reconciles_total 1",
            "di_controller_reconcile_duration_seconds_count 1",
            r#"di_controller_reconcile_failures_total{reason="Timeout"} 0"#,
            r#"di_watch_errors_total{resource="pods"} 0"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in {text}");
        }
    }
}
