//! Replicas that wait for quota of their own. Those with pods are replaced.

use di_api::{PlanEntry, QueueState};
use di_plan::{StatusSizeBudget, Suffixes, replace};

use super::{super::observed::Observed, base_quota::needs_quota, drafts::entries_of_owner};

/// Lets replicas without quota wait for quota of their own. Those that have pods, with quota of the
/// whole job, are replaced.
pub(super) fn queue_others(
    observed: &Observed,
    plan: &mut Vec<PlanEntry>,
    suffixes: &mut dyn Suffixes,
) {
    let lacks_quota = |owner: &&PlanEntry| {
        let entries = entries_of_owner(plan, owner).unwrap_or_default();
        needs_quota(plan, owner) && entries.iter().any(|entry| entry.placement.is_none())
    };
    let others = plan.iter().filter(|entry| entry.queue.is_none());
    let others: Vec<PlanEntry> = others.filter(lacks_quota).cloned().collect();
    if others.is_empty() {
        return;
    }
    let mut budget = StatusSizeBudget::for_job(&observed.job, plan);
    for owner in others {
        let waiting = if has_pod(observed, plan, &owner) {
            replace_at_once(observed, plan, &owner, &mut budget, suffixes)
        } else {
            plan.iter_mut().find(|entry| entry.name == owner.name)
        };
        if let Some(entry) = waiting {
            entry.queue = Some(QueueState::Waiting);
        }
    }
}

/// Replaces replicas that wait and have pods: Kueue has evicted them. The pods end with their grace
/// period.
pub(super) fn replace_evicted(
    observed: &Observed,
    plan: &mut Vec<PlanEntry>,
    suffixes: &mut dyn Suffixes,
) {
    let is_evicted = |entry: &&PlanEntry| {
        let is_waiting = entry.queue == Some(QueueState::Waiting);
        is_waiting && needs_quota(plan, entry) && has_pod(observed, plan, entry)
    };
    let evicted: Vec<PlanEntry> = plan.iter().filter(is_evicted).cloned().collect();
    if evicted.is_empty() {
        return;
    }
    let mut budget = StatusSizeBudget::for_job(&observed.job, plan);
    for owner in evicted {
        replace_at_once(observed, plan, &owner, &mut budget, suffixes);
    }
}

/// Whether a replica, or any of its learner group, has a pod.
fn has_pod(observed: &Observed, plan: &[PlanEntry], owner: &PlanEntry) -> bool {
    let entries = entries_of_owner(plan, owner).unwrap_or_default();
    let mut entries = entries.iter();
    entries.any(|entry| entry.uid.is_some() || observed.own_pod(&entry.name).is_some())
}

/// Replaces a replica without quota. It is no failure, so there is no backoff. By the new name the
/// coordinator knows that it is another process.
fn replace_at_once<'a>(
    observed: &Observed,
    plan: &'a mut Vec<PlanEntry>,
    owner: &PlanEntry,
    budget: &mut StatusSizeBudget,
    suffixes: &mut dyn Suffixes,
) -> Option<&'a mut PlanEntry> {
    if !budget.reserve_replacement(plan, owner) {
        // The status is full. Removed entries are dropped first.
        return None;
    }
    let name = replace(
        &*observed.job,
        plan,
        &owner.name,
        None,
        suffixes,
        observed.now,
    )?;
    let entry = plan.iter_mut().find(|entry| entry.name == name)?;
    (entry.attempt, entry.not_before) = (owner.attempt, owner.not_before.clone());
    entry.placement = None;
    Some(entry)
}
