use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};

use super::Action;

/// How long a token that was let in is not reviewed again.
const ALLOWED_FOR: Duration = Duration::from_secs(10);
/// How long a token that was refused is not reviewed again.
const REFUSED_FOR: Duration = Duration::from_secs(2);
const MOST_KEPT: usize = 1024;
/// Longer ones are reviewed each time.
const LONGEST_TOKEN: usize = 8192;
/// Tokens reviewed at a time: whoever sends rubbish must not keep the API server busy.
const REVIEWS: usize = 16;

/// What was decided about tokens lately.
pub(crate) struct DecisionCache {
    kept: Mutex<HashMap<AccessQuery, (Decision, Instant)>>,
    pub(super) reviews: Semaphore,
}

/// A token and what it was to be good for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct AccessQuery {
    token: String,
    verb: &'static str,
    namespace: Option<String>,
    job: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Its owner may do it.
    Allowed,
    /// Its owner may not do it.
    Forbidden,
    /// It is no valid token.
    InvalidToken,
}

impl AccessQuery {
    pub(super) fn new(token: &str, action: Action<'_>) -> Self {
        Self {
            token: token.to_owned(),
            verb: action.verb(),
            namespace: action.namespace().map(str::to_owned),
            job: action.job().map(str::to_owned),
        }
    }
}

impl Default for DecisionCache {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            reviews: Semaphore::new(REVIEWS),
        }
    }
}

impl DecisionCache {
    pub(super) fn get(&self, question: &AccessQuery) -> Option<Decision> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (decision, until) = kept.get(question)?;
        (*until > Instant::now()).then_some(*decision)
    }

    pub(super) fn put(&self, question: AccessQuery, decision: Decision) {
        if question.token.len() > LONGEST_TOKEN {
            return;
        }
        let now = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            kept.retain(|_, (_, until)| *until > now);
        }
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        let keep = match decision {
            Decision::Allowed => ALLOWED_FOR,
            Decision::Forbidden | Decision::InvalidToken => REFUSED_FOR,
        };
        kept.insert(question, (decision, now + keep));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_kept_by_token_and_action_and_never_too_many() {
        let decisions = DecisionCache::default();
        let job = ("ns".to_owned(), "j".to_owned());
        let read = Action::Read {
            namespace: Some("ns"),
            job: Some("j"),
        };
        decisions.put(AccessQuery::new("t", read), Decision::Allowed);
        assert_eq!(
            decisions.get(&AccessQuery::new("t", read)),
            Some(Decision::Allowed)
        );
        assert_eq!(
            decisions.get(&AccessQuery::new("t", Action::Change(&job))),
            None
        );
        assert_eq!(decisions.get(&AccessQuery::new("u", read)), None);
        for i in 0..2 * MOST_KEPT {
            decisions.put(
                AccessQuery::new(&i.to_string(), read),
                Decision::InvalidToken,
            );
        }
        assert!(decisions.kept.lock().unwrap().len() <= MOST_KEPT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_decision_is_asked_for_again_after_ten_seconds_and_a_refusal_after_two() {
        let decisions = DecisionCache::default();
        let question = AccessQuery::new(
            "t",
            Action::Read {
                namespace: None,
                job: None,
            },
        );
        for (decision, seconds) in [
            (Decision::Allowed, 10),
            (Decision::Forbidden, 2),
            (Decision::InvalidToken, 2),
        ] {
            decisions.put(question.clone(), decision);
            let nearly = Duration::from_millis(seconds * 1000 - 1);
            tokio::time::advance(nearly).await;
            // Being asked for does not make it last longer.
            assert_eq!(decisions.get(&question), Some(decision));
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(decisions.get(&question), None);
        }
    }
}
