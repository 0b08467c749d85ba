use jiff::Timestamp;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// What the webhooks count.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    reviews: Family<[(&'static str, &'static str); 2], Counter>,
    expiry: Gauge,
}

impl Metrics {
    /// Registers `di_admission_reviews_total{webhook,outcome}` and `di_webhook_certificate_expiry_seconds`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "di_admission_reviews",
            "Admission reviews by webhook (mutate, validate) and outcome (allowed, denied, malformed)",
            metrics.reviews.clone(),
        );
        registry.register(
            "di_webhook_certificate_expiry_seconds",
            "Unix time at which the certificate being served expires; 0 while there is none",
            metrics.expiry.clone(),
        );
        metrics
    }

    pub(crate) fn reviewed(&self, webhook: &'static str, outcome: &'static str) {
        self.reviews
            .get_or_create(&[("webhook", webhook), ("outcome", outcome)])
            .inc();
    }

    pub(crate) fn serving_until(&self, expiry: Timestamp) {
        self.expiry.set(expiry.as_second());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_exposed_under_their_names() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.reviewed("validate", "denied");
        metrics.serving_until(Timestamp::from_second(1_800_000_000).unwrap());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"di_admission_reviews_total{webhook="validate",outcome="denied"} 1"#,
            "di_webhook_certificate_expiry_seconds 1800000000",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in {text}");
        }
    }
}
