//! The Workloads that a job should have.

use std::collections::BTreeMap;

use di_api::{Origin, PlanEntry, Role, names};
use di_plan::{
    WorkloadDraft, build_pod_sets, is_group_complete, replica_workload_name, wanted_members,
};
use kube::ResourceExt;

use super::{
    super::{learner_groups::group_owner_entry, observed::Observed},
    workloads::base_name,
};

/// The Workload of the coordinator and the declared replicas; of all replicas if added ones wait
/// for the whole job. `None` until all of its pods are known.
pub(super) fn draft_base(
    observed: &Observed,
    plan: &[PlanEntry],
    queue: &str,
) -> Option<WorkloadDraft> {
    let is_whole = !replicas_have_own_quota(observed);
    let is_included = |entry: &&PlanEntry| {
        let owner = group_owner_entry(plan, entry);
        let is_included = is_whole || owner.origin == Origin::Declared;
        is_included && entry.is_wanted() && !entry.done
    };
    let entries: Vec<_> = plan.iter().filter(is_included).collect();
    let mut leaders = entries.iter().filter(|entry| entry.leads_group());
    if !leaders.all(|entry| is_group_complete(plan, &entry.name)) {
        return None;
    }
    let template = observed.aggregator.pod_template();
    let pod_sets = build_pod_sets(&observed.job, true, entries, template)?;
    Some(WorkloadDraft {
        name: base_name(observed),
        queue: queue.to_owned(),
        index: None,
        workload_class: workload_class(observed),
        pod_class: pod_class(observed),
        pod_sets,
    })
}

/// The Workload of a replica with all its pods. `None` until all of its pods are known.
pub(super) fn draft_replica(
    observed: &Observed,
    plan: &[PlanEntry],
    owner: &PlanEntry,
    queue: &str,
) -> Option<WorkloadDraft> {
    let entries = entries_of_owner(plan, owner)?;
    let template = observed.aggregator.pod_template();
    let pod_sets = build_pod_sets(&observed.job, false, entries, template)?;
    let queueing = observed.job.spec.queueing.as_ref();
    let class = queueing.and_then(|queueing| queueing.elastic_priority_class.clone());
    let class = class.filter(|class| !class.is_empty());
    Some(WorkloadDraft {
        name: replica_workload_name(&base_name(observed), owner),
        queue: queue.to_owned(),
        index: Some(owner.index),
        workload_class: class.or_else(|| workload_class(observed)),
        pod_class: pod_class(observed),
        pod_sets,
    })
}

/// Hashes of the templates of replicas without a pod, by the name of their pod set.
pub(super) type Templates = BTreeMap<String, String>;

/// Hashes the templates of all wanted replicas without a pod. An aggregator without a template is
/// not created, so it has no hash.
pub(super) fn hash_templates(observed: &Observed, plan: &[PlanEntry]) -> Templates {
    let template = observed.aggregator.pod_template();
    let is_pending = |entry: &&PlanEntry| {
        let has_template = template.is_some() || entry.role != Role::Aggregator;
        entry.is_wanted() && !entry.done && entry.uid.is_none() && has_template
    };
    let pending = plan.iter().filter(is_pending);
    let pod_sets = build_pod_sets(&observed.job, false, pending, template);
    let pod_sets = pod_sets.into_iter().flatten();
    pod_sets
        .map(|set| (set.name.clone(), set.template_hash()))
        .collect()
}

/// All entries of a replica: also the ddp learners of an aggregator, and the other pods of a unit.
/// `None` until they are planned.
pub(super) fn entries_of_owner<'a>(
    plan: &'a [PlanEntry],
    owner: &'a PlanEntry,
) -> Option<Vec<&'a PlanEntry>> {
    if !owner.leads_group() {
        return Some(vec![owner]);
    }
    let members = wanted_members(plan, &owner.name);
    let all = std::iter::once(owner).chain(members).collect();
    is_group_complete(plan, &owner.name).then_some(all)
}

/// Whether replicas that are added later have quota of their own.
pub(super) fn replicas_have_own_quota(observed: &Observed) -> bool {
    let queueing = observed.job.spec.queueing.as_ref();
    let elastic = queueing
        .map(|queueing| queueing.elastic)
        .unwrap_or_default();
    elastic == di_api::ElasticQueueing::PerReplica
}

fn workload_class(observed: &Observed) -> Option<String> {
    let class = observed
        .job
        .labels()
        .get(names::kueue::PRIORITY_CLASS_LABEL);
    class.filter(|class| !class.is_empty()).cloned()
}

/// The PriorityClass of the coordinator.
fn pod_class(observed: &Observed) -> Option<String> {
    let spec = &observed.job.spec;
    let own = &spec.coordinator.template.part("spec")["priorityClassName"];
    let own = own.as_str().unwrap_or_default();
    let class = if own.is_empty() {
        &spec.priority_class_name
    } else {
        own
    };
    (!class.is_empty()).then(|| class.to_owned())
}
