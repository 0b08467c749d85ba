//! Learner groups: an aggregator and its ddp learners, which share its fate. Some functions treat
//! units alike. See docs/decisions/0008 and 0040.

use std::collections::HashMap;

use di_api::{DIJob, Ddp, EntryState, PlanEntry, ReplicaResources, Role, names};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Toleration, apimachinery::pkg::api::resource::Quantity,
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use serde::Deserialize;

use super::{
    lookup::{find_entry, group_members, leader_of, wanted_members},
    name_allocator::NameAllocator,
    units::covers_unit,
};
use crate::{
    allocation::Allocation, job::Job, names::Suffixes, resource_share::ResourceShare,
    view::NodeView,
};

/// The role and resources of the entry that is planned for a replica.
///
/// For a learner with several GPUs that is an aggregator, with the number of GPUs in its resources.
pub fn entry_kind(
    job: &impl Job,
    role: Role,
    resources: &ReplicaResources,
) -> (Role, ReplicaResources) {
    let gpus = job.learner_gpus(resources);
    if role != Role::Learner || gpus < 2 {
        return (role, resources.clone());
    }
    let gpus = gpus.min(names::MAX_LEARNER_GPUS).to_string();
    let resources = ReplicaResources {
        gpus: Some(Quantity(gpus)),
        ..resources.clone()
    };
    (Role::Aggregator, resources)
}

/// Whether a learner group has all its ddp learners, or a unit all its pods.
pub fn is_group_complete(plan: &[PlanEntry], leader: &str) -> bool {
    let members: Vec<_> = group_members(plan, leader).collect();
    match find_entry(plan, leader) {
        Some(leader) => has_all_members(leader, &members),
        None => covers_world_size(&members),
    }
}

/// Whether these are all entries that follow a leader or an aggregator.
pub(crate) fn has_all_members(leader: &PlanEntry, members: &[&PlanEntry]) -> bool {
    match &leader.unit {
        Some(place) => covers_unit(place.size, members),
        None => covers_world_size(members),
    }
}

/// Whether the ranks of the ddp learners of a learner group cover its world size.
fn covers_world_size(members: &[&PlanEntry]) -> bool {
    let mut places: Vec<_> = members
        .iter()
        .filter_map(|entry| Some((entry.ddp.as_ref()?, entry.gpu_count())))
        .collect();
    places.sort_by_key(|(place, _)| place.start_rank);
    let mut next = 0;
    for (place, gpus) in &places {
        if place.start_rank != next {
            return false;
        }
        next += gpus;
    }
    next > 0 && places.iter().all(|(place, _)| place.world_size == next)
}

/// Whether a replica is ready; one of several pods is ready when all of them are.
///
/// `pod_is_ready` looks a pod up by name.
pub fn is_ready(
    plan: &[PlanEntry],
    entry: &PlanEntry,
    pod_is_ready: impl Fn(&str) -> bool,
) -> bool {
    pod_is_ready(&entry.name)
        && (!entry.leads_group()
            || is_group_complete(plan, &entry.name)
                && wanted_members(plan, &entry.name).all(|member| pod_is_ready(&member.name)))
}

/// Copies the state of each aggregator and leader (removing, replaced or missing) to the entries that
/// follow it.
pub fn propagate_to_members(plan: &mut [PlanEntry]) {
    let leaders: HashMap<String, EntryState> = plan
        .iter()
        .filter(|entry| entry.leads_group())
        .map(|entry| (entry.name.clone(), entry.state))
        .collect();
    for entry in plan.iter_mut().filter(|entry| !entry.is_replica()) {
        let leader = leader_of(entry).and_then(|name| leaders.get(name));
        entry.state = match (entry.state, leader) {
            (EntryState::Removing, _) | (_, None | Some(EntryState::Removing)) => {
                EntryState::Removing
            }
            (EntryState::Replaced, _) | (_, Some(EntryState::Replaced)) => EntryState::Replaced,
            (EntryState::Wanted, Some(EntryState::Wanted)) => EntryState::Wanted,
        };
    }
}

/// Plans the ddp learners of aggregators that have none, split over the current nodes.
///
/// The ddp learners of a replacement take the indices of their predecessors, in the order of ranks.
pub fn plan_ddp_learners(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    nodes: &[NodeView],
    allocation: &dyn Allocation,
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) {
    let unsplit: Vec<PlanEntry> = plan
        .iter()
        .filter(|entry| entry.role == Role::Aggregator && entry.is_wanted())
        .filter(|entry| group_members(plan, &entry.name).next().is_none())
        .cloned()
        .collect();
    if unsplit.is_empty() {
        return;
    }
    let tolerations = learner_tolerations(job);
    let sizes: Vec<i32> = nodes
        .iter()
        .filter(|node| node.accepts_pods(&tolerations))
        .map(|node| node.gpus)
        .collect();
    let mut allocator = NameAllocator::new(job, plan, Role::DdpLearner);
    for aggregator in unsplit {
        let world_size = aggregator.gpu_count().clamp(1, names::MAX_LEARNER_GPUS);
        let mut predecessors = find_predecessors(plan, &aggregator).into_iter();
        let mut master: Option<String> = None;
        let mut start_rank = 0;
        for gpus in allocation.split_gpus(world_size, &sizes) {
            let name = allocator.allocate_name(suffixes);
            let place = Ddp {
                aggregator: aggregator.name.clone(),
                world_size,
                start_rank,
                master: master.clone(),
            };
            let share = ResourceShare::for_place(&place, gpus);
            let resources = share.slice_resources(&aggregator.resources, gpus);
            start_rank += gpus;
            master.get_or_insert_with(|| name.clone());
            let entry = match predecessors.next() {
                Some((index, replaces)) => PlanEntry {
                    planned_at: Some(MicroTime(now)),
                    replaces: Some(replaces),
                    ..PlanEntry::new(name, Role::DdpLearner, aggregator.origin, index)
                },
                None => allocator.new_entry(aggregator.origin, name, now),
            };
            plan.push(PlanEntry {
                resources,
                ddp: Some(place),
                ..entry
            });
        }
    }
}

fn learner_tolerations(job: &DIJob) -> Vec<Toleration> {
    let learner = job.spec.learner.as_ref();
    let tolerations = learner.map(|learner| &learner.template.part("spec")["tolerations"]);
    tolerations
        .and_then(|tolerations| Vec::deserialize(tolerations).ok())
        .unwrap_or_default()
}

/// Indices and names of the ddp learners of the previous learner group, ordered by rank.
fn find_predecessors(plan: &[PlanEntry], aggregator: &PlanEntry) -> Vec<(i32, String)> {
    let mut previous = aggregator.replaces.as_deref();
    // An aggregator that was replaced before its split has no ddp learners: follow the chain of
    // predecessors. The plan bounds its length.
    for _ in plan {
        let Some(name) = previous else { break };
        let mut members: Vec<_> = group_members(plan, name).collect();
        if !members.is_empty() {
            members.sort_by_key(|entry| entry.ddp.as_ref().map(|place| place.start_rank));
            let places = members.into_iter().map(|e| (e.index, e.name.clone()));
            return places.collect();
        }
        previous = find_entry(plan, name).and_then(|entry| entry.replaces.as_deref());
    }
    Vec::new()
}
