//! The answers to admission reviews: pure functions from a request's body to the answer's.

mod claim;
mod status;
mod user;
mod verdict;
mod weight;
mod wire;

use di_api::default_patch;
use json_patch::Patch;
use serde_json::Value;

use crate::Result;
use claim::Scope;
use verdict::Verdict;
use wire::{Outline, Request, Review};

pub use claim::{Claim, Question};

/// Bytes. What is in a larger body is counted before it is decoded, one at a time; smaller ones cannot hold as much that it matters.
pub(crate) const LARGE: usize = 64 << 10;

/// The answer to an admission review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the request may go on.
    pub allowed: bool,
    /// What its author is told, as an HTTP status: 200 if it may.
    pub code: u16,
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
    if let Some(answer) = too_heavy(body)? {
        return Ok(answer);
    }
    let Review {
        request, object, ..
    } = wire::decode::<Value>(body)?;
    let Some(object) = object else {
        return request.allow(Vec::new());
    };
    match Kind::of(&request) {
        Some(Kind::DIJob) => match default_patch(&object) {
            Patch(nothing) if nothing.is_empty() => request.allow(Vec::new()),
            patch => request.patch(&patch),
        },
        Some(Kind::AggregatorConfig) => request.allow(Vec::new()),
        None => request.deny(&status::alien(&request.kind)),
    }
}

/// Allows what can run, and says of the rest what is wrong, all at once.
///
/// # Errors
/// When the body is not an `AdmissionReview`.
pub fn validate(body: &[u8]) -> Result<Judgement> {
    if let Some(answer) = too_heavy(body)? {
        return Ok(Judgement::Final(answer));
    }
    if let Some((request, job)) = wire::new_job(body) {
        let scope = Scope::of(Kind::DIJob, &request.namespace);
        return judgement(request, Verdict::of_new_dijob(*job), Some(scope));
    }
    let Review {
        request,
        object,
        replaced,
    } = wire::decode::<Value>(body)?;
    let Some(new) = object else {
        return request.allow(Vec::new()).map(Judgement::Final);
    };
    let Some(kind) = Kind::of(&request) else {
        let alien = request.deny(&status::alien(&request.kind));
        return alien.map(Judgement::Final);
    };
    let old = replaced.as_ref();
    // Whoever deletes it must be able to remove its finalizers, whatever else is wrong.
    if old.is_some_and(is_going) {
        return request.allow(Vec::new()).map(Judgement::Final);
    }
    let verdict = match kind {
        Kind::DIJob => Verdict::of_dijob(old, &new),
        Kind::AggregatorConfig => Verdict::of_aggregator_config(old, &new),
    };
    let sets_templates = old.is_none_or(|old| claim::runs_otherwise(kind, old, &new));
    let scope = sets_templates.then(|| Scope::of(kind, &request.namespace));
    judgement(request, verdict, scope)
}

/// The answer to a review that has more in it than may be decoded.
fn too_heavy(body: &[u8]) -> Result<Option<Answer>> {
    if body.len() <= LARGE || weight::is_bearable(body)? {
        return Ok(None);
    }
    let Review {
        request,
        object,
        replaced,
    } = wire::decode::<Outline>(body)?;
    let may_go = object.is_none() || replaced.is_some_and(|old| old.is_going());
    let answer = if may_go {
        request.allow(Vec::new())
    } else {
        request.deny(&status::too_heavy(&request))
    };
    answer.map(Some)
}

fn judgement(request: Request, verdict: Verdict, scope: Option<Scope>) -> Result<Judgement> {
    let Verdict { faults, warnings } = verdict;
    if !faults.is_empty() {
        let invalid = status::invalid(&request, &faults);
        let refusal = request.deny_and_warn(&invalid, warnings);
        return refusal.map(Judgement::Final);
    }
    match scope {
        Some(scope) => Ok(Judgement::Claimed(Box::new(Claim::new(
            request, scope, warnings,
        )))),
        None => request.allow(warnings).map(Judgement::Final),
    }
}

/// A kind that the webhook configurations ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    DIJob,
    AggregatorConfig,
}

impl Kind {
    fn of(request: &Request) -> Option<Self> {
        match request.kind.kind.as_str() {
            "DIJob" if request.is_ours() => Some(Self::DIJob),
            "AggregatorConfig" if request.is_ours() => Some(Self::AggregatorConfig),
            _ => None,
        }
    }
}

/// Whether an object is being deleted. Asked of what is stored: what is sent may claim anything.
fn is_going(stored: &Value) -> bool {
    !stored["metadata"]["deletionTimestamp"].is_null()
}

#[cfg(test)]
mod tests;
