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

/// Keys of requests that got no definite answer.
#[derive(Debug, Default)]
pub(crate) struct Retries {
    hasher: RandomState,
    kept: Mutex<HashMap<u64, (String, Instant)>>,
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
        let earlier = kept.remove(&request);
        let key = earlier
            .filter(|(_, at)| at.elapsed() < KEPT_FOR)
            .map_or_else(
                || format!("~{}", Alphanumeric.sample_string(&mut rand::rng(), 8)),
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
        if kept.len() >= MOST_KEPT {
            kept.retain(|_, (_, at)| at.elapsed() < KEPT_FOR);
        }
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(request, (std::mem::take(&mut self.key), Instant::now()));
    }
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
    fn requests_at_the_same_time_are_different_requests() {
        let retries = Retries::default();
        let (source, headers) = (Source::of("10.0.0.1"), HeaderMap::new());
        let new = || retries.ticket(RequestKind::Remove, &source, &headers, b"x");
        let (first, second) = (new().unwrap(), new().unwrap());
        assert_ne!(first.key(), second.key());
    }
}
