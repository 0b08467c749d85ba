//! Keys of requests: what their client gave them, else what we gave them. A request without a key that got no definite answer is told from
//! a new one by coming again from the same caller with the same body.

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
const OURS: char = '~';

/// Keys of requests that got no definite answer.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    hasher: RandomState,
    /// As many of one request as it was sent at the same time, for they are told apart by nothing.
    kept: Mutex<HashMap<u64, Vec<(String, Instant)>>>,
}

/// The key of a request that is being served.
pub(crate) struct Ticket<'a> {
    key: String,
    /// Where it is kept, unless the client gave it.
    kept: Option<(&'a Retries, u64)>,
}

impl Retries {
    /// The key of a request.
    pub(crate) fn ticket(
        &self,
        kind: RequestKind,
        source: &Source,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Ticket<'_>> {
        if let Some(key) = idempotency_key(headers)? {
            return Ok(Ticket { key, kept: None });
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
            || format!("{OURS}{}", Alphanumeric.sample_string(&mut rand::rng(), 8)),
            |(key, _)| key,
        );
        Ok(Ticket {
            key,
            kept: Some((self, request)),
        })
    }
}

impl Ticket<'_> {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Forgets the key once its request has a definite answer.
    pub(crate) fn settle<T>(mut self, result: Result<T>) -> Result<T> {
        if !matches!(&result, Err(error) if error.will_pass()) {
            self.kept = None;
        }
        result
    }
}

/// A request that is given up, because its client has gone or its time is over, may have been served.
impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let Some((retries, request)) = self.kept else {
            return;
        };
        let mut kept = retries.kept.lock().unwrap_or_else(PoisonError::into_inner);
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
pub(crate) fn is_given(key: &str) -> bool {
    !key.starts_with(OURS)
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

    fn key_of(retries: &Retries, source: &Source, body: &[u8], answer: Result<()>) -> String {
        let headers = HeaderMap::new();
        let ticket = retries.ticket(RequestKind::Add, source, &headers, body);
        let ticket = ticket.unwrap();
        let key = ticket.key().to_owned();
        ticket.settle(answer).ok();
        key
    }

    #[test]
    fn only_requests_without_a_definite_answer_are_known_when_they_come_again() {
        let retries = Retries::default();
        let (a, b) = (Source::of("10.0.0.1"), Source::of("10.0.0.2"));
        let passing = || Err(Error::Passing(String::new()));
        let first = key_of(&retries, &a, b"x", passing());
        assert_ne!(key_of(&retries, &b, b"x", Ok(())), first, "another caller");
        assert_ne!(key_of(&retries, &a, b"y", Ok(())), first, "another body");
        assert_eq!(key_of(&retries, &a, b"x", passing()), first);
        assert_eq!(key_of(&retries, &a, b"x", Ok(())), first);
        let next = key_of(&retries, &a, b"x", Err(Error::Conflict(String::new())));
        assert_ne!(next, first, "it was answered");
        assert_ne!(key_of(&retries, &a, b"x", Ok(())), next, "it was refused");
        assert!(retries.kept.lock().unwrap().is_empty());
    }

    #[test]
    fn each_of_several_requests_alike_that_got_no_answer_is_known_again() {
        let retries = Retries::default();
        let (source, headers) = (Source::of("10.0.0.1"), HeaderMap::new());
        let new = || retries.ticket(RequestKind::Add, &source, &headers, b"x");
        let keys = |tickets: &[Ticket<'_>]| {
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
        assert!(given.iter().all(|key| !is_given(key)));
    }

    #[test]
    fn requests_at_the_same_time_are_different_requests() {
        let retries = Retries::default();
        let (source, headers) = (Source::of("10.0.0.1"), HeaderMap::new());
        let new = || retries.ticket(RequestKind::Remove, &source, &headers, b"x");
        let (first, second) = (new().unwrap(), new().unwrap());
        assert_ne!(first.key(), second.key());
    }
}
