//! The answers to admission reviews: pure functions from a request's body to the answer's.

mod claim;
mod status;
mod verdict;
mod wire;

use di_api::{default_patch, names};
use json_patch::Patch;
use kube::core::admission::Operation;
use serde_json::Value;

use crate::Result;
use claim::Scope;
use verdict::Verdict;
use wire::Request;

pub use claim::Claim;

/// The answer to an admission review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the request may go on.
    pub allowed: bool,
    /// The `AdmissionReview` to send back, as JSON and of the version that was asked in.
    pub body: Vec<u8>,
}

/// What follows from an object.
#[derive(Clone, Debug)]
pub enum Judgement {
    /// The answer, whoever asks.
    Final(Answer),
    /// The object is fine; whether its author may have it run is for the API server to say.
    Claimed(Box<Claim>),
}

/// Fills in the defaults of a `DIJob`; an `AggregatorConfig` has none.
///
/// # Errors
/// When the body is not an `AdmissionReview`.
pub fn mutate(body: &[u8]) -> Result<Answer> {
    let request = wire::decode(body)?;
    match subject(&request) {
        Subject::Nothing | Subject::AggregatorConfig(_) => request.allow(Vec::new()),
        Subject::Alien => request.deny(&status::alien(&request.kind)),
        Subject::DIJob(job) => match default_patch(job) {
            Patch(nothing) if nothing.is_empty() => request.allow(Vec::new()),
            patch => request.patch(&patch),
        },
    }
}

/// Allows what can run, and says of the rest what is wrong, all at once.
///
/// # Errors
/// When the body is not an `AdmissionReview`.
pub fn validate(body: &[u8]) -> Result<Judgement> {
    let request = wire::decode(body)?;
    let verdict = match subject(&request) {
        Subject::Nothing => Verdict::default(),
        Subject::Alien => {
            return request
                .deny(&status::alien(&request.kind))
                .map(Judgement::Final);
        }
        // Whoever deletes it must be able to remove its finalizers, whatever else is wrong.
        _ if is_going(&request) => Verdict::default(),
        Subject::AggregatorConfig(config) => {
            Verdict::of_aggregator_config(request.replaced(), config)
        }
        Subject::DIJob(job) => Verdict::of_dijob(request.replaced(), job),
    };
    if !verdict.faults.is_empty() {
        let invalid = status::invalid(&request, &verdict.faults);
        return request.deny(&invalid).map(Judgement::Final);
    }
    match claimed(&request) {
        Some(scope) => {
            let claim = Claim::new(request, scope, verdict.warnings);
            Ok(Judgement::Claimed(Box::new(claim)))
        }
        None => request.allow(verdict.warnings).map(Judgement::Final),
    }
}

/// What a review is about.
enum Subject<'a> {
    /// An operation that leaves no object to look at.
    Nothing,
    DIJob(&'a Value),
    AggregatorConfig(&'a Value),
    /// A kind that no webhook configuration of ours asks about.
    Alien,
}

fn subject(request: &Request) -> Subject<'_> {
    let Some(object) = &request.object else {
        return Subject::Nothing;
    };
    if matches!(request.operation, Operation::Delete | Operation::Connect) {
        return Subject::Nothing;
    }
    let kind = &request.kind;
    let ours = kind.group == names::GROUP
        && [names::VERSION, names::LEGACY_VERSION].contains(&kind.version.as_str());
    match kind.kind.as_str() {
        "DIJob" if ours => Subject::DIJob(object),
        "AggregatorConfig" if ours => Subject::AggregatorConfig(object),
        _ => Subject::Alien,
    }
}

/// Where the author must be allowed to create pods, if that must be.
fn claimed(request: &Request) -> Option<Scope> {
    if is_going(request) {
        return None;
    }
    match subject(request) {
        Subject::Nothing | Subject::Alien => None,
        Subject::DIJob(object) | Subject::AggregatorConfig(object) => {
            let (kind, namespace) = (&request.kind.kind, &request.namespace);
            claim::scope(kind, namespace, request.replaced(), object)
        }
    }
}

/// Whether the object is being deleted. Asked of what is stored: what is sent may claim anything.
fn is_going(request: &Request) -> bool {
    let stored = request.replaced();
    stored.is_some_and(|stored| !stored["metadata"]["deletionTimestamp"].is_null())
}

#[cfg(test)]
mod tests;
