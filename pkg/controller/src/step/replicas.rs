//! Collectors and learners: updates the plan, then creates and deletes pods and services to match
//! it.

use std::collections::{HashMap, HashSet};

use di_api::{EntryState, Phase, PlanEntry, QueueState, Reason, names};
use di_plan::{
    PodView, StatusSizeBudget, Suffixes, adopt, drop_failed_history, find_entry, leader_of,
    propagate_to_members, replace, replace_unit_member, trim_history,
};
use kube::ResourceExt;

use super::{
    coordinator,
    failures::{GroupOutcome, after_ignored_failure, evaluate_group, record_failures},
    gang::reconcile_gang,
    learner_groups::{
        group_owner, group_owner_entry, incomplete_groups, lacks_template, partially_deleted,
        reconcile_learner_groups,
    },
    loss::{ReplicaLoss, backoff_remaining, find_loss, has_completed},
    observed::Observed,
    outcome::{Action, EventRecord, Step, join_names},
    phase::finish_job,
    planning::{drop_deleted_entries, plan_declared},
    queueing::{Slots, assign_quota},
    reported::{awaiting_report, evaluate_reported},
    units::{lost_units, replaced_entry, waits_for_leader},
};

pub(super) fn reconcile_replicas(
    observed: &Observed,
    step: &mut Step,
    suffixes: &mut dyn Suffixes,
) {
    let mut plan = std::mem::take(&mut step.status.plan);
    // Adopt orphans first, so that no replica is created in their place.
    let orphans = find_orphans(observed, &plan, step);
    let coordinator = observed.own_pod(&names::coordinator_name(&observed.job.name_any()));
    let coordinator_instance = coordinator.map(PodView::coordinator_instance);
    adopt(
        &observed.job,
        &mut plan,
        &orphans,
        coordinator_instance,
        observed.now,
    );
    emit_adopted(&plan, &orphans, step);
    propagate_to_members(&mut plan);
    if let Some(message) = evaluate_reported(observed, &mut plan, step) {
        finish_job(observed, step, Phase::Failed, Reason::FailureRule, &message);
        return;
    }
    let partially_deleted = partially_deleted(observed, &plan);
    record_pods(observed, &mut plan, &partially_deleted);
    plan_declared(observed, &mut plan, suffixes);
    if let Some(message) = replace_lost(observed, &mut plan, step, suffixes) {
        finish_job(observed, step, Phase::Failed, Reason::FailureRule, &message);
        return;
    }
    reconcile_learner_groups(observed, &mut plan, step, suffixes);
    trim_history(&mut plan);
    drop_deleted_entries(observed, &mut plan, step);
    assign_quota(observed, &mut plan, step, suffixes);
    let gang = reconcile_gang(observed, &plan, step);
    let blocked_groups = blocked_groups(observed, &plan);
    let awaiting_report = awaiting_report(&plan);
    let mut slots = Slots::new(observed, &plan, step);
    let previous_coordinator_exists = coordinator::owned_by_previous_job(observed);
    let may_create_pods = coordinator::exists_or_is_created(observed, step);
    for entry in &plan {
        match entry.state {
            // The replicas would connect to the previous job's coordinator at the same address.
            EntryState::Wanted if previous_coordinator_exists => {}
            EntryState::Wanted if blocked_groups.contains(group_owner(entry)) => {}
            EntryState::Wanted | EntryState::Replaced
                if awaiting_report.contains(group_owner(entry)) => {}
            EntryState::Wanted => {
                let may_start = gang.starts_together(entry) || !waits_for_leader(observed, entry);
                let may_create_pods = may_create_pods && may_start && gang.may_create(entry);
                let may_create_pod =
                    |step: &Step| may_create_pods && slots.take(&plan, entry, step);
                ensure_pod_and_service(observed, &plan, entry, may_create_pod, step);
            }
            EntryState::Removing => delete_pod_then_service(observed, entry, true, step),
            EntryState::Replaced => delete_pod_then_service(observed, entry, false, step),
        }
    }
    delete_unused_services(observed, &plan, step);
    step.status.plan = plan;
}

