//! Slow start: the order in which similar actions are sent, and the errors that stop the rest.
//! See docs/decisions/0027.

use di_api::Reason;

use crate::{Action, Error};

/// Splits similar actions into batches. Each is sent once the one before has succeeded.
///
/// After a failed reconcile the batches have 1, 2, 4, ... actions, as in `slowStartBatch` of the
/// Kubernetes Job controller. A job without failures sends all actions at once.
pub(super) fn batches<T>(mut actions: &[T], has_failed: bool) -> impl Iterator<Item = &[T]> {
    let mut size = if has_failed { 1 } else { usize::MAX };
    std::iter::from_fn(move || {
        let (batch, rest) = actions.split_at(size.min(actions.len()));
        actions = rest;
        size = size.saturating_mul(2);
        (!batch.is_empty()).then_some(batch)
    })
}

/// Groups actions that would fail with the same error. An error stops only its own group.
pub(super) fn group_similar(actions: Vec<&Action>) -> Vec<Vec<&Action>> {
    let mut groups: Vec<Vec<&Action>> = Vec::new();
    for action in actions {
        match groups
            .iter_mut()
            .find(|group| are_similar(group[0], action))
        {
            Some(group) => group.push(action),
            None => groups.push(vec![action]),
        }
    }
    groups
}

/// Returns true if the actions would fail with the same error.
///
/// Pods are similar if they have the same role and resources, and so the same template and share
/// of a quota. `StopPod` is a patch: it may succeed where deletes time out.
fn are_similar(one: &Action, other: &Action) -> bool {
    match (one, other) {
        (Action::CreatePod(one), Action::CreatePod(other)) => {
            (one.role, &one.resources) == (other.role, &other.resources)
        }
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    }
}

/// Returns true if the error stops similar actions: the API server does not answer or is
/// overloaded, or it would reject all such creates.
///
/// A rejected delete stops nothing: a single object may be protected.
pub(super) fn stops_similar(action: &Action, error: &Error) -> bool {
    let is_overloaded = error.api_status().is_some_and(|status| status.code == 429);
    let is_rejected = Reason::REJECTIONS.contains(&error.reason());
    error.outcome_unknown() || is_overloaded || is_rejected && action.created_object().is_some()
}

#[cfg(test)]
mod tests {
    use di_api::{Origin, PlanEntry, Role};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    #[test]
    fn batches_double_after_failure() {
        let sizes = |count, has_failed| -> Vec<usize> {
            let actions = vec![(); count];
            batches(&actions, has_failed).map(<[()]>::len).collect()
        };
        assert_eq!(sizes(20, true), [1, 2, 4, 8, 5]);
        assert_eq!(sizes(3, true), [1, 2]);
        assert_eq!(sizes(20, false), [20]);
        assert_eq!(sizes(0, true), [0; 0]);
    }

    #[test]
    fn similar_actions_share_a_group() {
        let entry = |role| PlanEntry::new("p".to_owned(), role, Origin::Declared, 0);
        let pod = |role| Action::CreatePod(entry(role));
        let mut large = entry(Role::Learner);
        large.resources.gpus = Some(Quantity("2".to_owned()));
        let all = [
            pod(Role::Collector),
            pod(Role::Learner),
            Action::CreateService(entry(Role::Collector)),
            pod(Role::Collector),
            Action::CreatePod(large),
            Action::CreateService(entry(Role::Learner)),
        ];
        let sizes: Vec<_> = group_similar(all.iter().collect())
            .iter()
            .map(Vec::len)
            .collect();
        assert_eq!(sizes, [2, 1, 2, 1]);
    }
}
