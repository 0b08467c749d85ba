//! Pure functions from the body of an admission review to its response.

mod access_query;
mod authorization;
mod pod_template;
mod request;
mod response;
mod status;
mod validation;
mod value_count;

use di_api::default_patch;
use di_plan::{GangScheduler, gang_problem};
use json_patch::Patch;
use serde_json::Value;

use self::{
    access_query::Scope,
    pod_template::changes_pod_template,
    request::{Kind, ObjectMetaOnly, Request, Review, decode_new_job, decode_review},
    validation::ValidationResult,
    value_count::is_within_value_limit,
};
use crate::error::Result;

pub use self::{
    access_query::AccessQuery,
    authorization::{Authorization, DryRunReport},
    response::ReviewResponse,
    validation::ValidObject,
};

/// Size of a body in bytes above which its JSON values are counted before it is decoded, one body at
/// a time. A smaller body cannot contain enough values to need much memory.
pub(crate) const LARGE_BODY_BYTES: usize = 64 << 10;

/// The outcome of the validation of an object.
#[derive(Clone, Debug)]
pub enum ReviewOutcome {
    /// The response, independent of the author.
    Final(ReviewResponse),
    /// The object is valid. The API server must authorize its author, and validate its pods.
    NeedsAuthorization(Box<Authorization>),
}

impl From<ReviewResponse> for ReviewOutcome {
    fn from(response: ReviewResponse) -> Self {
        Self::Final(response)
    }
}

/// Sets the defaults of a `DIJob`; an `AggregatorConfig` has none.
///
/// # Errors
/// When the body is not an `AdmissionReview`.
pub fn mutate(body: &[u8]) -> Result<ReviewResponse> {
    if let Some(response) = check_value_limit(body)? {
        return Ok(response);
    }
    let review = decode_review::<Value>(body)?;
    let request = review.request;
    let Some(object) = review.object else {
        return ReviewResponse::allow(&request, Vec::new());
    };
    match request.supported_kind() {
        Some(Kind::DIJob) => set_defaults(&request, &object),
        Some(Kind::AggregatorConfig) => ReviewResponse::allow(&request, Vec::new()),
        None => deny_unsupported_kind(&request),
    }
}

/// Validates an object. A denial lists all faults. See docs/decisions/0013. `gang` is the scheduler
/// that places gangs.
///
/// # Errors
/// When the body is not an `AdmissionReview`.
pub fn validate(body: &[u8], gang: Option<&GangScheduler>) -> Result<ReviewOutcome> {
    if let Some(response) = check_value_limit(body)? {
        return Ok(response.into());
    }
    if let Some((request, job)) = decode_new_job(body) {
        let scope = Scope::for_object(Kind::DIJob, &request.namespace);
        let result = ValidationResult::for_new_dijob(*job);
        return admit(request, result, Some(scope), gang);
    }
    let review = decode_review::<Value>(body)?;
    let request = review.request;
    let (Some(new), old) = (review.object, review.replaced.as_ref()) else {
        return Ok(ReviewResponse::allow(&request, Vec::new())?.into());
    };
    let Some(kind) = request.supported_kind() else {
        return Ok(deny_unsupported_kind(&request)?.into());
    };
    // Controllers must be able to remove the finalizers of a deleted object, even if it is invalid.
    if old.is_some_and(is_deleting) {
        return Ok(ReviewResponse::allow(&request, Vec::new())?.into());
    }
    let result = match kind {
        Kind::DIJob => ValidationResult::for_dijob(old, &new),
        Kind::AggregatorConfig => ValidationResult::for_aggregator_config(old, &new),
    };
    let sets_template = old.is_none_or(|old| changes_pod_template(kind, old, &new));
    let scope = sets_template.then(|| Scope::for_object(kind, &request.namespace));
    admit(request, result, scope, gang)
}

/// The response to a review with too many JSON values to be decoded; `None` if it is within the
/// limit.
fn check_value_limit(body: &[u8]) -> Result<Option<ReviewResponse>> {
    if body.len() <= LARGE_BODY_BYTES || is_within_value_limit(body)? {
        return Ok(None);
    }
    let Review {
        request,
        object,
        replaced,
    } = decode_review::<ObjectMetaOnly>(body)?;
    let is_deletion = object.is_none() || replaced.is_some_and(|old| old.is_deleting());
    let response = if is_deletion {
        ReviewResponse::allow(&request, Vec::new())
    } else {
        ReviewResponse::deny(&request, &status::too_many_values(&request), Vec::new())
    };
    response.map(Some)
}

fn set_defaults(request: &Request, job: &Value) -> Result<ReviewResponse> {
    match default_patch(job) {
        Patch(operations) if operations.is_empty() => ReviewResponse::allow(request, Vec::new()),
        patch => ReviewResponse::allow_with_patch(request, &patch),
    }
}

fn deny_unsupported_kind(request: &Request) -> Result<ReviewResponse> {
    let unsupported = status::unsupported_kind(&request.kind);
    ReviewResponse::deny(request, &unsupported, Vec::new())
}

/// Denies an invalid object. A valid one is allowed, after authorization if it sets a pod template:
/// `scope` says where its pods run.
fn admit(
    request: Request,
    result: ValidationResult,
    scope: Option<Scope>,
    gang: Option<&GangScheduler>,
) -> Result<ReviewOutcome> {
    let ValidationResult {
        object,
        unknown_pod_fields,
        faults,
        mut warnings,
    } = result;
    if let Some(ValidObject::DIJob(job)) = &object {
        warnings.extend(gang_problem(job, gang, None));
    }
    if !faults.is_empty() {
        let invalid = status::invalid_object(&request, &faults);
        return Ok(ReviewResponse::deny(&request, &invalid, warnings)?.into());
    }
    Ok(match scope {
        Some(scope) => ReviewOutcome::NeedsAuthorization(Box::new(Authorization::new(
            request,
            scope,
            warnings,
            object,
            unknown_pod_fields,
        ))),
        None => ReviewResponse::allow(&request, warnings)?.into(),
    })
}

/// Whether a stored object is being deleted. Do not use it for the new object: its author can set
/// any timestamp.
fn is_deleting(stored: &Value) -> bool {
    !stored["metadata"]["deletionTimestamp"].is_null()
}

#[cfg(test)]
mod tests;
