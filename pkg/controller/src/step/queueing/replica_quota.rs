//! The quota of each replica of an admitted job: a share of the quota of the whole job, or quota of
//! its own.

use std::{collections::HashSet, time::Duration};

use di_api::{Placement, PlanEntry, QueueState, QueueingStatus, Reason};
use di_cache::QueueApi;
use di_plan::{
    PodView, Suffixes, WorkloadView, build_placements, patch_finished, patch_pods_ready,
    pod_set_name, release_quota, replica_workload_name,
};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::{
    super::{
        learner_groups::group_owner_entry,
        observed::Observed,
        outcome::{Action, EventRecord, Step, join_names},
    },
    admission::{ensure_workload, find_flavors, find_template},
    base_quota::{
        assign_without_kueue, clear_outdated_quota, count_base_placements, has_unknown_pod,
        needs_quota, reclaim_quota, share_base_quota,
    },
    drafts::{draft_replica, entries_of_owner, hash_templates, replicas_have_own_quota},
    waiting::{queue_others, replace_evicted},
    workloads::{base_name, delete_workloads, is_name_taken, own_workloads, workload_of},
};

/// Gives each replica its quota, or lets it wait without a pod. Gives back what is not needed.
pub fn assign_quota(
    observed: &Observed,
    plan: &mut Vec<PlanEntry>,
    step: &mut Step,
    suffixes: &mut dyn Suffixes,
) {
    let (Some(mut queueing), Some(queue)) =
        (step.status.queueing.take(), observed.job.queue_name())
    else {
        return;
    };
    let is_served = matches!(observed.queue.api, QueueApi::Served(_));
    let base = own_workloads(observed).find(|workload| workload.name == queueing.workload);
    if let Some(base) = base.filter(|_| is_served) {
        let templates = hash_templates(observed, plan);
        clear_outdated_quota(observed, plan, &queueing, &templates);
        reclaim_quota(observed, plan, &mut queueing, base, step);
        share_base_quota(plan, &queueing, base, &templates);
        queue_others(observed, plan, suffixes);
    } else if matches!(
        observed.queue.api,
        QueueApi::NotServed | QueueApi::Forbidden
    ) {
        assign_without_kueue(plan, &queueing);
    }
    if is_served {
        for i in 0..plan.len() {
            if needs_own_quota(plan, &plan[i]) {
                reconcile_own_quota(observed, plan, i, &mut queueing, queue, step);
            }
        }
        delete_unneeded(observed, plan, &queueing, step);
        report_ready(observed, plan, base, step);
    }
    replace_evicted(observed, plan, suffixes);
    step.status.queueing = Some(queueing);
}

fn needs_own_quota(plan: &[PlanEntry], entry: &PlanEntry) -> bool {
    needs_quota(plan, entry) && entry.queue.is_some()
}

/// Admits a replica with quota of its own, or lets it wait.
fn reconcile_own_quota(
    observed: &Observed,
    plan: &mut [PlanEntry],
    i: usize,
    queueing: &mut QueueingStatus,
    queue: &str,
    step: &mut Step,
) {
    let owner = plan[i].clone();
    let workload = workload_of(observed, &owner);
    let Some(entries) = entries_of_owner(plan, &owner) else {
        return;
    };
    let names: HashSet<String> = entries.iter().map(|entry| entry.name.clone()).collect();
    let have_placements = entries.iter().all(|entry| entry.placement.is_some());
    let draft = || draft_replica(observed, plan, &owner, queue);
    if let Some(workload) = workload.filter(|workload| workload.is_admitted()) {
        if have_placements && owner.queue == Some(QueueState::Admitted) {
            return;
        }
        if draft().is_some_and(|draft| draft.summary() != workload.summary) {
            // It was requested for a replica with this index that had other resources, and whose
            // pods may still end.
            if all_pods_are_gone(observed, plan, &owner, step) {
                step.actions.push(Action::delete_workload(workload));
            }
        } else {
            admit_replica(observed, plan, &names, queueing, queue, workload, step);
        }
        return;
    }
    if owner.queue == Some(QueueState::Admitted) {
        step.events.push(describe_eviction(&owner, workload));
    }
    plan[i].queue = Some(QueueState::Waiting);
    reconcile_own_workload(observed, plan, &plan[i], workload, queue, step);
}

fn describe_eviction(owner: &PlanEntry, workload: Option<&WorkloadView>) -> EventRecord {
    let evicted = workload.and_then(|workload| workload.condition("Evicted"));
    let reason = match evicted {
        Some(evicted) if evicted.reason == "Preempted" => Reason::QueuePreempted,
        _ => Reason::QueueEvicted,
    };
    let why = evicted.map_or("its Workload was deleted", |evicted| &evicted.message);
    EventRecord::warning(reason, format!("{} loses its quota: {why}", owner.name))
}

