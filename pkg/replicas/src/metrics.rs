use std::{fmt, sync::Arc};

use di_cache::WatchErrors;
use di_serve::ConnectionMetrics;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// The metrics of the endpoint, shown by `/metrics`.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) requests: Family<RequestLabels, Counter>,
    pub(crate) duration: Family<Route, Histogram>,
    pub(crate) conflicts: Counter,
    pub(crate) planned: Counter,
    pub(crate) released: Counter,
    pub(crate) replaced: Counter,
    pub(crate) connections: ConnectionMetrics,
    pub(crate) watch_errors: WatchErrors,
    registry: Arc<Registry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) route: &'static str,
    pub(crate) method: &'static str,
    /// The HTTP status. Transient errors count as 503, although `/v1alpha1` returns 200.
    pub(crate) code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Route {
    pub(crate) route: &'static str,
    pub(crate) method: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let watch_errors = WatchErrors::register(&mut registry, ["dijobs", "pods"]);
        let all = registry.sub_registry_with_prefix("di_replicas");
        let requests = Family::default();
        all.register(
            "requests",
            "Requests served, by route, method and status code",
            requests.clone(),
        );
        let duration = Family::<Route, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.000_5, 2.5, 12))
        });
        all.register(
            "request_duration_seconds",
            "Duration of requests in seconds",
            duration.clone(),
        );
        let connections = ConnectionMetrics::default();
        all.register("connections", "Open connections", connections.open.clone());
        all.register(
            "refused_connections",
            "Connections closed because their source address had too many",
            connections.refused.clone(),
        );
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            all.register(name, help, counter.clone());
            counter
        };
        Self {
            requests,
            duration,
            connections,
            conflicts: counter(
                "status_conflicts",
                "Writes rejected because the job had changed",
            ),
            planned: counter(
                "planned",
                "Replicas planned for a coordinator or claimed by it",
            ),
            released: counter("released", "Replicas removed by coordinators"),
            replaced: counter("replaced", "Replicas reported as failed and replaced"),
            watch_errors,
            registry: Arc::new(registry),
        }
    }
}

impl Metrics {
    /// Encodes the metrics as OpenMetrics.
    ///
    /// # Errors
    /// When the metrics cannot be encoded.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
