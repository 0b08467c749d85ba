//! The answers to admission reviews: pure functions from a request's body to the answer's.

mod verdict;

use di_api::{
    default_patch, names,
    validation::{self, Fault},
};
use json_patch::Patch;
use k8s_openapi::ByteString;
use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation},
    response::{StatusCause, StatusDetails, reason},
};
use serde_json::Value;

use crate::{Error, Result};
use verdict::Verdict;

/// The answer to an admission review.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether the request may go on.
    pub allowed: bool,
    /// The `AdmissionReview` to send back, of the version that was asked in.
    pub review: Value,
}

/// Fills in the defaults of a `DIJob`; an `AggregatorConfig` has none.
///
/// # Errors
/// When the body is not an `AdmissionReview`.
pub fn mutate(body: &[u8]) -> Result<Answer> {
    let request = decode(body)?;
    let response = AdmissionResponse::from(&request);
    answer(match subject(&request) {
        Subject::Nothing | Subject::AggregatorConfig(_) => response,
        Subject::Alien => deny(response, alien(&request)),
        Subject::DIJob(job) => match default_patch(&job) {
            Patch(nothing) if nothing.is_empty() => response,
            patch => response.with_patch(patch).map_err(Error::EncodePatch)?,
        },
    })
}

/// Allows what can run, and says of the rest what is wrong, all at once.
///
/// # Errors
/// When the body is not an `AdmissionReview`.
pub fn validate(body: &[u8]) -> Result<Answer> {
    let request = decode(body)?;
    let mut response = AdmissionResponse::from(&request);
    let verdict = match subject(&request) {
        Subject::Nothing => Verdict::default(),
        Subject::Alien => return answer(deny(response, alien(&request))),
        // Whoever deletes it must be able to remove its finalizers, whatever else is wrong.
        Subject::AggregatorConfig(object) | Subject::DIJob(object) if is_going(&object) => {
            Verdict::default()
        }
        Subject::AggregatorConfig(config) => {
            Verdict::of_aggregator_config(replaced(&request).as_ref(), &config)
        }
        Subject::DIJob(job) => Verdict::of_dijob(replaced(&request).as_ref(), &job),
    };
    if !verdict.warnings.is_empty() {
        response.warnings = Some(verdict.warnings);
    }
    answer(if verdict.faults.is_empty() {
        response
    } else {
        deny(response, invalid(&request, &verdict.faults))
    })
}

/// What a review is about.
enum Subject {
    /// An operation that leaves no object to look at.
    Nothing,
    DIJob(Value),
    AggregatorConfig(Value),
    /// A kind that no webhook configuration of ours asks about.
    Alien,
}

fn decode(body: &[u8]) -> Result<AdmissionRequest<DynamicObject>> {
    let malformed = |error: &dyn std::fmt::Display| Error::Malformed(error.to_string());
    let review: AdmissionReview<DynamicObject> =
        serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    let (kind, version) = (&review.types.kind, &review.types.api_version);
    if kind != "AdmissionReview"
        || !matches!(
            version.as_str(),
            "admission.k8s.io/v1" | "admission.k8s.io/v1beta1"
        )
    {
        return Err(Error::Malformed(format!(
            "cannot answer {kind} of {version}, only AdmissionReview of admission.k8s.io/v1 and v1beta1"
        )));
    }
    let request: AdmissionRequest<_> = review.try_into().map_err(|_| malformed(&"no request"))?;
    let carries_object = matches!(request.operation, Operation::Create | Operation::Update);
    if carries_object && request.object.is_none() {
        return Err(malformed(&"no object"));
    }
    Ok(request)
}

fn subject(request: &AdmissionRequest<DynamicObject>) -> Subject {
    if matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Subject::Nothing;
    }
    let kind = &request.kind;
    let ours = kind.group == names::GROUP
        && [names::VERSION, names::LEGACY_VERSION].contains(&kind.version.as_str());
    // An object that was just decoded from JSON can be written as JSON.
    let object = serde_json::to_value(&request.object).unwrap_or_default();
    match kind.kind.as_str() {
        "DIJob" if ours => Subject::DIJob(object),
        "AggregatorConfig" if ours => Subject::AggregatorConfig(object),
        _ => Subject::Alien,
    }
}

/// The object whose place the new one takes.
fn replaced(request: &AdmissionRequest<DynamicObject>) -> Option<Value> {
    let old = request.old_object.as_ref()?;
    let is_update = matches!(request.operation, Operation::Update);
    is_update.then(|| serde_json::to_value(old).unwrap_or_default())
}

fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn deny(mut response: AdmissionResponse, status: Status) -> AdmissionResponse {
    response.allowed = false;
    response.result = status;
    response
}

fn alien(request: &AdmissionRequest<DynamicObject>) -> Status {
    let kind = &request.kind;
    let message = format!(
        "the webhooks of {} do not know {} of {}: the webhook configuration must not ask for it",
        names::GROUP,
        kind.kind,
        kind.api_version()
    );
    Status::failure(&message, reason::BAD_REQUEST).with_code(400)
}

fn invalid(request: &AdmissionRequest<DynamicObject>, faults: &[Fault]) -> Status {
    let kind = &request.kind;
    let name = name(request);
    let message = format!(
        "{}.{} {name:?} is invalid: {}",
        kind.kind,
        kind.group,
        validation::summary(faults)
    );
    let causes = faults.iter().map(|fault| StatusCause {
        reason: fault.reason().to_owned(),
        message: fault.detail.clone(),
        field: fault.field.clone(),
    });
    Status::failure(&message, reason::INVALID)
        .with_code(422)
        .with_details(StatusDetails {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            causes: causes.collect(),
            uid: String::new(),
            retry_after_seconds: 0,
        })
}

/// The name, or what it will begin with where the server is to make it up.
fn name(request: &AdmissionRequest<DynamicObject>) -> &str {
    let metadata = request.object.as_ref().map(|object| &object.metadata);
    let candidates = [
        Some(&request.name),
        metadata.and_then(|m| m.name.as_ref()),
        metadata.and_then(|m| m.generate_name.as_ref()),
    ];
    let mut named = candidates.into_iter().flatten().filter(|n| !n.is_empty());
    named.next().map_or("", String::as_str)
}

fn answer(mut response: AdmissionResponse) -> Result<Answer> {
    let allowed = response.allowed;
    // kube writes bytes as a list of numbers, Kubernetes as base64.
    let patch = response.patch.take().map(ByteString);
    let has_patch = patch.is_some();
    let mut review = serde_json::to_value(response.into_review()).map_err(Error::Encode)?;
    if has_patch {
        review["response"]["patch"] = serde_json::to_value(patch).map_err(Error::Encode)?;
    }
    Ok(Answer { allowed, review })
}

#[cfg(test)]
mod tests;
