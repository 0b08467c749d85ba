//! Whether the whole job may run.

use std::collections::BTreeMap;

use di_api::{ConditionType, DIJob, Phase, PlanEntry, PodTemplate, QueueingStatus, Reason, Role};
use di_cache::QueueApi;
use di_plan::{
    FlavorView, Suffixes, WorkloadView, build_placements, flavors_of, patch_reclaimable,
    pod_set_name, release_quota, template_of,
};

use super::{
    super::{
        ending::{Pause, pause_job},
        learner_groups::missing_template,
        observed::Observed,
        outcome::{Action, EventRecord, Step},
        phase::finish_job,
        planning::{plan_declared, plan_without_pods},
    },
    drafts::draft_base,
    workloads::{base_name, clear_quota, delete_workloads, is_name_taken, own_workloads},
};
use crate::error::GRANT_KUEUE_PERMISSIONS;

/// Returns true if the pods of the job may run. Else the job waits in its queue without pods.
pub fn reconcile_admission(
    observed: &Observed,
    step: &mut Step,
    suffixes: &mut dyn Suffixes,
) -> bool {
    let Some(queue) = observed.job.queue_name() else {
        leave_queue(observed, step);
        return true;
    };
    let was_admitted = step.status.queueing.is_some();
    let (reason, message) = match (observed.queue.api, describe_api(observed, queue)) {
        (QueueApi::Served(_), _) => {
            let base = base_name(observed);
            let workload = own_workloads(observed).find(|workload| workload.name == base);
            match workload.filter(|workload| workload.is_admitted()) {
                Some(workload) if was_admitted => return has_same_name(step, workload),
                Some(workload) => return admit(observed, step, workload, queue, suffixes),
                None => describe_wait(observed, workload, queue),
            }
        }
        // Kueue was removed from the cluster, or its API server does not respond: pods that run are
        // worth more than a quota.
        _ if was_admitted => return true,
        (_, Some(problem)) => problem,
        (_, None) => return false,
    };
    queue_job(observed, step, suffixes, queue, reason, &message);
    false
}

/// Returns why Kueue cannot be used.
pub(super) fn describe_api(observed: &Observed, queue: &str) -> Option<(Reason, String)> {
    match observed.queue.api {
        QueueApi::Unknown | QueueApi::Served(_) => None,
        QueueApi::NotServed => Some((
            Reason::QueueNotServed,
            format!(
                "the job has the label of queue {queue}, and the cluster does not serve the API of Kueue: install Kueue, or remove the label"
            ),
        )),
        QueueApi::Forbidden => {
            let message = format!("the orchestrator may not use Kueue; {GRANT_KUEUE_PERMISSIONS}");
            Some((Reason::QueueForbidden, message))
        }
    }
}

/// The name of the Workload is a function of the UID of the job, so it never differs.
fn has_same_name(step: &Step, workload: &WorkloadView) -> bool {
    let queueing = step.status.queueing.as_ref();
    queueing.is_some_and(|queueing| queueing.workload == workload.name)
}

/// Removes the quota of a job that has no queue label any more.
fn leave_queue(observed: &Observed, step: &mut Step) {
    if step.status.queueing.is_some() {
        clear_quota(step);
    }
    let admitted = ConditionType::Admitted.as_str();
    step.status
        .conditions
        .retain(|condition| condition.type_ != admitted);
    delete_workloads(observed, step, |_| true);
}

/// Returns why a job is not admitted, in Kueue's words.
fn describe_wait(
    observed: &Observed,
    workload: Option<&WorkloadView>,
    queue: &str,
) -> (Reason, String) {
    let Some(workload) = workload else {
        let problem = missing_template(
            observed,
            observed
                .job
                .status
                .as_ref()
                .map_or(&[], |status| &status.plan),
        );
        return problem.unwrap_or_else(|| {
            let message = format!("the job enters queue {queue}");
            (Reason::QueueWaiting, message)
        });
    };
    let evicted = workload
        .condition("Evicted")
        .filter(|evicted| evicted.status == "True");
    let reserved = workload.condition("QuotaReserved");
    let reason = match evicted {
        _ if !workload.active => Reason::QueueDeactivated,
        Some(evicted) if evicted.reason == "Preempted" => Reason::QueuePreempted,
        Some(_) => Reason::QueueEvicted,
        None => Reason::QueueWaiting,
    };
    let message = match (evicted, reserved) {
        _ if !workload.active => format!("spec.active of Workload {} is false", workload.name),
        (Some(evicted), _) if workload.has_quota() => evicted.message.clone(),
        (_, Some(reserved)) if reserved.status == "False" => reserved.message.clone(),
        (_, Some(_)) => {
            format!("quota in queue {queue} is reserved, admission checks are not ready")
        }
        (_, None) => format!("the job waits in queue {queue}"),
    };
    (reason, message)
}

/// Ends all pods and lets the job wait. Once no pod is left, its Workload is queued again.
fn queue_job(
    observed: &Observed,
    step: &mut Step,
    suffixes: &mut dyn Suffixes,
    queue: &str,
    reason: Reason,
    message: &str,
) {
    if step.status.queueing.is_some() {
        step.events.push(EventRecord::warning(reason, message));
    }
    clear_quota(step);
    let type_ = ConditionType::Admitted;
    observed.set_condition(&mut step.status, type_, false, reason, message);
    let pause = Pause {
        phase: Phase::Queued,
        reason,
        message: "the job waits in its queue",
        event: &format!("the job waits in queue {queue}: {message}"),
    };
    pause_job(observed, step, &pause);
    if step.status.phase != Some(Phase::Queued) {
        return;
    }
    plan_without_pods(observed, step, suffixes);
    if let QueueApi::Served(_) = observed.queue.api {
        reconcile_base_workload(observed, step, queue);
        let base = base_name(observed);
        delete_workloads(observed, step, |workload| workload.name != base);
    }
}

