use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// What the endpoint counts.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) requests: Family<Answered, Counter>,
    pub(crate) duration: Family<Route, Histogram>,
    pub(crate) conflicts: Counter,
    pub(crate) planned: Counter,
    pub(crate) released: Counter,
    pub(crate) replaced: Counter,
    pub(crate) refused_connections: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Answered {
    pub(crate) route: &'static str,
    pub(crate) method: &'static str,
    /// The HTTP status, but 503 for what will pass, though older clients are told 200.
    pub(crate) code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Route {
    pub(crate) route: &'static str,
    pub(crate) method: &'static str,
}

impl Metrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.000_5, 2.5, 12))
            }),
            conflicts: Counter::default(),
            planned: Counter::default(),
            released: Counter::default(),
            replaced: Counter::default(),
            refused_connections: Counter::default(),
        };
        let registry = registry.sub_registry_with_prefix("di_replicas");
        registry.register("requests", "Requests answered", metrics.requests.clone());
        registry.register(
            "request_duration_seconds",
            "Duration of requests",
            metrics.duration.clone(),
        );
        for (name, help, counter) in [
            (
                "status_conflicts",
                "Writes refused because the job had changed",
                &metrics.conflicts,
            ),
            ("planned", "Replicas planned or claimed", &metrics.planned),
            ("released", "Replicas let go of", &metrics.released),
            (
                "replaced",
                "Replicas reported as failed and replaced",
                &metrics.replaced,
            ),
            (
                "refused_connections",
                "Connections closed because their address had too many",
                &metrics.refused_connections,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
        metrics
    }
}
