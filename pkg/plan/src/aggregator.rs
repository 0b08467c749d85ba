use std::sync::Arc;

use di_api::{PodTemplate, Reason, Role, names, validation};
use serde_json::Value;

/// The pod template for the aggregators of a namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum AggregatorTemplate {
    /// The `AggregatorConfig`s have not been listed.
    #[default]
    Unknown,
    /// The namespace and the orchestrator's namespace have no `AggregatorConfig`.
    Missing,
    /// The `AggregatorConfig` is invalid; the message says why.
    Invalid(String),
    /// The template of a valid `AggregatorConfig`.
    Found(Arc<PodTemplate>),
}

impl AggregatorTemplate {
    /// The template of an `AggregatorConfig` of any served version.
    pub fn from_config(config: &Value) -> Self {
        match validation::validate_aggregator_config(config) {
            Ok(config) => Self::Found(Arc::new(config.object.spec.aggregator.template)),
            Err(faults) => {
                let namespace = config["metadata"]["namespace"].as_str().unwrap_or_default();
                let why = validation::summarize_faults(&faults);
                Self::Invalid(format!(
                    "AggregatorConfig {} in namespace {namespace} is invalid: {why}",
                    names::AGGREGATOR_CONFIG
                ))
            }
        }
    }

    /// The pod template, if a valid one was found.
    pub fn pod_template(&self) -> Option<&PodTemplate> {
        match self {
            Self::Found(template) => Some(template),
            _ => None,
        }
    }

    /// Port of the aggregators of this template.
    pub fn pod_port(&self) -> Option<i32> {
        let named = self.pod_template()?.named_port();
        Some(named.unwrap_or_else(|| Role::Aggregator.default_port()))
    }

    /// Reason and message if no aggregator can be created in this namespace.
    ///
    /// `None` while the `AggregatorConfig`s have not been listed.
    pub fn missing_reason(&self, namespace: &str) -> Option<(Reason, String)> {
        match self {
            Self::Missing => Some((
                Reason::MissingAggregatorConfig,
                format!(
                    "learners with several GPUs need an AggregatorConfig, but none named {0} exists in namespace {namespace} or {1}: \
                     create one with the aggregator pod as spec.aggregator.template",
                    names::AGGREGATOR_CONFIG,
                    names::SYSTEM_NAMESPACE
                ),
            )),
            Self::Invalid(why) => Some((Reason::InvalidAggregatorConfig, why.clone())),
            Self::Unknown | Self::Found(_) => None,
        }
    }
}