/// Creates or updates the Workload of a job without pods.
fn reconcile_base_workload(observed: &Observed, step: &mut Step, queue: &str) {
    let base = base_name(observed);
    let workload = own_workloads(observed).find(|workload| workload.name == base);
    if let Some(workload) = workload {
        if workload.is_true("Finished") {
            step.actions.push(Action::delete_workload(workload));
            return;
        }
        if workload.has_quota() {
            if workload.is_evicted() {
                let patch = release_quota(workload, observed.now);
                step.actions.push(Action::PatchWorkloadStatus(patch));
            }
            return;
        }
        if !workload.reclaimable.is_empty() {
            let patch = patch_reclaimable(workload, &[].into());
            step.actions.push(Action::PatchWorkloadStatus(patch));
            return;
        }
    } else if is_name_taken(observed, &base) {
        return;
    }
    let Some(draft) = draft_base(observed, &step.status.plan, queue) else {
        return;
    };
    step.actions.extend(ensure_workload(workload, draft));
}

/// Returns the action that makes a Workload without quota equal to its draft.
pub(super) fn ensure_workload(
    workload: Option<&WorkloadView>,
    draft: di_plan::WorkloadDraft,
) -> Option<Action> {
    let Some(workload) = workload else {
        return Some(Action::CreateWorkload(Box::new(draft)));
    };
    (workload.summary != draft.summary()).then(|| Action::UpdateWorkload {
        draft: Box::new(draft),
        resource_version: workload.resource_version.clone(),
    })
}

/// Stores what Kueue admitted, and lets the job run. Returns false if it cannot run yet.
fn admit(
    observed: &Observed,
    step: &mut Step,
    workload: &WorkloadView,
    queue: &str,
    suffixes: &mut dyn Suffixes,
) -> bool {
    if !covers_job(observed, &step.status.plan, workload, queue, suffixes) {
        step.actions.push(Action::delete_workload(workload));
        return false;
    }
    let Some(flavors) = find_flavors(observed, step, workload) else {
        return false;
    };
    let template = |pod_set: &str| find_template(&observed.job, &step.status.plan, pod_set);
    let mut placements = match build_placements(workload, queue, &flavors, template) {
        Ok(placements) => placements,
        Err(conflict) => {
            let reason = Reason::FlavorConflict;
            finish_job(observed, step, Phase::Failed, reason, &conflict.0);
            return false;
        }
    };
    placements.sort_by_key(|placement| placement.pod_set != Role::Coordinator.label());
    let admission = workload.admission.clone().unwrap_or_default();
    let mut names: Vec<_> = flavors.keys().map(String::as_str).collect();
    names.sort_unstable();
    let message = format!(
        "ClusterQueue {} has admitted the job with flavor {}",
        admission.cluster_queue,
        names.join(", ")
    );
    step.status.queueing = Some(QueueingStatus {
        workload: workload.name.clone(),
        cluster_queue: admission.cluster_queue,
        placements,
        reclaimed: workload.reclaimable.clone(),
    });
    let (type_, reason) = (ConditionType::Admitted, Reason::QueueAdmitted);
    observed.set_condition(&mut step.status, type_, true, reason, &message);
    step.events.push(EventRecord::normal(reason, message));
    true
}

/// Whether the pods that the job wants now are those that Kueue has admitted: their resources or the
/// queue may have changed since. Pods that run, of a job with a lost status, are kept.
fn covers_job(
    observed: &Observed,
    plan: &[PlanEntry],
    workload: &WorkloadView,
    queue: &str,
    suffixes: &mut dyn Suffixes,
) -> bool {
    if observed.own_pods().next().is_some() {
        return true;
    }
    let mut plan = plan.to_vec();
    plan_declared(observed, &mut plan, suffixes);
    let draft = draft_base(observed, &plan, queue);
    draft.is_none_or(|draft| workload.summary.covers(&draft.summary()))
}

/// Returns the flavors of an admission. `None` if some must be read first.
pub(super) fn find_flavors(
    observed: &Observed,
    step: &mut Step,
    workload: &WorkloadView,
) -> Option<BTreeMap<String, FlavorView>> {
    let names = workload
        .admission
        .as_ref()
        .map(flavors_of)
        .unwrap_or_default();
    let known = &observed.queue.flavors;
    let unknown = names.iter().filter(|name| !known.contains_key(**name));
    let unknown: Vec<_> = unknown.map(|name| (*name).to_owned()).collect();
    if unknown.is_empty() {
        let names = names.into_iter();
        return Some(
            names
                .map(|name| (name.to_owned(), known[name].clone()))
                .collect(),
        );
    }
    step.needs_flavors.extend(unknown);
    None
}

/// Returns the pod template of a pod set.
pub(super) fn find_template<'a>(
    job: &'a DIJob,
    plan: &[PlanEntry],
    pod_set: &str,
) -> Option<&'a PodTemplate> {
    if pod_set == Role::Coordinator.label() {
        return Some(&job.spec.coordinator.template);
    }
    let mut all = plan.iter();
    // The template of aggregators is not checked.
    let entry = all.find(|entry| pod_set_name(entry) == pod_set)?;
    template_of(job, entry, None)
}
