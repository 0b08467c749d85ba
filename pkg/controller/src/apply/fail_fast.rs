//! Skips actions that are expected to fail because similar ones just failed, to save requests.

use di_api::Reason;

use super::created_object;
use crate::{Action, Error, error::Result};

/// After this many failures and no success, similar actions are skipped. A failing API server also
/// rejects a few of many requests, so one failure proves nothing.
pub(super) const MAX_FAILURES: usize = 3;

/// Results of the actions so far.
#[derive(Debug, Default)]
pub(super) struct FailFast<'a> {
    /// Rejected actions; [similar](are_similar) actions would be rejected too.
    rejected: Vec<&'a Action>,
    /// Actions that failed because of the API server or the connection.
    failed: Vec<&'a Action>,
    /// Actions that succeeded, one of each similar group.
    succeeded: Vec<&'a Action>,
}

impl<'a> FailFast<'a> {
    /// Returns true if the action is expected to fail.
    pub fn should_skip(&self, action: &Action) -> bool {
        let count_similar = |others: &[&Action]| {
            let others = others.iter().filter(|other| are_similar(action, other));
            others.count()
        };
        count_similar(&self.rejected) > 0
            || (count_similar(&self.succeeded) == 0 && count_similar(&self.failed) >= MAX_FAILURES)
    }

    /// Records the result of an action.
    pub fn record_result(&mut self, action: &'a Action, result: &Result<bool>) {
        match result {
            // A created coordinator does not mean that other pods can be created.
            Ok(_) if action.creates_coordinator() => {}
            Ok(_) => {
                if !self
                    .succeeded
                    .iter()
                    .any(|other| are_similar(action, other))
                {
                    self.succeeded.push(action);
                }
            }
            Err(error) if similar_would_fail(action, error) => self.rejected.push(action),
            Err(error) if error.outcome_unknown() => self.failed.push(action),
            Err(_) => {}
        }
    }
}

/// Returns true if `one` is skipped when `other` fails.
///
/// Pods are similar if they have the same role and resources, and so the same template and share
/// of a quota. All pods depend on the coordinator. Deletes are similar if they delete the same
/// resource. `StopPod` is a patch: it may succeed where deletes time out.
fn are_similar(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::CreatePod(_), other) if other.creates_coordinator() => true,
        (Action::CreatePod(one), Action::CreatePod(other)) => {
            (one.role, &one.resources) == (other.role, &other.resources)
        }
        (Action::CreateService(_), Action::CreateService(_))
        | (Action::DeletePod { .. }, Action::DeletePod { .. })
        | (Action::DeleteService { .. }, Action::DeleteService { .. }) => true,
        _ => false,
    }
}

/// Returns true if similar actions would fail with the same error.
///
/// This holds for rejected creates and for timeouts. It does not hold for rejected deletes: a
/// single object may be protected. Any lasting error of the coordinator stops other pods, which
/// could take its place in a quota.
fn similar_would_fail(action: &Action, error: &Error) -> bool {
    let reason = error.reason();
    (Reason::REJECTIONS.contains(&reason) && created_object(action).is_some())
        || reason == Reason::Timeout
        || (action.creates_coordinator() && !error.is_transient())
}
