//! Units: replicas of several pods. See docs/decisions/0040.

use std::collections::HashSet;

use di_api::{PlanEntry, UnitStart};
use di_plan::{incomplete_units, leader_of, replaces_single_pods};

use super::{learner_groups::group_owner, loss::ReplicaLoss, observed::Observed};

/// Returns the name of the entry that is replaced for a lost pod: of its unit or learner group, or
/// of the pod itself if its unit replaces single pods. `lost` has the names of all lost pods.
pub(super) fn replaced_entry<'a>(
    observed: &Observed,
    entry: &'a PlanEntry,
    lost: &HashSet<String>,
) -> &'a str {
    let owner = group_owner(entry);
    let is_single = entry.is_in_unit() && replaces_single_pods(&observed.job, entry);
    if is_single && !lost.contains(owner) {
        return &entry.name;
    }
    owner
}

/// Returns the leaders with a pod whose units lack others: these were deleted before they were
/// adopted. Units that replace single pods are completed instead.
pub(super) fn lost_units(
    observed: &Observed,
    plan: &[PlanEntry],
) -> Vec<(String, ReplicaLoss<'static>)> {
    let incomplete = incomplete_units(plan);
    let is_lost = |leader: &&PlanEntry| {
        let has_run = leader.uid.is_some() && !leader.done;
        let is_whole = !replaces_single_pods(&observed.job, leader);
        incomplete.contains(&*leader.name) && has_run && is_whole
    };
    let lost = plan.iter().filter(is_lost).map(|leader| {
        let loss = ReplicaLoss {
            cause: "lacks some pods of its unit".to_owned(),
            run_seconds: None,
            failed: None,
        };
        (leader.name.clone(), loss)
    });
    lost.collect()
}

/// Returns true if a pod is created after that of its leader, which has no node yet.
pub(super) fn waits_for_leader(observed: &Observed, entry: &PlanEntry) -> bool {
    let unit = observed.job.spec.unit(entry.role);
    let starts_later = unit.is_some_and(|unit| unit.start == UnitStart::LeaderFirst);
    let has_node = |leader: &str| {
        let pod = observed.own_pod(leader);
        pod.is_some_and(|pod| pod.scheduled == Ok(true))
    };
    starts_later && leader_of(entry).is_some_and(|leader| !has_node(leader))
}
