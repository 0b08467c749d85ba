use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    fault::{Fault, FaultKind, Faults, MAX_FAULTS},
    names,
    path::SPEC,
    queueing, scheduling, spec,
    strict_decode::Decoded,
    template,
    template_decode::decode_template,
    tolerant_decode::{FieldMask, TolerantResult, decode_tolerantly, drop_nulls},
};
use crate::{aggregator_config::AggregatorConfig, dijob::DIJob};

/// A valid object.
#[derive(Clone, Debug)]
pub struct Valid<T> {
    /// The object.
    pub object: T,
    /// Fields of its pod templates that this program does not know. The API server may know them:
    /// see docs/decisions/0033.
    pub unknown_pod_fields: Vec<Fault>,
}

impl<T> Valid<T> {
    /// The object if all of its fields are known.
    ///
    /// # Errors
    /// The unknown fields.
    pub fn without_unknown_fields(self) -> Result<T, Vec<Fault>> {
        if self.unknown_pod_fields.is_empty() {
            Ok(self.object)
        } else {
            Err(self.unknown_pod_fields)
        }
    }
}

/// Decodes and validates a `DIJob` of either served version.
///
/// # Errors
/// All faults, at most 1,000.
pub fn validate_dijob(object: &Value) -> Result<Valid<DIJob>, Vec<Fault>> {
    into_result(validate_object(object))
}

/// Validates a `DIJob` that the caller decoded strictly.
///
/// # Errors
/// All faults, at most 1,000.
pub fn validate_decoded_dijob(job: Decoded<DIJob>) -> Result<Valid<DIJob>, Vec<Fault>> {
    into_result(validate_decoded(job))
}

/// Decodes and validates an `AggregatorConfig` of either served version.
///
/// # Errors
/// All faults, at most 1,000.
pub fn validate_aggregator_config(object: &Value) -> Result<Valid<AggregatorConfig>, Vec<Fault>> {
    into_result(validate_object(object))
}

/// Returns the faults of a decoded job. Unknown fields of its templates are none: the API server
/// decides about them.
pub fn dijob_faults(job: &DIJob) -> Vec<Fault> {
    let mut faults = job.find_faults();
    faults.retain(|fault| !is_unknown_pod_field(fault));
    faults
}

/// A kind of the API group.
pub(super) trait Kind: DeserializeOwned {
    /// Reports faults that have a clearer message before decoding, and repairs them in `object`, so
    /// that the rest can be decoded.
    ///
    /// Returns the paths of the fields that it filled in.
    fn repair(object: &mut Value, faults: &mut Faults) -> Vec<String>;

    /// Returns the faults of the decoded object.
    fn find_faults(&self) -> Vec<Fault>;
}

impl Kind for DIJob {
    fn repair(object: &mut Value, faults: &mut Faults) -> Vec<String> {
        spec::repair_spec(object, faults)
    }

    fn find_faults(&self) -> Vec<Fault> {
        let mut faults = Faults::default();
        let max_len = spec::max_job_name_len(&self.spec);
        names::check_job_name(&self.metadata, max_len, &mut faults);
        queueing::check_labels(&self.metadata, &mut faults);
        spec::check_spec(&self.spec, &mut faults);
        scheduling::check_scheduling(self, &mut faults);
        faults.into_vec()
    }
}

impl Kind for AggregatorConfig {
    fn repair(object: &mut Value, faults: &mut Faults) -> Vec<String> {
        let spec = &mut object["spec"];
        if !spec.is_object() {
            *spec = Value::Object(serde_json::Map::new());
        }
        let missing = spec::require_template(spec, "aggregator", "aggregators run in", faults);
        missing.into_iter().collect()
    }

    fn find_faults(&self) -> Vec<Fault> {
        let mut faults = Faults::default();
        let aggregator = SPEC.child("aggregator");
        let field = aggregator.child("template");
        let written = &self.spec.aggregator.template;
        let mut masked = FieldMask::default();
        let template = decode_template(written, &field, &mut masked, &mut faults);
        let pod = template.spec.unwrap_or_default();
        let mut found = Faults::default();
        template::check_pod(&pod, None, &field.child("spec"), &mut found);
        faults.extend(masked.unrelated_faults(found.into_vec()));
        faults.into_vec()
    }
}

/// The object, if it is decodable, and its faults.
pub(super) type ValidationResult<T> = (Option<T>, Vec<Fault>);

// See docs/decisions/0013: both ways report the same faults; the second one takes longer.
pub(super) fn validate_object<T: Kind>(object: &Value) -> ValidationResult<T> {
    match Decoded::deserialize(object) {
        Ok(decoded) => validate_decoded(decoded),
        Err(_) => validate_tolerantly(object),
    }
}

pub(super) fn validate_decoded<T: Kind>(decoded: Decoded<T>) -> ValidationResult<T> {
    let Decoded { object, mut faults } = decoded;
    faults.extend(object.find_faults());
    faults.truncate(MAX_FAULTS);
    (Some(object), faults)
}

/// Validates an object that is not decodable as it is, without its null fields and those of a wrong
/// type.
pub(super) fn validate_tolerantly<T: Kind>(object: &Value) -> ValidationResult<T> {
    // Unknown fields are reported even if they are null, so look for them before nulls are dropped.
    let mut faults = Faults::default();
    faults.extend(decode_tolerantly::<T>(object.clone(), None).unknown);
    let mut readable = without_nulls(object);
    let missing = T::repair(&mut readable, &mut faults);
    let TolerantResult { decoded, wrong, .. } = decode_tolerantly::<T>(readable, None);
    faults.extend(wrong);
    if let Some((object, masked)) = &decoded {
        let mask = masked.with_fields(missing);
        faults.extend(mask.unrelated_faults(object.find_faults()));
    }
    (decoded.map(|(object, _)| object), faults.into_vec())
}

/// Returns the object without null fields in its spec; anything but an object becomes an empty one.
pub(super) fn without_nulls(object: &Value) -> Value {
    let Value::Object(fields) = object else {
        return Value::Object(serde_json::Map::new());
    };
    let mut fields = fields.clone();
    if let Some(spec) = fields.get_mut("spec") {
        drop_nulls(spec);
    }
    Value::Object(fields)
}

pub(super) fn into_result<T>(
    (decoded, faults): ValidationResult<T>,
) -> Result<Valid<T>, Vec<Fault>> {
    match decoded {
        Some(object) if faults.iter().all(is_unknown_pod_field) => Ok(Valid {
            object,
            unknown_pod_fields: faults,
        }),
        _ => Err(faults),
    }
}

fn is_unknown_pod_field(fault: &Fault) -> bool {
    fault.kind == FaultKind::UnknownPodField
}
