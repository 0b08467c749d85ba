//! What a `DIJob` must be to run: one validator for the webhook, the reconciler and the plugin.
//!
//! Messages are worded as Kubernetes' own (`spec.x: Invalid value: "y": …`) and say what to change.

mod basic;
mod containers;
mod decode;
mod dns;
mod env;
mod fault;
mod handlers;
mod image;
mod mounts;
mod names;
mod ports;
mod quantities;
mod scheduling;
mod security;
mod spec;
mod template;
mod unknown;
mod update;
mod volumes;
mod warnings;

use serde_json::Value;

use crate::{AggregatorConfig, DIJob};

pub use fault::{Fault, FaultKind, summary};
pub use spec::CLEAN_POD_POLICIES;
pub use update::{dijob_update, spec_unchanged};
pub use warnings::warnings;

/// Decodes and validates a `DIJob` of either served version.
///
/// # Errors
/// Every fault found.
pub fn dijob(object: &Value) -> Result<DIJob, Vec<Fault>> {
    verdict(judge_dijob(object))
}

/// Decodes and validates an `AggregatorConfig` of either served version.
///
/// # Errors
/// Every fault found.
pub fn aggregator_config(object: &Value) -> Result<AggregatorConfig, Vec<Fault>> {
    let mut faults = unknown::faults("AggregatorConfig", object);
    let template = &object["spec"]["aggregator"]["template"];
    if !template.is_object() {
        faults.push(Fault::required(
            "spec.aggregator.template",
            "the pod that aggregators run in",
        ));
        return Err(faults);
    }
    let decoded = decode::most_of::<AggregatorConfig>(without_nulls(object), &mut faults);
    if let Some((config, masked)) = &decoded {
        let template = &config.spec.aggregator.template;
        let mut found = Vec::new();
        template::check(template, "spec.aggregator.template", &[], &mut found);
        faults.extend(masked.outside(found));
    }
    verdict((decoded.map(|(config, _)| config), faults))
}

/// The faults of a job that could be decoded.
pub fn dijob_faults(job: &DIJob) -> Vec<Fault> {
    let mut faults = Vec::new();
    names::check_job_name(
        job.metadata.name.as_deref().unwrap_or_default(),
        &mut faults,
    );
    spec::check(&job.spec, &mut faults);
    faults
}

/// What can be read of a job, and every fault of it.
fn judge_dijob(object: &Value) -> (Option<DIJob>, Vec<Fault>) {
    let mut faults = unknown::faults("DIJob", object);
    if !object["spec"].is_object() {
        faults.push(Fault::required(
            "spec",
            "a DIJob needs at least spec.coordinator.template",
        ));
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        names::check_job_name(name, &mut faults);
        return (None, faults);
    }
    let mut readable = without_nulls(object);
    let missing = spec::check_undecoded(&mut readable["spec"], &mut faults);
    let decoded = decode::most_of::<DIJob>(readable, &mut faults);
    if let Some((job, masked)) = &decoded {
        faults.extend(masked.and(missing).outside(dijob_faults(job)));
    }
    (decoded.map(|(job, _)| job), faults)
}

/// The object, its spec without fields that are null.
fn without_nulls(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(spec) = object.get_mut("spec") {
        drop_nulls(spec);
    }
    object
}

/// A field that is null is one that was left out, as the API server takes it too.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn verdict<T>((decoded, faults): (Option<T>, Vec<Fault>)) -> Result<T, Vec<Fault>> {
    match decoded {
        Some(decoded) if faults.is_empty() => Ok(decoded),
        _ => Err(faults),
    }
}

#[cfg(test)]
mod tests;
