//! Requests that changed the plan lately, in the job's status: one that comes again is answered as before, by whichever replica it meets.

use di_api::{AnsweredRequest, RequestKind};
use di_cache::JobView;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::error::{Error, Result};

/// Requests come again within this time, or never.
pub(crate) const RETENTION: SignedDuration = SignedDuration::from_mins(10);
const MOST_KEPT: usize = 32;
/// Names in all that are kept: a status must stay below the size of an object.
const MOST_NAMES: usize = 2048;

/// What was answered to this request, if it was answered lately. One that asks for something else under the key of another is refused: it is
/// served neither by that one's answer nor, if its client sends it again, twice.
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
            "the Idempotency-Key {key} is that of another request, for {}; a new request needs a key of its own",
            other.asked
        ))),
        None => Ok(found),
    }
}

/// What was answered to the request of this kind and key, if it was answered lately.
pub(crate) fn find_request<'a>(
    job: &'a JobView,
    kind: RequestKind,
    key: &str,
    now: Timestamp,
) -> Option<&'a AnsweredRequest> {
    let mut all = job.requests.iter();
    all.find(|request| request.kind == kind && request.key == key && is_unexpired(&request.at, now))
}

/// Whether a request of this time may come again.
pub(crate) fn is_unexpired(at: &Time, now: Timestamp) -> bool {
    now.duration_since(at.0) < RETENTION
}

/// Notes one more, and forgets the oldest.
pub(crate) fn record_request(all: &mut Vec<AnsweredRequest>, new: AnsweredRequest, now: Timestamp) {
    all.retain(|request| is_unexpired(&request.at, now));
    all.push(new);
    let mut names = 0;
    let newest = all.iter().rev().take(MOST_KEPT);
    let kept = newest
        .take_while(|request| {
            names += request.released.len();
            names <= MOST_NAMES
        })
        .count();
    // The newest is kept however many it names.
    all.drain(..all.len() - kept.max(1));
}

/// The note of a request that is being answered.
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
    fn the_newest_requests_are_kept_for_a_while() {
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