/// Queues the Workload of a waiting replica. One that was evicted gives its quota back first, once
/// all of its pods are gone.
fn reconcile_own_workload(
    observed: &Observed,
    plan: &[PlanEntry],
    owner: &PlanEntry,
    workload: Option<&WorkloadView>,
    queue: &str,
    step: &mut Step,
) {
    let draft = || draft_replica(observed, plan, owner, queue);
    match workload {
        Some(workload) if workload.has_quota() => {
            if workload.is_evicted() && all_pods_are_gone(observed, plan, owner, step) {
                let patch = release_quota(workload, observed.now);
                step.actions.push(Action::PatchWorkloadStatus(patch));
            }
        }
        Some(workload) if !replicas_have_own_quota(observed) => {
            step.actions.push(Action::delete_workload(workload));
        }
        Some(workload) if workload.is_true("Finished") => {
            let is_same = draft().is_some_and(|draft| draft.summary() == workload.summary);
            match conflict_delay(observed, workload).filter(|_| is_same) {
                Some(delay) => step.requeue_within(delay),
                None => step.actions.push(Action::delete_workload(workload)),
            }
        }
        None if !replicas_have_own_quota(observed) => {}
        None if is_name_taken(
            observed,
            &replica_workload_name(&base_name(observed), owner),
        ) => {}
        _ => step
            .actions
            .extend(draft().and_then(|draft| ensure_workload(workload, draft))),
    }
}

/// Time after which a Workload with a conflict is queued again. Its flavor may have changed.
const CONFLICT_RETRY: SignedDuration = SignedDuration::from_secs(300);

/// Time until a Workload with a conflict is queued again. `None` without a conflict, or if it is
/// over.
fn conflict_delay(observed: &Observed, workload: &WorkloadView) -> Option<Duration> {
    find_conflict(workload)?;
    let since = workload.condition("Finished")?.last_transition_time.0;
    let delay = CONFLICT_RETRY - observed.now.duration_since(since);
    delay.is_positive().then(|| delay.unsigned_abs())
}

/// Why the pods of a Workload cannot be created: an admission contradicted their template.
pub(super) fn find_conflict(workload: &WorkloadView) -> Option<&str> {
    let finished = workload.condition("Finished")?;
    let is_conflict = finished.reason == Reason::FlavorConflict.as_str();
    is_conflict.then_some(&*finished.message)
}

/// Returns true if no pod of this index exists. The cache may lag, so the API server is asked for
/// the replicas of the stored plan.
fn all_pods_are_gone(
    observed: &Observed,
    plan: &[PlanEntry],
    owner: &PlanEntry,
    step: &mut Step,
) -> bool {
    let has_same_index = |entry: &&PlanEntry| {
        let other = group_owner_entry(plan, entry);
        (other.role, other.index) == (owner.role, owner.index)
    };
    let of_index = plan.iter().filter(has_same_index);
    let names: Vec<&str> = of_index.map(|entry| entry.name.as_str()).collect();
    let is_active = |name: &&str| observed.own_pod(name).is_some_and(PodView::is_active);
    if names.iter().any(is_active) || has_unknown_pod(observed, plan) {
        return false;
    }
    // A replica that this step has planned has no pod, and another name in the next step.
    let stored = observed.job.status.iter().flat_map(|status| &status.plan);
    let stored: HashSet<&str> = stored.map(|entry| entry.name.as_str()).collect();
    let unseen = names
        .into_iter()
        .filter(|name| stored.contains(name) && observed.own_pod(name).is_none());
    let mut is_gone = true;
    for name in unseen {
        if let Some(exists) = observed.live_reads.get(name) {
            is_gone &= !exists;
        } else {
            step.needs_live_read.push(name.to_owned());
            is_gone = false;
        }
    }
    is_gone
}