/// Deletes services without a plan entry and without a pod. A reconcile with a stale cache may have
/// dropped the entry.
fn delete_unused_services(observed: &Observed, plan: &[PlanEntry], step: &mut Step) {
    let coordinator = names::coordinator_name(&observed.job.name_any());
    let planned = planned_names(plan);
    let unused = observed.own_services().filter(|service| {
        !service.deleting
            && service.name != coordinator
            && observed.own_pod(&service.name).is_none()
            && !planned.contains(service.name.as_str())
    });
    step.actions.extend(unused.map(Action::delete_service));
}

fn planned_names(plan: &[PlanEntry]) -> HashSet<&str> {
    plan.iter().map(|entry| entry.name.as_str()).collect()
}

/// Returns own pods without a plan entry that a live read has confirmed. The cache may still show
/// a pod after its entry was dropped.
fn find_orphans(observed: &Observed, plan: &[PlanEntry], step: &mut Step) -> Vec<PodView> {
    let coordinator = names::coordinator_name(&observed.job.name_any());
    let planned = planned_names(plan);
    let unplanned = observed.own_pods().filter(|pod| {
        !pod.deleting && pod.name != coordinator && !planned.contains(pod.name.as_str())
    });
    let (verified, unverified): (Vec<_>, Vec<_>) =
        unplanned.partition(|pod| observed.live_reads.contains_key(&pod.name));
    step.needs_live_read
        .extend(unverified.into_iter().map(|pod| pod.name.clone()));
    let existing = verified
        .into_iter()
        .filter(|pod| observed.live_reads[&pod.name]);
    existing.cloned().collect()
}

/// Emits one event for all adopted pods.
fn emit_adopted(plan: &[PlanEntry], orphans: &[PodView], step: &mut Step) {
    if orphans.is_empty() {
        return;
    }
    let wanted = plan.iter().filter(|entry| entry.is_wanted());
    let wanted: HashSet<_> = wanted.map(|entry| entry.name.as_str()).collect();
    let is_wanted = |name: &&str| wanted.contains(name);
    let names = orphans.iter().map(|pod| pod.name.as_str());
    let names: Vec<_> = names.filter(is_wanted).collect();
    if !names.is_empty() {
        let message = format!("adopted pods without a plan entry: {}", join_names(&names));
        step.events
            .push(EventRecord::normal(Reason::ReplicaAdopted, message));
    }
}

/// Records the UID of each new pod in its entry. See docs/decisions/0004.
///
/// A terminating pod was created before the job was suspended, and blocks its name. Only in a
/// [partially deleted](partially_deleted) learner group or unit it is recorded, so that the group is
/// replaced.
fn record_pods(observed: &Observed, plan: &mut [PlanEntry], partially_deleted: &HashSet<String>) {
    for entry in plan.iter_mut().filter(|entry| entry.uid.is_none()) {
        let pod = observed.own_pod(&entry.name);
        let pod = pod.filter(|pod| !pod.deleting || partially_deleted.contains(group_owner(entry)));
        entry.uid = pod.map(|pod| pod.uid.clone());
    }
}

/// Returns the owners of groups that wait until a terminating pod releases the name of a replica.
fn blocked_groups<'a>(observed: &Observed, plan: &'a [PlanEntry]) -> HashSet<&'a str> {
    let is_blocked =
        |entry: &&PlanEntry| entry.uid.is_none() && observed.own_pod(&entry.name).is_some();
    plan.iter().filter(is_blocked).map(group_owner).collect()
}

