//! Keys of requests: what their client gave them, else what we gave them. A request without a key that got no definite answer is told from
//! a new one by coming again from the same requester with the same body.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::http::HeaderMap;
use di_api::RequestKind;
use rand::distr::{Alphanumeric, SampleString};

use crate::{
    authorize::Source,
    error::{Error, Result},
};

const LONGEST_KEY: usize = 128;
/// DI-engine tries for 120 s.
const KEPT_FOR: Duration = Duration::from_secs(180);
const MOST_KEPT: usize = 4096;
/// What keys of ours begin with.
const GENERATED_PREFIX: char = '~';

/// Keys of requests that got no definite answer.
#[derive(Debug, Default)]
pub(crate) struct InFlightKeys {
    hasher: RandomState,
    /// As many of one request as it was sent at the same time, for they are told apart by nothing.
    kept: Mutex<HashMap<u64, Vec<(String, Instant)>>>,
}

/// The key of a request that is being served.
pub(crate) struct IdempotencyKey<'a> {
    key: String,
    /// Where it is kept, unless the client gave it.
    kept: Option<(&'a InFlightKeys, u64)>,
}

impl InFlightKeys {
    /// The key of a request.
    pub(crate) fn idempotency_key(
        &self,
        kind: RequestKind,
        source: &Source,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<IdempotencyKey<'_>> {
        if let Some(key) = idempotency_key(headers)? {
            return Ok(IdempotencyKey { key, kept: None });
        }
        let request = self.hasher.hash_one((kind, source, body));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = kept.remove(&request).and_then(|mut keys| {
            keys.retain(is_fresh);
            let key = keys.pop();
            if !keys.is_empty() {
                kept.insert(request, keys);
            }
            key
        });
        let key = earlier.map_or_else(
            || {
                format!(
                    "{GENERATED_PREFIX}{}",
                    Alphanumeric.sample_string(&mut rand::rng(), 8)
                )
            },
            |(key, _)| key,
        );
        Ok(IdempotencyKey {
            key,
            kept: Some((self, request)),
        })
    }
}

impl IdempotencyKey<'_> {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Forgets the key once its request has a definite answer.
    pub(crate) fn complete<T>(mut self, result: Result<T>) -> Result<T> {
        if !matches!(&result, Err(error) if error.is_retryable()) {
            self.kept = None;
        }
        result
    }
}

/// A request that is given up, because its client has gone or its time is over, may have been served.
impl Drop for IdempotencyKey<'_> {
    fn drop(&mut self) {
        let Some((in_flight_keys, request)) = self.kept else {
            return;
        };
        let mut kept = in_flight_keys
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let number = |kept: &HashMap<u64, Vec<_>>| kept.values().map(Vec::len).sum::<usize>();
        if number(&kept) >= MOST_KEPT {
            kept.retain(|_, keys| keys.iter().any(is_fresh));
        }
        if number(&kept) >= MOST_KEPT {
            kept.clear();
        }
        let key = std::mem::take(&mut self.key);
        kept.entry(request).or_default().push((key, Instant::now()));
    }
}

fn is_fresh((_, at): &(String, Instant)) -> bool {
    at.elapsed() < KEPT_FOR
}

/// Whether a client gave this key, and so relies on it.
pub(crate) fn is_client_key(key: &str) -> bool {
    !key.starts_with(GENERATED_PREFIX)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = key.to_str().ok();
    let fits = |key: &&str| !key.is_empty() && key.len() <= LONGEST_KEY;
    key.filter(fits)
        .map(|key| Some(key.to_owned()))
        .ok_or_else(|| {
            Error::Invalid(format!(
                "the Idempotency-Key must have 1 to {LONGEST_KEY} printable characters"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(
        in_flight_keys: &InFlightKeys,
        source: &Source,
        body: &[u8],
        answer: Result<()>,
    ) -> String {
        let headers = HeaderMap::new();
        let idempotency_key =
            in_flight_keys.idempotency_key(RequestKind::Add, source, &headers, body);
        let idempotency_key = idempotency_key.unwrap();
        let key = idempotency_key.key().to_owned();
        idempotency_key.complete(answer).ok();
        key
    }

    #[test]
    fn only_requests_without_a_definite_answer_are_known_when_they_come_again() {
        let in_flight_keys = InFlightKeys::default();
        let (a, b) = (
            Source::from_address("10.0.0.1"),
            Source::from_address("10.0.0.2"),
        );
        let passing = || Err(Error::Unavailable(String::new()));
        let first = key_of(&in_flight_keys, &a, b"x", passing());
        assert_ne!(
            key_of(&in_flight_keys, &b, b"x", Ok(())),
            first,
            "another requester"
        );
        assert_ne!(
            key_of(&in_flight_keys, &a, b"y", Ok(())),
            first,
            "another body"
        );
        assert_eq!(key_of(&in_flight_keys, &a, b"x", passing()), first);
        assert_eq!(key_of(&in_flight_keys, &a, b"x", Ok(())), first);
        let next = key_of(
            &in_flight_keys,
            &a,
            b"x",
            Err(Error::Conflict(String::new())),
        );
        assert_ne!(next, first, "it was answered");
        assert_ne!(
            key_of(&in_flight_keys, &a, b"x", Ok(())),
            next,
            "it was refused"
        );
        assert!(in_flight_keys.kept.lock().unwrap().is_empty());
    }

    #[test]
    fn each_of_several_requests_alike_that_got_no_answer_is_known_again() {
        let in_flight_keys = InFlightKeys::default();
        let (source, headers) = (Source::from_address("10.0.0.1"), HeaderMap::new());
        let new = || in_flight_keys.idempotency_key(RequestKind::Add, &source, &headers, b"x");
        let keys = |tickets: &[IdempotencyKey<'_>]| {
            let mut keys: Vec<_> = tickets.iter().map(|t| t.key().to_owned()).collect();
            keys.sort();
            keys
        };
        let first: Vec<_> = (0..5).map(|_| new().unwrap()).collect();
        let given = keys(&first);
        drop(first);
        let again: Vec<_> = (0..5).map(|_| new().unwrap()).collect();
        assert_eq!(keys(&again), given);
        assert!(!given.contains(&new().unwrap().key().to_owned()));
        assert!(given.iter().all(|key| !is_client_key(key)));
    }

    #[test]
    fn requests_at_the_same_time_are_different_requests() {
        let in_flight_keys = InFlightKeys::default();
        let (source, headers) = (Source::from_address("10.0.0.1"), HeaderMap::new());
        let new = || in_flight_keys.idempotency_key(RequestKind::Remove, &source, &headers, b"x");
        let (first, second) = (new().unwrap(), new().unwrap());
        assert_ne!(first.key(), second.key());
    }
}
