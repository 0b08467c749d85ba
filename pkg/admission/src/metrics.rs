use std::time::Duration;

use di_serve::ConnectionMetrics;
use jiff::Timestamp;
use prometheus_client::{
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

type Label = (&'static str, &'static str);

const WEBHOOKS: [&str; 2] = ["mutate", "validate"];

/// The outcome of a review, as a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    /// Denied because the API server could not authorize the author.
    AuthorizationUnknown,
    /// The request could not be decoded.
    Malformed,
}

impl Outcome {
    const ALL: [Self; 4] = [
        Self::Allowed,
        Self::Denied,
        Self::AuthorizationUnknown,
        Self::Malformed,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::AuthorizationUnknown => "undecided",
            Self::Malformed => "malformed",
        }
    }
}

/// The metrics of the webhooks.
#[derive(Clone, Debug)]
pub struct Metrics {
    reviews: Family<[Label; 2], Counter>,
    duration: Family<[Label; 1], Histogram>,
    expiry: Gauge,
    failures: Counter,
    pub(crate) connections: ConnectionMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            reviews: Family::default(),
            // From the duration of a small job to the 10 s that the API server waits.
            duration: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.000_1, 4.0, 9))
            }),
            expiry: Gauge::default(),
            failures: Counter::default(),
            connections: ConnectionMetrics::default(),
        };
        // Create all series with 0, so that `rate()` sees the first increment.
        for webhook in WEBHOOKS {
            for outcome in Outcome::ALL {
                metrics.outcome_counter(webhook, outcome);
            }
            metrics
                .duration
                .get_or_create_owned(&[("webhook", webhook)]);
        }
        metrics
    }
}

impl Metrics {
    /// Creates the metrics and registers them with `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("di_admission");
        registry.register(
            "reviews",
            "Admission reviews by webhook and outcome",
            metrics.reviews.clone(),
        );
        registry.register(
            "review_duration_seconds",
            "Time from the request of a review to its response",
            metrics.duration.clone(),
        );
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "Unix time at which the served certificate expires; 0 without a certificate",
            metrics.expiry.clone(),
        );
        registry.register(
            "certificate_failures",
            "Failed checks of the webhook certificate",
            metrics.failures.clone(),
        );
        registry.register(
            "refused_connections",
            "Connections closed because their address has too many connections",
            metrics.connections.refused.clone(),
        );
        metrics
    }

    pub(crate) fn record_review(
        &self,
        webhook: &'static str,
        outcome: Outcome,
        duration: Duration,
    ) {
        self.outcome_counter(webhook, outcome).inc();
        self.duration
            .get_or_create(&[("webhook", webhook)])
            .observe(duration.as_secs_f64());
    }

    fn outcome_counter(&self, webhook: &'static str, outcome: Outcome) -> Counter {
        let labels = [("webhook", webhook), ("outcome", outcome.as_str())];
        self.reviews.get_or_create_owned(&labels)
    }

    pub(crate) fn set_certificate_expiry(&self, expiry: Timestamp) {
        self.expiry.set(expiry.as_second());
    }

    pub(crate) fn count_certificate_failure(&self) {
        self.failures.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_documented_names() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let duration = Duration::from_millis(2);
        metrics.record_review("validate", Outcome::Denied, duration);
        metrics.set_certificate_expiry(Timestamp::from_second(1_800_000_000).unwrap());
        metrics.count_certificate_failure();
        metrics.connections.refused.inc();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"di_admission_reviews_total{webhook="validate",outcome="denied"} 1"#,
            r#"di_admission_reviews_total{webhook="mutate",outcome="malformed"} 0"#,
            r#"di_admission_review_duration_seconds_count{webhook="validate"} 1"#,
            "di_admission_certificate_expiry_timestamp_seconds 1800000000",
            "di_admission_certificate_failures_total 1",
            "di_admission_refused_connections_total 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in {text}");
        }
    }
}
