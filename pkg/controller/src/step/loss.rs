//! The loss of a pod: why its replica is replaced, and the delay before the next pod.

use std::time::Duration;

use di_api::PlanEntry;
use di_plan::{End, MAX_BACKOFF_SECONDS, PodView, Stage};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    failures::{describe_end, end_of_pod},
    observed::Observed,
};

/// Why a replica is replaced.
pub(super) struct ReplicaLoss<'a> {
    /// Predicate for the message, after the name of the replica.
    pub cause: String,
    /// Run time of the pod, for the backoff.
    pub run_seconds: Option<i64>,
    /// Pod and end, if the pod has failed.
    pub failed: Option<(&'a PodView, End)>,
}

/// Returns why a created replica is replaced. `None` if it runs, or has completed.
pub(super) fn find_loss<'a>(observed: &'a Observed, entry: &PlanEntry) -> Option<ReplicaLoss<'a>> {
    let max_run_seconds = entry
        .earliest_creation()
        .map(|from| observed.now.duration_since(from).as_secs());
    let Some(pod) = recorded_pod(observed, entry) else {
        // The exact run time is unknown without the pod.
        return Some(ReplicaLoss {
            cause: "was deleted".to_owned(),
            run_seconds: max_run_seconds,
            failed: None,
        });
    };
    let run_seconds = pod.run_seconds(observed.now, max_run_seconds);
    match (pod.stage(), end_of_pod(observed, pod)) {
        // An eviction with exit code 0. No controller deletes or recreates such a pod.
        // See docs/decisions/0025.
        (Stage::Succeeded, _) if pod.disrupted && !pod.deleting => Some(ReplicaLoss {
            cause: "was evicted by its node and ended with exit code 0".to_owned(),
            run_seconds,
            failed: None,
        }),
        (Stage::Succeeded, _) => None,
        (_, Some(end)) => Some(ReplicaLoss {
            cause: format!("failed: {}", describe_end(observed, &end)),
            run_seconds,
            // The exit code of a deleted pod is no failure.
            failed: (!pod.deleting).then_some((pod, end)),
        }),
        _ if pod.deleting => Some(ReplicaLoss {
            cause: "is being deleted".to_owned(),
            run_seconds,
            failed: None,
        }),
        _ => None,
    }
}

/// Returns true if the recorded pod of a replica has [completed](PodView::has_completed).
pub(super) fn has_completed(observed: &Observed, entry: &PlanEntry) -> bool {
    recorded_pod(observed, entry).is_some_and(PodView::has_completed)
}

/// Returns the pod with the UID that the entry has recorded.
fn recorded_pod<'a>(observed: &'a Observed, entry: &PlanEntry) -> Option<&'a PodView> {
    let pod = observed.own_pod(&entry.name)?;
    (entry.uid.as_deref() == Some(&pod.uid)).then_some(pod)
}

/// Returns the delay before a pod is created.
///
/// A delay above the maximum comes from a clock that is ahead of ours, and is ignored.
pub(super) fn backoff_remaining(not_before: Option<&Time>, now: Timestamp) -> Option<Duration> {
    let remaining = not_before?.0.duration_since(now);
    let is_valid = remaining.is_positive() && remaining.as_secs() <= MAX_BACKOFF_SECONDS;
    is_valid.then(|| remaining.unsigned_abs())
}
