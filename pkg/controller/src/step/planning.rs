//! Parts of the plan that do not depend on running pods.

use di_api::PlanEntry;
use di_plan::{
    Suffixes, drop_deleted, group_members, propagate_to_members, sync_declared, trim_history,
};

use super::{learner_groups::reconcile_learner_groups, observed::Observed, outcome::Step};

/// Updates the plan of a job that has no pods.
pub(super) fn plan_without_pods(observed: &Observed, step: &mut Step, suffixes: &mut dyn Suffixes) {
    let mut plan = std::mem::take(&mut step.status.plan);
    propagate_to_members(&mut plan);
    plan_declared(observed, &mut plan, suffixes);
    reconcile_learner_groups(observed, &mut plan, step, suffixes);
    trim_history(&mut plan);
    drop_deleted_entries(observed, &mut plan, step);
    step.status.plan = plan;
}

/// Gives the plan the replicas and the resources of the current spec.
pub(super) fn plan_declared(
    observed: &Observed,
    plan: &mut Vec<PlanEntry>,
    suffixes: &mut dyn Suffixes,
) {
    sync_declared(&observed.job, plan, &observed.pods, suffixes, observed.now);
}

/// Drops the entries of deleted replicas from the plan.
///
/// An entry is dropped only after a live read has shown that its pod is gone, else the pod would
/// reappear as an orphan. A service is no reason to skip the read: the cache may lack a pod whose
/// create got no response, and its quota would be given back.
pub(super) fn drop_deleted_entries(
    observed: &Observed,
    plan: &mut Vec<PlanEntry>,
    step: &mut Step,
) {
    let exists = |name: &str| observed.own_pod(name).is_some();
    let has_existing_member =
        |name: &str| group_members(plan, name).any(|member| exists(&member.name));
    let deleted = plan
        .iter()
        .filter(|entry| !entry.is_wanted() && !exists(&entry.name))
        .filter(|entry| !entry.leads_group() || !has_existing_member(&entry.name));
    let unverified = deleted.filter(|entry| !observed.live_reads.contains_key(&entry.name));
    step.needs_live_read
        .extend(unverified.map(|entry| entry.name.clone()));
    drop_deleted(plan, |name| {
        exists(name) || observed.live_reads.get(name) != Some(&false)
    });
}