/// Records what Kueue admitted for a replica.
fn admit_replica(
    observed: &Observed,
    plan: &mut [PlanEntry],
    names: &HashSet<String>,
    queueing: &mut QueueingStatus,
    queue: &str,
    workload: &WorkloadView,
    step: &mut Step,
) {
    let Some(flavors) = find_flavors(observed, step, workload) else {
        return;
    };
    let template = |pod_set: &str| find_template(&observed.job, plan, pod_set);
    let placements = match build_placements(workload, queue, &flavors, template) {
        Ok(placements) => placements,
        Err(conflict) => {
            // The replica keeps waiting, without quota; `waiting_problem` shows it.
            let reason = Reason::FlavorConflict.as_str();
            let patch = patch_finished(workload, reason, &conflict.0, observed.now);
            step.actions.push(Action::PatchWorkloadStatus(patch));
            return;
        }
    };
    let mut admitted = Vec::new();
    let mut used = used_placements(observed, plan, queueing);
    for entry in plan.iter_mut().filter(|entry| names.contains(&entry.name)) {
        let pod_set = pod_set_name(entry);
        let Some(placement) = placements
            .iter()
            .find(|placement| placement.pod_set == pod_set)
        else {
            continue;
        };
        entry.placement = i32::try_from(store_placement(queueing, placement, &mut used)).ok();
        // From now on the endpoint waits for a node before it lists the replica.
        entry.planned_at = Some(MicroTime(observed.now));
        if entry.is_replica() {
            entry.queue = Some(QueueState::Admitted);
            admitted.push(entry.name.as_str());
        }
    }
    let message = format!("Kueue has admitted {}", join_names(&admitted));
    step.events
        .push(EventRecord::normal(Reason::ReplicaAdmitted, message));
}

/// Stores a placement, and returns its position. Positions that nothing refers to are used again.
fn store_placement(
    queueing: &mut QueueingStatus,
    placement: &Placement,
    used: &mut HashSet<usize>,
) -> usize {
    let all = &mut queueing.placements;
    let known = all.iter().position(|known| known == placement);
    let position = known.or_else(|| (0..all.len()).find(|i| !used.contains(i)));
    let position = position.unwrap_or(all.len());
    if position == all.len() {
        all.push(placement.clone());
    } else {
        all[position] = placement.clone();
    }
    used.insert(position);
    position
}

/// Positions of the placements of the whole job, and of all replicas.
fn used_placements(
    observed: &Observed,
    plan: &[PlanEntry],
    queueing: &QueueingStatus,
) -> HashSet<usize> {
    let base = own_workloads(observed).find(|workload| workload.name == queueing.workload);
    let base_len = base.map_or(queueing.placements.len(), count_base_placements);
    let of_replicas = plan.iter().filter_map(|entry| entry.placement);
    let of_replicas = of_replicas.filter_map(|position| usize::try_from(position).ok());
    (0..base_len).chain(of_replicas).collect()
}

/// Deletes the Workloads of replicas that the job does not want any more, once their pods are gone.
fn delete_unneeded(
    observed: &Observed,
    plan: &[PlanEntry],
    queueing: &QueueingStatus,
    step: &mut Step,
) {
    if has_unknown_pod(observed, plan) {
        // It may use any of this quota.
        return;
    }
    let base = base_name(observed);
    let is_needed = |entry: &&PlanEntry| {
        let is_active = observed
            .own_pod(&entry.name)
            .is_some_and(PodView::is_active);
        needs_own_quota(plan, entry) || is_active
    };
    let needed = plan
        .iter()
        .filter(is_needed)
        .map(|entry| group_owner_entry(plan, entry));
    let needed = needed.filter(|owner| owner.queue.is_some());
    let needed: HashSet<String> = needed
        .map(|owner| replica_workload_name(&base, owner))
        .collect();
    delete_workloads(observed, step, |workload| {
        workload.name != queueing.workload && !needed.contains(&workload.name)
    });
}

/// Reports each Workload whose pods are all ready for the first time.
fn report_ready(
    observed: &Observed,
    plan: &[PlanEntry],
    base: Option<&WorkloadView>,
    step: &mut Step,
) {
    let is_ready = |name: &str| {
        let pod = observed.own_pod(name);
        pod.is_some_and(|pod| pod.ready && !pod.deleting)
    };
    let coordinator = di_api::names::coordinator_name(&kube::ResourceExt::name_any(&*observed.job));
    let mut members = plan.iter().filter(|entry| entry.is_wanted() && !entry.done);
    let base_is_ready = is_ready(&coordinator)
        && members
            .all(|entry| group_owner_entry(plan, entry).queue.is_some() || is_ready(&entry.name));
    let owners = plan
        .iter()
        .filter(|entry| needs_own_quota(plan, entry))
        .filter(|owner| {
            let entries = entries_of_owner(plan, owner);
            entries.is_some_and(|entries| entries.iter().all(|entry| is_ready(&entry.name)))
        });
    let ready = owners.filter_map(|owner| workload_of(observed, owner));
    let ready = ready.chain(base.filter(|_| base_is_ready));
    let is_new =
        |workload: &&WorkloadView| workload.is_admitted() && !workload.is_true("PodsReady");
    for workload in ready.filter(is_new) {
        // The version of a Workload is good for one write.
        if !step.patches_workload(&workload.name) {
            let patch = patch_pods_ready(workload, observed.now);
            step.actions.push(Action::PatchWorkloadStatus(patch));
        }
    }
}
