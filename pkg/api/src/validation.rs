//! Validation of `DIJob` and `AggregatorConfig`: one validator for the webhook, the reconciler and
//! the plugin. It knows the rules of jobs, and the few mistakes in pods that people make most; the
//! API server knows all others. See docs/decisions/0031.
//!
//! Messages follow Kubernetes' own (`spec.x: Invalid value: "y": …`) and suggest a fix.

mod failure_rules;
mod fault;
mod image;
mod names;
mod path;
mod quantities;
mod queueing;
mod role_ports;
mod scheduling;
mod spec;
mod strict_decode;
mod template;
mod template_decode;
mod tolerant_decode;
mod unit_hints;
mod unknown_fields;
mod update;
mod validate;
mod volumes;
mod warnings;

pub use fault::{Fault, FaultKind, summarize_faults, truncate_text};
pub use spec::CLEAN_POD_POLICIES;
pub use strict_decode::Decoded;
pub use unknown_fields::most_similar;
pub use update::{is_spec_unchanged, validate_dijob_update};
pub use validate::{
    Valid, dijob_faults, validate_aggregator_config, validate_decoded_dijob, validate_dijob,
};
pub use warnings::{config_warnings, job_warnings, rejected_job_warnings};

#[cfg(test)]
mod tests;
