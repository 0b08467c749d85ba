use std::time::Duration;

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

/// What became of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Allowed,
    Denied,
    /// Refused, because nobody could say whether its author may.
    Undecided,
    /// It could not be read.
    Malformed,
}

impl Outcome {
    const ALL: [Self; 4] = [
        Self::Allowed,
        Self::Denied,
        Self::Undecided,
        Self::Malformed,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Undecided => "undecided",
            Self::Malformed => "malformed",
        }
    }
}

/// What the webhooks count.
#[derive(Clone, Debug)]
pub struct Metrics {
    reviews: Family<[Label; 2], Counter>,
    duration: Family<[Label; 1], Histogram>,
    expiry: Gauge,
    failures: Counter,
    refused_connections: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            reviews: Family::default(),
            // From that of a small job to the 10 s that the API server waits.
            duration: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.000_1, 4.0, 9))
            }),
            expiry: Gauge::default(),
            failures: Counter::default(),
            refused_connections: Counter::default(),
        };
        // What never happened is told of as well, so that the first time is seen as a change.
        for webhook in WEBHOOKS {
            for outcome in Outcome::ALL {
                metrics.outcome(webhook, outcome);
            }
            metrics
                .duration
                .get_or_create_owned(&[("webhook", webhook)]);
        }
        metrics
    }
}

impl Metrics {
    /// Makes them known to `registry`.
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
            "Time until a review was answered",
            metrics.duration.clone(),
        );
        registry.register(
            "certificate_expiry_timestamp_seconds",
            "Unix time at which the certificate being served expires; 0 while there is none",
            metrics.expiry.clone(),
        );
        registry.register(
            "certificate_failures",
            "Rounds of looking after the certificate that failed",
            metrics.failures.clone(),
        );
        registry.register(
            "refused_connections",
            "Connections closed because their address had too many",
            metrics.refused_connections.clone(),
        );
        metrics
    }

    pub(crate) fn reviewed(&self, webhook: &'static str, outcome: Outcome, took: Duration) {
        self.outcome(webhook, outcome).inc();
        self.duration
            .get_or_create(&[("webhook", webhook)])
            .observe(took.as_secs_f64());
    }

    fn outcome(&self, webhook: &'static str, outcome: Outcome) -> Counter {
        let labels = [("webhook", webhook), ("outcome", outcome.as_str())];
        self.reviews.get_or_create_owned(&labels)
    }

    pub(crate) fn serving_until(&self, expiry: Timestamp) {
        self.expiry.set(expiry.as_second());
    }

    pub(crate) fn certificate_failed(&self) {
        self.failures.inc();
    }

    pub(crate) fn connection_refused(&self) {
        self.refused_connections.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_exposed_under_their_names() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let took = Duration::from_millis(2);
        metrics.reviewed("validate", Outcome::Denied, took);
        metrics.serving_until(Timestamp::from_second(1_800_000_000).unwrap());
        metrics.certificate_failed();
        metrics.connection_refused();
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
