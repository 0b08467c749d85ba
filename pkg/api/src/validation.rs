//! What a `DIJob` must be to run: one validator for the webhook, the reconciler and the plugin.
//!
//! Messages are worded as Kubernetes' own (`spec.x: Invalid value: "y": …`) and say what to change.

mod annotations;
mod basic;
mod containers;
mod decode;
mod disks;
mod dns;
mod doubts;
mod env;
mod expansion;
mod fault;
mod handlers;
mod image;
mod mounts;
mod names;
mod path;
mod ports;
mod quantities;
mod scheduling;
mod security;
mod spec;
mod storage;
mod strict;
mod template;
mod units;
mod unknown;
mod update;
mod volumes;
mod warnings;
mod windows;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{AggregatorConfig, DIJob, Role};
use decode::Pieces;
use fault::{Faults, MAX_FAULTS};
use path::{Path, SPEC};

pub use fault::{Fault, FaultKind, cut, summary};
pub use spec::CLEAN_POD_POLICIES;
pub use strict::Read;
pub use update::{dijob_update, spec_unchanged};
pub use warnings::{config_warnings, warnings, warnings_besides};

/// Decodes and validates a `DIJob` of either served version.
///
/// # Errors
/// Every fault found, a thousand at most.
pub fn dijob(object: &Value) -> Result<DIJob, Vec<Fault>> {
    verdict(judge(object))
}

/// Validates a `DIJob` that was decoded from elsewhere than a value.
///
/// # Errors
/// Every fault found.
pub fn dijob_read(job: Read<DIJob>) -> Result<DIJob, Vec<Fault>> {
    verdict(judge_read(job))
}

/// Decodes and validates an `AggregatorConfig` of either served version.
///
/// # Errors
/// Every fault found.
pub fn aggregator_config(object: &Value) -> Result<AggregatorConfig, Vec<Fault>> {
    verdict(judge(object))
}

/// The faults of a job that could be decoded.
pub fn dijob_faults(job: &DIJob) -> Vec<Fault> {
    let mut faults = Faults::default();
    names::check_job_name(&job.metadata, &mut faults);
    template::check_metadata(&job.metadata, &path::METADATA, &mut faults);
    spec::check(&job.spec, &mut faults);
    faults.into_vec()
}

/// A kind of ours.
trait Kind: DeserializeOwned {
    /// What has a better message before it is decoded; it is put right in `object`, so that the rest can be read.
    ///
    /// Returns the fields that were filled in.
    fn put_right(object: &mut Value, faults: &mut Faults) -> Vec<String>;

    /// The faults of what could be decoded.
    fn faults(&self) -> Vec<Fault>;
}

impl Kind for DIJob {
    fn put_right(object: &mut Value, faults: &mut Faults) -> Vec<String> {
        spec::put_right(object, faults)
    }

    fn faults(&self) -> Vec<Fault> {
        dijob_faults(self)
    }
}

impl Kind for AggregatorConfig {
    fn put_right(object: &mut Value, faults: &mut Faults) -> Vec<String> {
        let spec = &mut object["spec"];
        if !spec.is_object() {
            *spec = Value::Object(serde_json::Map::new());
        }
        let missing = spec::require_template(spec, "aggregator", "aggregators run in", faults);
        missing.into_iter().collect()
    }

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Faults::default();
        let aggregator = SPEC.at("aggregator");
        let field = aggregator.at("template");
        let whose = template::For {
            role: Role::Aggregator,
            job: None,
        };
        template::check(&self.spec.aggregator.template, &field, whose, &mut faults);
        faults.into_vec()
    }
}

/// What can be read of an object, and its faults.
type Judged<T> = (Option<T>, Vec<Fault>);

fn judge<T: Kind>(object: &Value) -> Judged<T> {
    match Read::deserialize(object) {
        Ok(read) => judge_read(read),
        Err(_) => judge_piecemeal(object),
    }
}

fn judge_read<T: Kind>(read: Read<T>) -> Judged<T> {
    let Read { object, mut faults } = read;
    faults.extend(object.faults());
    faults.truncate(MAX_FAULTS);
    (Some(object), faults)
}

/// Of an object that cannot be read as it is: fields that are null are left out, and those of a wrong type.
fn judge_piecemeal<T: Kind>(object: &Value) -> Judged<T> {
    // A field that does not exist is told of even if it is null.
    let mut faults = Faults::default();
    faults.extend(decode::pieces::<T>(object.clone()).unknown);
    let mut readable = without_nulls(object);
    let missing = T::put_right(&mut readable, &mut faults);
    let Pieces { decoded, wrong, .. } = decode::pieces::<T>(readable);
    faults.extend(wrong);
    if let Some((object, masked)) = &decoded {
        faults.extend(masked.and(missing).outside(object.faults()));
    }
    (decoded.map(|(object, _)| object), faults.into_vec())
}

/// The object, its spec without fields that are null; what is none has no fields.
fn without_nulls(object: &Value) -> Value {
    let Value::Object(fields) = object else {
        return Value::Object(serde_json::Map::new());
    };
    let mut fields = fields.clone();
    if let Some(spec) = fields.get_mut("spec") {
        drop_nulls(spec);
    }
    Value::Object(fields)
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

fn verdict<T>((decoded, faults): Judged<T>) -> Result<T, Vec<Fault>> {
    match decoded {
        Some(decoded) if faults.is_empty() => Ok(decoded),
        _ => Err(faults),
    }
}

#[cfg(test)]
mod tests;
