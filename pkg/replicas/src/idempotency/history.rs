//! The request history in the status of a job: the records of recent requests that changed the plan.
//! Each replica of the endpoint answers a repeated request from its record. See docs/decisions/0009.

use di_api::{RequestKind, RequestRecord};
use di_cache::JobView;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::error::{Error, Result};

/// How long a record is kept. Clients repeat a request within this time or never.
pub(crate) const RETENTION: SignedDuration = SignedDuration::from_mins(10);
const MAX_RECORDS: usize = 32;
/// Limit of names over all records: the status must stay below the size limit of an object.
const MAX_NAMES: usize = 2048;

/// Returns the record of a repeated request.
///
/// # Errors
/// When the key belongs to a request with other content.
pub(crate) fn find_replay<'a>(
    job: &'a JobView,
    kind: RequestKind,
    key: &str,
    request_summary: &str,
    now: Timestamp,
) -> Result<Option<&'a RequestRecord>> {
    let found = find_record(job, kind, key, now);
    match found.filter(|found| {
        !found.request_summary.is_empty() && found.request_summary != request_summary
    }) {
        Some(other) => Err(Error::Conflict(format!(
            "the Idempotency-Key {key} was used by another request, for {}; use a new key for a new request",
            other.request_summary
        ))),
        None => Ok(found),
    }
}

/// Returns the recent record of this kind and key.
pub(crate) fn find_record<'a>(
    job: &'a JobView,
    kind: RequestKind,
    key: &str,
    now: Timestamp,
) -> Option<&'a RequestRecord> {
    let mut all = job.requests.iter();
    all.find(|record| record.kind == kind && record.key == key && is_unexpired(&record.at, now))
}

/// Whether a request that was recorded at this time may still be repeated.
pub(crate) fn is_unexpired(at: &Time, now: Timestamp) -> bool {
    now.duration_since(at.0) < RETENTION
}

/// Adds a record, and drops expired records, then the oldest above the limits.
pub(crate) fn add_record(all: &mut Vec<RequestRecord>, new: RequestRecord, now: Timestamp) {
    all.retain(|record| is_unexpired(&record.at, now));
    all.push(new);
    let mut names = 0;
    let newest = all.iter().rev().take(MAX_RECORDS);
    let kept = newest
        .take_while(|record| {
            names += record.released.len();
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
    request_summary: &str,
    released: Vec<String>,
) -> RequestRecord {
    RequestRecord {
        kind,
        key: key.to_owned(),
        request_summary: request_summary.to_owned(),
        at: Time(Timestamp::now()),
        released,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_records_are_kept_within_limits() {
        let now = Timestamp::now();
        let record = |key: usize, released: usize| RequestRecord {
            released: vec!["name".into(); released],
            ..new_record(RequestKind::Remove, &key.to_string(), "", Vec::new())
        };
        let keys = |all: &[RequestRecord]| -> Vec<usize> {
            all.iter().map(|r| r.key.parse().unwrap()).collect()
        };
        let mut all = Vec::new();
        for key in 0..40 {
            add_record(&mut all, record(key, 1), now);
        }
        assert_eq!(keys(&all), (8..40).collect::<Vec<_>>());
        add_record(&mut all, record(40, 2047), now);
        assert_eq!(keys(&all), [39, 40]);
        add_record(&mut all, record(41, 9000), now);
        assert_eq!(keys(&all), [41]);
        add_record(&mut all, record(42, 0), now + RETENTION);
        assert_eq!(keys(&all), [42]);
    }
}
