//! Pure functions from the body of an admission review to its response.

mod pod_create_check;
mod status;
mod user;
mod validation;
mod value_count;
mod wire;

use di_api::default_patch;
use json_patch::Patch;
use serde_json::Value;

use crate::Result;
use pod_create_check::Scope;
use validation::ValidationResult;
use wire::{ObjectMetaOnly, Request, Review};

pub use pod_create_check::{AccessQuery, PodCreateCheck};

/// Size of a body in bytes above which its JSON values are counted before it is decoded, one body at
/// a time. A smaller body cannot contain enough values to need much memory.
pub(crate) const LARGE_BODY_BYTES: usize = 64 << 10;

/// The response to an admission review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewResponse {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// HTTP status for the author of the request: 200 if it is allowed.
    pub code: u16,
    /// The `AdmissionReview` with the response as JSON, in the API version of the request.
    pub body: Vec<u8>,
}

/// The outcome of the validation of an object.
#[derive(Clone, Debug)]
pub enum ReviewOutcome {
    /// The response, independent of the author.
    Final(ReviewResponse),
    /// The object is valid. The API server must authorize its author.
    NeedsAuthorization(Box<PodCreateCheck>),
}

/// Sets the defaults of a `DIJob`; an `AggregatorConfig` has none.
///
/// # Errors
/// When the body is not an `AdmissionReview`.
pub fn mutate(body: &[u8]) -> Result<ReviewResponse> {
    if let Some(response) = check_value_limit(body)? {
        return Ok(response);
    }
    let Review {
        request, object, ..
    } = wire::decode_review::<Value>(body)?;
    let Some(object) = object else {
        return request.allow(Vec::new());
    };
    match Kind::from_request(&request) {
        Some(Kind::DIJob) => match default_patch(&object) {
            Patch(operations) if operations.is_empty() => request.allow(Vec::new()),
            patch => request.allow_with_patch(&patch),
        },
        Some(Kind::AggregatorConfig) => request.allow(Vec::new()),
        None => request.deny(&status::unsupported_kind(&request.kind)),
    }
}

/// Validates an object. A denial lists all faults. See docs/decisions/0013.
///
/// # Errors
/// When the body is not an `AdmissionReview`.
pub fn validate(body: &[u8]) -> Result<ReviewOutcome> {
    if let Some(response) = check_value_limit(body)? {
        return Ok(ReviewOutcome::Final(response));
    }
    if let Some((request, job)) = wire::decode_new_job(body) {
        let scope = Scope::for_object(Kind::DIJob, &request.namespace);
        let result = ValidationResult::for_new_dijob(*job);
        return build_outcome(request, result, Some(scope));
    }
    let Review {
        request,
        object,
        replaced,
    } = wire::decode_review::<Value>(body)?;
    let Some(new) = object else {
        return request.allow(Vec::new()).map(ReviewOutcome::Final);
    };
    let Some(kind) = Kind::from_request(&request) else {
        let denial = request.deny(&status::unsupported_kind(&request.kind));
        return denial.map(ReviewOutcome::Final);
    };
    let old = replaced.as_ref();
    // Controllers must be able to remove the finalizers of a deleted object, even if it is invalid.
    if old.is_some_and(is_deleting) {
        return request.allow(Vec::new()).map(ReviewOutcome::Final);
    }
    let result = match kind {
        Kind::DIJob => ValidationResult::for_dijob(old, &new),
        Kind::AggregatorConfig => ValidationResult::for_aggregator_config(old, &new),
    };
    let sets_templates =
        old.is_none_or(|old| pod_create_check::changes_pod_template(kind, old, &new));
    let scope = sets_templates.then(|| Scope::for_object(kind, &request.namespace));
    build_outcome(request, result, scope)
}

/// The response to a review with too many JSON values to be decoded; `None` if it is within the
/// limit.
fn check_value_limit(body: &[u8]) -> Result<Option<ReviewResponse>> {
    if body.len() <= LARGE_BODY_BYTES || value_count::is_within_value_limit(body)? {
        return Ok(None);
    }
    let Review {
        request,
        object,
        replaced,
    } = wire::decode_review::<ObjectMetaOnly>(body)?;
    let is_deletion = object.is_none() || replaced.is_some_and(|old| old.is_deleting());
    let response = if is_deletion {
        request.allow(Vec::new())
    } else {
        request.deny(&status::too_many_values(&request))
    };
    response.map(Some)
}

fn build_outcome(
    request: Request,
    result: ValidationResult,
    scope: Option<Scope>,
) -> Result<ReviewOutcome> {
    let ValidationResult { faults, warnings } = result;
    if !faults.is_empty() {
        let invalid = status::invalid_object(&request, &faults);
        let denial = request.deny_and_warn(&invalid, warnings);
        return denial.map(ReviewOutcome::Final);
    }
    match scope {
        Some(scope) => Ok(ReviewOutcome::NeedsAuthorization(Box::new(
            PodCreateCheck::new(request, scope, warnings),
        ))),
        None => request.allow(warnings).map(ReviewOutcome::Final),
    }
}

/// A kind that the webhooks support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    DIJob,
    AggregatorConfig,
}

impl Kind {
    fn from_request(request: &Request) -> Option<Self> {
        match request.kind.kind.as_str() {
            "DIJob" if request.is_supported() => Some(Self::DIJob),
            "AggregatorConfig" if request.is_supported() => Some(Self::AggregatorConfig),
            _ => None,
        }
    }
}

/// Whether a stored object is being deleted. Do not use it for the new object: its author can set
/// any timestamp.
fn is_deleting(stored: &Value) -> bool {
    !stored["metadata"]["deletionTimestamp"].is_null()
}

#[cfg(test)]
mod tests;
