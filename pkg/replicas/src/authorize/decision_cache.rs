use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};

use super::access::Access;

/// How long an allowed decision is cached.
const ALLOWED_TTL: Duration = Duration::from_secs(10);
/// How long a denied decision is cached.
const DENIED_TTL: Duration = Duration::from_secs(2);
const MAX_DECISIONS: usize = 1024;
/// Limit of cached tokens in bytes. Longer ones are reviewed with each request.
const MAX_TOKEN_LEN: usize = 8192;
/// Limit of concurrent reviews, so that invalid tokens cannot overload the API server.
const MAX_CONCURRENT_REVIEWS: usize = 16;

/// Recent decisions about tokens.
pub(crate) struct DecisionCache {
    kept: Mutex<HashMap<AccessQuery, (Decision, Instant)>>,
    pub(super) reviews: Semaphore,
}

/// A token and the access that it was reviewed for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct AccessQuery {
    token: String,
    verb: &'static str,
    namespace: Option<String>,
    job: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The owner of the token has the access.
    Allowed,
    /// The owner of the token does not have the access.
    Forbidden,
    /// The token is not valid.
    InvalidToken,
}

impl AccessQuery {
    pub(super) fn new(token: &str, access: Access<'_>) -> Self {
        Self {
            token: token.to_owned(),
            verb: access.verb(),
            namespace: access.namespace().map(str::to_owned),
            job: access.job().map(str::to_owned),
        }
    }
}

impl Default for DecisionCache {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            reviews: Semaphore::new(MAX_CONCURRENT_REVIEWS),
        }
    }
}

impl DecisionCache {
    pub(super) fn get(&self, query: &AccessQuery) -> Option<Decision> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (decision, until) = kept.get(query)?;
        (*until > Instant::now()).then_some(*decision)
    }

    pub(super) fn put(&self, query: AccessQuery, decision: Decision) {
        if query.token.len() > MAX_TOKEN_LEN {
            return;
        }
        let now = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_DECISIONS {
            kept.retain(|_, (_, until)| *until > now);
        }
        if kept.len() >= MAX_DECISIONS {
            kept.clear();
        }
        let keep = match decision {
            Decision::Allowed => ALLOWED_TTL,
            Decision::Forbidden | Decision::InvalidToken => DENIED_TTL,
        };
        kept.insert(query, (decision, now + keep));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_cached_by_token_and_action_with_a_limit() {
        let decisions = DecisionCache::default();
        let job = ("ns".to_owned(), "j".to_owned());
        let read = Access::Read {
            namespace: Some("ns"),
            job: Some("j"),
        };
        decisions.put(AccessQuery::new("t", read), Decision::Allowed);
        assert_eq!(
            decisions.get(&AccessQuery::new("t", read)),
            Some(Decision::Allowed)
        );
        assert_eq!(
            decisions.get(&AccessQuery::new("t", Access::Change(&job))),
            None
        );
        assert_eq!(decisions.get(&AccessQuery::new("u", read)), None);
        for i in 0..2 * MAX_DECISIONS {
            decisions.put(
                AccessQuery::new(&i.to_string(), read),
                Decision::InvalidToken,
            );
        }
        assert!(decisions.kept.lock().unwrap().len() <= MAX_DECISIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn decision_expires_after_ten_seconds_and_denial_after_two() {
        let decisions = DecisionCache::default();
        let query = AccessQuery::new(
            "t",
            Access::Read {
                namespace: None,
                job: None,
            },
        );
        for (decision, seconds) in [
            (Decision::Allowed, 10),
            (Decision::Forbidden, 2),
            (Decision::InvalidToken, 2),
        ] {
            decisions.put(query.clone(), decision);
            let nearly = Duration::from_millis(seconds * 1000 - 1);
            tokio::time::advance(nearly).await;
            // Reading a decision does not extend its lifetime.
            assert_eq!(decisions.get(&query), Some(decision));
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(decisions.get(&query), None);
        }
    }
}
