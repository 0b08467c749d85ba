use std::sync::Arc;

use di_api::{Reason, Role, names, validation};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;

use crate::ports::named_port;

/// The pod of a namespace's aggregators, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum AggregatorTemplate {
    /// It was not looked for yet.
    #[default]
    Unknown,
    /// There is none, neither in the namespace nor in the orchestrator's.
    Missing,
    /// There is one that makes no pod, and why.
    Invalid(String),
    /// This one.
    Found(Arc<PodTemplateSpec>),
}

impl AggregatorTemplate {
    /// That of an `AggregatorConfig` of either served version.
    pub fn of(config: &Value) -> Self {
        match validation::aggregator_config(config) {
            Ok(config) => Self::Found(Arc::new(config.spec.aggregator.template)),
            Err(faults) => {
                let namespace = config["metadata"]["namespace"].as_str().unwrap_or_default();
                let why = validation::summary(&faults);
                Self::Invalid(format!(
                    "AggregatorConfig {} in namespace {namespace} is not valid: {why}",
                    names::AGGREGATOR_CONFIG
                ))
            }
        }
    }

    /// The template, if there is one.
    pub fn found(&self) -> Option<&PodTemplateSpec> {
        match self {
            Self::Found(template) => Some(template),
            _ => None,
        }
    }

    /// Port of aggregators made from it.
    pub fn port(&self) -> Option<i32> {
        let named = self.found()?.spec.as_ref().and_then(named_port);
        Some(named.unwrap_or_else(|| Role::Aggregator.default_port()))
    }

    /// Why no aggregator of a job in this namespace can be made, in one word and in a sentence that says what to do; nothing while that is not known.
    pub fn lack(&self, namespace: &str) -> Option<(Reason, String)> {
        match self {
            Self::Missing => Some((
                Reason::MissingAggregatorConfig,
                format!(
                    "learners of several GPUs need an AggregatorConfig named {0}, and there is none, neither in namespace {namespace} nor in {1}: \
                     create one in either, with the pod of aggregators as spec.aggregator.template",
                    names::AGGREGATOR_CONFIG,
                    names::SYSTEM_NAMESPACE
                ),
            )),
            Self::Invalid(why) => Some((Reason::InvalidAggregatorConfig, why.clone())),
            Self::Unknown | Self::Found(_) => None,
        }
    }
}