/// Replaces replicas with a failed, terminating or deleted pod. The endpoint lists a failed replica
/// until it is replaced. See docs/decisions/0012.
///
/// Returns a message if a failure rule fails the job.
fn replace_lost(
    observed: &Observed,
    plan: &mut Vec<PlanEntry>,
    step: &mut Step,
    suffixes: &mut dyn Suffixes,
) -> Option<String> {
    for entry in plan.iter_mut().filter(|entry| entry.is_wanted()) {
        entry.done |= has_completed(observed, entry);
    }
    let created = plan
        .iter()
        .filter(|entry| entry.is_wanted() && entry.uid.is_some() && !entry.done);
    let (verified, unverified): (Vec<_>, Vec<_>) = created.partition(|entry| {
        observed.own_pod(&entry.name).is_some() || observed.live_reads.contains_key(&entry.name)
    });
    step.needs_live_read
        .extend(unverified.into_iter().map(|entry| entry.name.clone()));
    let lost: Vec<_> = verified
        .into_iter()
        .filter_map(|entry| Some((entry.name.clone(), find_loss(observed, entry)?)))
        .chain(incomplete_groups(plan))
        .chain(lost_units(observed, plan))
        .collect();
    if lost.is_empty() {
        return None;
    }
    let mut budget = StatusSizeBudget::for_job(&observed.job, plan);
    let (mut replaced, mut failures) = (Vec::new(), Vec::new());
    for (owner, losses) in group_by_owner(observed, plan, lost) {
        let Some(entry) = find_entry(plan, &owner) else {
            continue;
        };
        let failed = losses.iter().filter_map(|(_, loss)| loss.failed.as_ref());
        let outcome = evaluate_group(observed, entry, failed.map(|(pod, end)| (*pod, end)));
        if outcome.job_failure.is_some() {
            record_failures(step, failures.into_iter().chain(outcome.records));
            return outcome.job_failure;
        }
        let is_done = |name: &String| outcome.done.contains(name);
        let lost = losses.iter().find(|(name, _)| !is_done(name));
        let mut next = entry.clone();
        outcome.apply_to(&mut next);
        if lost.is_some() && !budget.reserve_replacement(plan, &next) {
            // The status is full. Deleting failed pods that are kept for their logs makes room,
            // and triggers the next reconcile. See docs/decisions/0003.
            drop_failed_history(plan);
            break;
        }
        for entry in plan.iter_mut().filter(|entry| is_done(&entry.name)) {
            entry.done = true;
        }
        if let Some((name, loss)) = lost {
            replaced.extend(replace_group(
                observed, plan, &owner, name, loss, &outcome, suffixes,
            ));
        }
        failures.extend(outcome.records);
    }
    record_failures(step, failures);
    // Gives the replacements the resources of the current spec.
    plan_declared(observed, plan, suffixes);
    step.emit_replaced(replaced);
    None
}

/// Lost replicas with their names.
type Losses<'a> = Vec<(String, ReplicaLoss<'a>)>;

