//! The request history in the status of a job: recent requests that changed the plan. Each replica of
//! the endpoint answers a repeated request from it. See docs/decisions/0009.

use di_api::{AnsweredRequest, RequestKind};
use di_cache::JobView;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::error::{Error, Result};

/// How long a request is kept. Clients repeat a request within this time or never.
pub(crate) const RETENTION: SignedDuration = SignedDuration::from_mins(10);
const MAX_REQUESTS: usize = 32;
/// Limit of names over all requests: the status must stay below the size limit of an object.
const MAX_NAMES: usize = 2048;

/// Returns the record of a repeated request.
///
/// # Errors
/// When the key belongs to a request with other content.
pub(crate) fn find_replay<'a>(
    job: &'a JobView,
    kind: RequestKind,
    key: &str,
    asked: &str,
    now: Timestamp,
) -> Result<Option<&'a AnsweredRequest>> {
    let found = find_request(job, kind, key, now);
    match found.filter(|found| !found.asked.is_empty() && found.asked != asked) {
        Some(other) => Err(Error::Conflict(format!(
            "the Idempotency-Key {key} was used by another request, for {}; use a new key for a new request",
            other.asked
        ))),
        None => Ok(found),
    }
}

/// Returns the recent record of this kind and key.
pub(crate) fn find_request<'a>(
    job: &'a JobView,
    kind: RequestKind,
    key: &str,
    now: Timestamp,
) -> Option<&'a AnsweredRequest> {
    let mut all = job.requests.iter();
    all.find(|request| request.kind == kind && request.key == key && is_unexpired(&request.at, now))
}

/// Whether a request of this time may still be repeated.
pub(crate) fn is_unexpired(at: &Time, now: Timestamp) -> bool {
    now.duration_since(at.0) < RETENTION
}

/// Adds a record and drops the oldest ones.
pub(crate) fn record_request(all: &mut Vec<AnsweredRequest>, new: AnsweredRequest, now: Timestamp) {
    all.retain(|request| is_unexpired(&request.at, now));
    all.push(new);
    let mut names = 0;
    let newest = all.iter().rev().take(MAX_REQUESTS);
    let kept = newest
        .take_while(|request| {
            names += request.released.len();
            names <= MAX_NAMES
        })
        .count();
    // The newest is kept even if it exceeds the limit alone.
    all.drain(..all.len() - kept.max(1));
}

/// Creates the record of the current request.
pub(crate) fn new_record(
    kind: RequestKind,
    key: &str,
    asked: &str,
    released: Vec<String>,
) -> AnsweredRequest {
    AnsweredRequest {
        kind,
        key: key.to_owned(),
        asked: asked.to_owned(),
        at: Time(Timestamp::now()),
        released,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_requests_are_kept_within_limits() {
        let now = Timestamp::now();
        let request = |key: usize, released: usize| AnsweredRequest {
            released: vec!["name".into(); released],
            ..new_record(RequestKind::Remove, &key.to_string(), "", Vec::new())
        };
        let keys = |all: &[AnsweredRequest]| -> Vec<usize> {
            all.iter().map(|r| r.key.parse().unwrap()).collect()
        };
        let mut all = Vec::new();
        for key in 0..40 {
            record_request(&mut all, request(key, 1), now);
        }
        assert_eq!(keys(&all), (8..40).collect::<Vec<_>>());
        record_request(&mut all, request(40, 2047), now);
        assert_eq!(keys(&all), [39, 40]);
        record_request(&mut all, request(41, 9000), now);
        assert_eq!(keys(&all), [41]);
        record_request(&mut all, request(42, 0), now + RETENTION);
        assert_eq!(keys(&all), [42]);
    }
}
