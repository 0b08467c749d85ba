//! Idempotency keys of requests: the header of the client, else a generated key. Without a header, a
//! request that got no definite response is recognised by its source and body.

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
    authorize::source::Source,
    error::{Error, Result},
};

const MAX_KEY_LEN: usize = 128;
/// Retention of a generated key; DI-engine retries for 120 s.
const RETENTION: Duration = Duration::from_secs(180);
const MAX_KEYS: usize = 4096;
/// First character of generated keys.
const GENERATED_PREFIX: char = '~';

/// Generated keys of requests that are no longer running and got no definite response.
///
/// A repeated request takes its key out while it runs.
#[derive(Debug, Default)]
pub(crate) struct UnansweredKeys {
    hasher: RandomState,
    /// By hash of the request. Equal requests that ran at the same time have one key each.
    unanswered: Mutex<HashMap<u64, Vec<(String, Instant)>>>,
}

/// The key of a running request.
pub(crate) struct IdempotencyKey<'a> {
    key: String,
    /// Where to put a generated key back; none for a key of the client.
    put_back: Option<(&'a UnansweredKeys, u64)>,
}

impl UnansweredKeys {
    /// Returns the client's key, the key of an unanswered equal request, or a new key.
    pub(crate) fn key_for_request(
        &self,
        kind: RequestKind,
        source: &Source,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<IdempotencyKey<'_>> {
        if let Some(key) = client_key(headers)? {
            return Ok(IdempotencyKey {
                key,
                put_back: None,
            });
        }
        let request = self.hasher.hash_one((kind, source, body));
        let mut unanswered = self
            .unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let earlier = unanswered.remove(&request).and_then(|mut keys| {
            keys.retain(is_fresh);
            let key = keys.pop();
            if !keys.is_empty() {
                unanswered.insert(request, keys);
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
            put_back: Some((self, request)),
        })
    }
}

impl IdempotencyKey<'_> {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Drops the key if the request has a definite result.
    pub(crate) fn complete<T>(mut self, result: Result<T>) -> Result<T> {
        if !matches!(&result, Err(error) if error.is_retryable()) {
            self.put_back = None;
        }
        result
    }
}

/// A cancelled request (client disconnected, timeout) may have been served, so its key is kept.
impl Drop for IdempotencyKey<'_> {
    fn drop(&mut self) {
        let Some((unanswered_keys, request)) = self.put_back else {
            return;
        };
        let mut unanswered = unanswered_keys
            .unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count_keys =
            |unanswered: &HashMap<u64, Vec<_>>| unanswered.values().map(Vec::len).sum::<usize>();
        if count_keys(&unanswered) >= MAX_KEYS {
            unanswered.retain(|_, keys| keys.iter().any(is_fresh));
        }
        if count_keys(&unanswered) >= MAX_KEYS {
            unanswered.clear();
        }
        let key = std::mem::take(&mut self.key);
        unanswered
            .entry(request)
            .or_default()
            .push((key, Instant::now()));
    }
}

fn is_fresh((_, at): &(String, Instant)) -> bool {
    at.elapsed() < RETENTION
}

/// Whether the client sent this key.
pub(crate) fn is_client_key(key: &str) -> bool {
    !key.starts_with(GENERATED_PREFIX)
}

fn client_key(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = key.to_str().ok();
    let fits = |key: &&str| !key.is_empty() && key.len() <= MAX_KEY_LEN;
    key.filter(fits)
        .map(|key| Some(key.to_owned()))
        .ok_or_else(|| {
            Error::Invalid(format!(
                "the Idempotency-Key must have 1 to {MAX_KEY_LEN} printable characters"
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete_request(
        unanswered_keys: &UnansweredKeys,
        source: &Source,
        body: &[u8],
        answer: Result<()>,
    ) -> String {
        let headers = HeaderMap::new();
        let idempotency_key =
            unanswered_keys.key_for_request(RequestKind::Add, source, &headers, body);
        let idempotency_key = idempotency_key.unwrap();
        let key = idempotency_key.key().to_owned();
        idempotency_key.complete(answer).ok();
        key
    }

    #[test]
    fn unanswered_request_keeps_its_key_when_repeated() {
        let unanswered_keys = UnansweredKeys::default();
        let (a, b) = (
            Source::from_address("10.0.0.1"),
            Source::from_address("10.0.0.2"),
        );
        let passing = || Err(Error::Unavailable(String::new()));
        let first = complete_request(&unanswered_keys, &a, b"x", passing());
        assert_ne!(
            complete_request(&unanswered_keys, &b, b"x", Ok(())),
            first,
            "another requester"
        );
        assert_ne!(
            complete_request(&unanswered_keys, &a, b"y", Ok(())),
            first,
            "another body"
        );
        assert_eq!(
            complete_request(&unanswered_keys, &a, b"x", passing()),
            first
        );
        assert_eq!(complete_request(&unanswered_keys, &a, b"x", Ok(())), first);
        let next = complete_request(
            &unanswered_keys,
            &a,
            b"x",
            Err(Error::Conflict(String::new())),
        );
        assert_ne!(next, first, "it was answered");
        assert_ne!(
            complete_request(&unanswered_keys, &a, b"x", Ok(())),
            next,
            "it was rejected"
        );
        assert!(unanswered_keys.unanswered.lock().unwrap().is_empty());
    }

    #[test]
    fn equal_unanswered_requests_keep_their_keys() {
        let unanswered_keys = UnansweredKeys::default();
        let (source, headers) = (Source::from_address("10.0.0.1"), HeaderMap::new());
        let new = || unanswered_keys.key_for_request(RequestKind::Add, &source, &headers, b"x");
        let keys = |requests: &[IdempotencyKey<'_>]| {
            let mut keys: Vec<_> = requests.iter().map(|t| t.key().to_owned()).collect();
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
    fn concurrent_equal_requests_get_different_keys() {
        let unanswered_keys = UnansweredKeys::default();
        let (source, headers) = (Source::from_address("10.0.0.1"), HeaderMap::new());
        let new = || unanswered_keys.key_for_request(RequestKind::Remove, &source, &headers, b"x");
        let (first, second) = (new().unwrap(), new().unwrap());
        assert_ne!(first.key(), second.key());
    }
}
