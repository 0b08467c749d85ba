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

/// What the reconciler counts.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Reconciles.
    pub reconciles: Counter,
    /// Reconciles that failed, by reason.
    pub failures: Family<Reason, Counter>,
    /// Duration of reconciles, in seconds.
    pub duration: Histogram,
    /// Writes to the API server, by verb and kind.
    pub writes: Family<Write, Counter>,
    /// Errors of the queue.
    pub queue_errors: Counter,
    /// Errors of the watch of jobs.
    pub watch_errors: Counter,
    /// Whether this process leads.
    pub leader: Gauge,
}

/// Label of [`Metrics::failures`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reason {
    /// One word, see [`Error::reason`](crate::Error::reason).
    pub reason: &'static str,
}

/// Labels of [`Metrics::writes`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Write {
    /// As in RBAC.
    pub verb: &'static str,
    /// As in RBAC.
    pub resource: &'static str,
}

impl Metrics {
    /// Makes them known to `registry`.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            reconciles: Counter::default(),
            failures: Family::default(),
            duration: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            writes: Family::default(),
            queue_errors: Counter::default(),
            watch_errors: Counter::default(),
            leader: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("di_controller");
        registry.register("reconciles", "Reconciles", metrics.reconciles.clone());
        registry.register(
            "failures",
            "Reconciles that failed",
            metrics.failures.clone(),
        );
        registry.register(
            "reconcile_duration_seconds",
            "Duration of reconciles",
            metrics.duration.clone(),
        );
        registry.register("writes", "Writes to the API server", metrics.writes.clone());
        registry.register(
            "queue_errors",
            "Errors of the queue",
            metrics.queue_errors.clone(),
        );
        registry.register(
            "watch_errors",
            "Errors of the watch of jobs",
            metrics.watch_errors.clone(),
        );
        registry.register(
            "leader",
            "Whether this process leads",
            metrics.leader.clone(),
        );
        metrics
    }
}
