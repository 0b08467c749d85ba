mod jobs;

use std::time::Instant;

use di_api::Reason;
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
use jobs::Jobs;

/// What the reconciler counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Whether this process leads.
    pub leader: Gauge,
    pub(crate) jobs: Jobs,
    pub(crate) reconciles: Counter,
    pub(crate) failures: Family<ByReason, Counter>,
    pub(crate) duration: Histogram,
    pub(crate) active: Gauge,
    pub(crate) max_concurrent: Gauge,
    pub(crate) writes: Family<Write, Counter>,
    pub(crate) events: Family<ByReason, Counter>,
    pub(crate) queue_errors: Counter,
    pub(crate) watch_errors: WatchErrors,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ByReason {
    pub reason: &'static str,
}

impl From<Reason> for ByReason {
    fn from(reason: Reason) -> Self {
        Self {
            reason: reason.as_str(),
        }
    }
}

/// Both as in RBAC.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Write {
    pub verb: &'static str,
    pub resource: &'static str,
}

/// Those that there are.
const WRITES: [(&str, &str); 11] = [
    ("create", "pods"),
    ("create", "services"),
    ("create", "events"),
    ("delete", "pods"),
    ("delete", "services"),
    ("delete", "dijobs"),
    ("get", "pods"),
    ("get", "services"),
    ("get", "dijobs"),
    ("patch", "pods"),
    ("patch", "dijobs/status"),
];

impl Metrics {
    /// Makes them known to `registry`.
    pub fn new(registry: &mut Registry) -> Self {
        // What never happened is told of as well, so that the first time is seen as a change.
        let resources = ["dijobs", "pods", "services", "nodes", "aggregatorconfigs"];
        let watch_errors = WatchErrors::register(registry, resources);
        let registry = registry.sub_registry_with_prefix("di_controller");
        let jobs = Jobs::default();
        registry.register_collector(Box::new(jobs.clone()));
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let leader = gauge("leader", "Whether this process leads");
        let active = gauge("active_reconciles", "Reconciles under way");
        let max_concurrent = gauge(
            "max_concurrent_reconciles",
            "How many may be under way at the same time",
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let reconciles = counter("reconciles", "Reconciles");
        let queue_errors = counter("queue_errors", "Errors of the queue");
        let mut by_reason = |name: &str, help: &str, reasons: &[Reason]| {
            let family = Family::<ByReason, Counter>::default();
            for reason in reasons {
                family.get_or_create_owned(&ByReason::from(*reason));
            }
            registry.register(name, help, family.clone());
            family
        };
        let failures = by_reason(
            "reconcile_failures",
            "Reconciles that failed",
            &Error::REASONS,
        );
        let events = by_reason("events", "What jobs were told by events", Reason::ALL);
        let duration = Histogram::new(exponential_buckets(0.001, 2.0, 14));
        registry.register(
            "reconcile_duration_seconds",
            "Duration of reconciles",
            duration.clone(),
        );
        let writes = Family::<Write, Counter>::default();
        for (verb, resource) in WRITES {
            writes.get_or_create_owned(&Write { verb, resource });
        }
        registry.register(
            "writes",
            "Writes to the API server, and reads of single objects",
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
            watch_errors,
        }
    }

    /// Counts a reconcile, which is under way until what is returned is dropped.
    pub(crate) fn reconcile(&self) -> Reconciling<'_> {
        self.reconciles.inc();
        self.active.inc();
        Reconciling {
            metrics: self,
            began: Instant::now(),
        }
    }
}

/// A reconcile under way.
pub(crate) struct Reconciling<'a> {
    metrics: &'a Metrics,
    began: Instant,
}

impl Drop for Reconciling<'_> {
    fn drop(&mut self) {
        self.metrics.active.dec();
        let took = self.began.elapsed().as_secs_f64();
        self.metrics.duration.observe(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reconcile_is_under_way_until_it_ends() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let text = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            text
        };
        let reconciling = metrics.reconcile();
        assert!(text().contains("di_controller_active_reconciles 1"));
        drop(reconciling);
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