/// Groups lost pods by the [entry that is replaced](replaced_entry).
fn group_by_owner<'a>(
    observed: &Observed,
    plan: &[PlanEntry],
    lost: Losses<'a>,
) -> Vec<(String, Losses<'a>)> {
    let lost_names: HashSet<String> = lost.iter().map(|(name, _)| name.clone()).collect();
    let mut groups: Vec<(String, Losses<'a>)> = Vec::new();
    let mut positions = HashMap::new();
    for (name, loss) in lost {
        let owner = find_entry(plan, &name)
            .map_or(&*name, |entry| replaced_entry(observed, entry, &lost_names));
        let owner = owner.to_owned();
        let position = *positions.entry(owner.clone()).or_insert(groups.len());
        if position == groups.len() {
            groups.push((owner, Vec::new()));
        }
        groups[position].1.push((name, loss));
    }
    groups
}

/// Replaces the owner of a lost pod, as the failure rules say: a replica with all its pods, or a
/// single pod of a unit. Returns the name of the lost pod and the message of the event.
fn replace_group(
    observed: &Observed,
    plan: &mut Vec<PlanEntry>,
    owner: &str,
    name: &str,
    loss: &ReplicaLoss<'_>,
    outcome: &GroupOutcome,
    suffixes: &mut dyn Suffixes,
) -> Option<(String, String)> {
    let entry = find_entry(plan, name)?;
    let target = match leader_of(entry) {
        Some(leader) if leader == owner && entry.is_in_unit() => format!("{leader} and its unit"),
        Some(leader) if leader == owner => format!("{leader} and its ddp learners"),
        _ if entry.leads_group() => "it and its group".to_owned(),
        _ => "it".to_owned(),
    };
    let is_single = owner == name && !entry.is_replica();
    let attempt = find_entry(plan, owner)?.attempt;
    let (job, now) = (&*observed.job, observed.now);
    let fresh = if is_single {
        replace_unit_member(job, plan, name, loss.run_seconds, suffixes, now)?
    } else {
        replace(job, plan, name, loss.run_seconds, suffixes, now)?
    };
    if let Some(entry) = plan.iter_mut().find(|entry| entry.name == fresh) {
        outcome.apply_to(entry);
        if outcome.is_ignored {
            entry.attempt = attempt;
            entry.not_before = after_ignored_failure(now);
        }
    }
    let message = format!("{name} {}; {fresh} replaces {target}", loss.cause);
    Some((name.to_owned(), message))
}

/// Creates the missing pod and service of a wanted entry.
fn ensure_pod_and_service(
    observed: &Observed,
    plan: &[PlanEntry],
    entry: &PlanEntry,
    may_create_pod: impl FnOnce(&Step) -> bool,
    step: &mut Step,
) {
    if entry.done {
        stop_done(observed.own_pod(&entry.name), step);
        return;
    }
    // The backoff and the template of the owner apply to its whole learner group or unit. A single
    // pod of a unit can have a backoff of its own.
    let owner = group_owner_entry(plan, entry);
    if lacks_template(observed, owner) || owner.queue == Some(QueueState::Waiting) {
        return;
    }
    for not_before in [&owner.not_before, &entry.not_before] {
        if let Some(delay) = backoff_remaining(not_before.as_ref(), observed.now) {
            step.requeue_within(delay);
            return;
        }
    }
    if observed.own_service(&entry.name).is_none() {
        step.actions.push(Action::CreateService(entry.clone()));
    }
    // An entry with a UID and no pod is replaced. See docs/decisions/0004.
    if entry.uid.is_none() && may_create_pod(step) {
        step.actions.push(Action::CreatePod(entry.clone()));
    }
}

/// Ends the pod of a done replica. One that only waits has no logs, so it is deleted.
fn stop_done(pod: Option<&PodView>, step: &mut Step) {
    let waiting = pod.filter(|pod| pod.end.is_none() && pod.is_active() && !pod.deleting);
    step.actions.extend(waiting.map(Action::delete_pod));
    stop_sidecars(pod, step);
}

/// Stops the sidecars of a pod whose main container has ended: they would keep its node and quota.
/// The pod is kept for its logs. See docs/decisions/0017.
fn stop_sidecars(pod: Option<&PodView>, step: &mut Step) {
    let Some(pod) = pod.filter(|pod| pod.end.is_some() && pod.is_active()) else {
        return;
    };
    if !pod.deleting && !pod.deadline_requested {
        step.actions.push(Action::stop_pod(pod));
    }
}

/// Deletes the pod of an entry with its own grace period, then its service, so that a terminating
/// pod stays reachable. An ended pod is kept for its logs unless `delete_ended`.
fn delete_pod_then_service(
    observed: &Observed,
    entry: &PlanEntry,
    delete_ended: bool,
    step: &mut Step,
) {
    let has_ended = |pod: &PodView| pod.end.is_some() || !pod.is_active();
    let is_deleted = |pod: &PodView| delete_ended || pod.deleting || !has_ended(pod);
    let pod = observed.own_pod(&entry.name);
    if !delete_ended {
        stop_sidecars(pod, step);
    }
    if let Some(pod) = pod.filter(|pod| is_deleted(pod)) {
        if !pod.deleting {
            step.actions.push(Action::delete_pod(pod));
        }
    } else if let Some(service) = observed
        .own_service(&entry.name)
        .filter(|service| !service.deleting)
    {
        step.actions.push(Action::delete_service(service));
    }
}
