//! Logic learners: an aggregator and its ddp learners are one unit. Whatever becomes of the aggregator becomes of them.

use std::collections::HashMap;

use di_api::{DIJob, Ddp, EntryState, PlanEntry, ReplicaResources, Role, names};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Toleration, apimachinery::pkg::api::resource::Quantity,
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{find, slots::Slots};
use crate::{allocation::Allocation, names::Suffixes, share::Share, view::NodeView};

/// What is planned for a replica with these resources: of a learner of several GPUs its aggregator, and then the resources tell how many.
pub fn planned_as(
    job: &DIJob,
    role: Role,
    resources: &ReplicaResources,
) -> (Role, ReplicaResources) {
    let gpus = job.spec.learner_gpus(resources);
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

/// The ddp learners of an aggregator.
pub fn members<'a>(plan: &'a [PlanEntry], aggregator: &str) -> impl Iterator<Item = &'a PlanEntry> {
    plan.iter()
        .filter(move |entry| aggregator_of(entry) == Some(aggregator))
}

/// Name of the aggregator of a ddp learner.
pub fn aggregator_of(entry: &PlanEntry) -> Option<&str> {
    Some(entry.ddp.as_ref()?.aggregator.as_str())
}

/// Whether the ddp learners of an aggregator are all there: their ranks are those of all processes.
pub fn is_whole(plan: &[PlanEntry], aggregator: &str) -> bool {
    let mut places: Vec<_> = members(plan, aggregator)
        .filter_map(|entry| Some((entry.ddp.as_ref()?, entry.gpus())))
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

/// Whether a replica is ready, of which `pod_is_ready` tells by name; an aggregator is when all of its unit is.
pub fn is_ready(
    plan: &[PlanEntry],
    entry: &PlanEntry,
    pod_is_ready: impl Fn(&str) -> bool,
) -> bool {
    pod_is_ready(&entry.name)
        && (entry.role != Role::Aggregator
            || is_whole(plan, &entry.name)
                && members(plan, &entry.name).all(|member| pod_is_ready(&member.name)))
}

/// Has ddp learners go where their aggregator goes: when it is let go of or replaced, or is not planned at all.
pub fn follow(plan: &mut [PlanEntry]) {
    let aggregators: HashMap<String, EntryState> = plan
        .iter()
        .filter(|entry| entry.role == Role::Aggregator)
        .map(|entry| (entry.name.clone(), entry.state))
        .collect();
    for entry in plan.iter_mut().filter(|e| e.role == Role::DdpLearner) {
        let leader = aggregator_of(entry).and_then(|name| aggregators.get(name));
        entry.state = match (entry.state, leader) {
            (EntryState::Removing, _) | (_, None | Some(EntryState::Removing)) => {
                EntryState::Removing
            }
            (EntryState::Replaced, _) | (_, Some(EntryState::Replaced)) => EntryState::Replaced,
            (EntryState::Wanted, Some(EntryState::Wanted)) => EntryState::Wanted,
        };
    }
}

/// Plans the ddp learners of aggregators that have none, by the nodes that there are now.
///
/// Those of one that took another's place take the places of the other's, in the order of their ranks, and with them their numbers.
pub fn expand(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    nodes: &[NodeView],
    allocation: &dyn Allocation,
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) {
    let bare: Vec<PlanEntry> = plan
        .iter()
        .filter(|entry| entry.role == Role::Aggregator && entry.is_wanted())
        .filter(|entry| members(plan, &entry.name).next().is_none())
        .cloned()
        .collect();
    if bare.is_empty() {
        return;
    }
    let tolerations = tolerations(job);
    let sizes: Vec<i32> = nodes
        .iter()
        .filter(|node| node.takes(tolerations))
        .map(|node| node.gpus)
        .collect();
    let mut slots = Slots::new(job, plan, Role::DdpLearner);
    for unit in bare {
        let world_size = unit.gpus().clamp(1, names::MAX_LEARNER_GPUS);
        let mut former = former(plan, &unit).into_iter();
        let mut master: Option<String> = None;
        let mut start_rank = 0;
        for gpus in allocation.split(world_size, &sizes) {
            let name = slots.name(suffixes);
            let place = Ddp {
                aggregator: unit.name.clone(),
                world_size,
                start_rank,
                master: master.clone(),
            };
            let resources = Share::of(&place, gpus).resources(&unit.resources, gpus);
            start_rank += gpus;
            master.get_or_insert_with(|| name.clone());
            let entry = match former.next() {
                Some((index, replaces)) => PlanEntry {
                    planned_at: Some(Time(now)),
                    replaces: Some(replaces),
                    ..PlanEntry::new(name, Role::DdpLearner, unit.origin, index)
                },
                None => slots.entry(unit.origin, name, now),
            };
            plan.push(PlanEntry {
                resources,
                ddp: Some(place),
                ..entry
            });
        }
    }
}

fn tolerations(job: &DIJob) -> &[Toleration] {
    let pod = job
        .spec
        .learner
        .as_ref()
        .and_then(|learner| learner.template.spec.as_ref());
    pod.and_then(|pod| pod.tolerations.as_deref())
        .unwrap_or_default()
}

/// Numbers and names of the ddp learners whose places are taken over, in the order of their ranks.
fn former(plan: &[PlanEntry], unit: &PlanEntry) -> Vec<(i32, String)> {
    let mut before = unit.replaces.as_deref();
    // An aggregator that was replaced before it had ddp learners has taken over none; no chain is longer than the plan.
    for _ in plan {
        let Some(name) = before else { break };
        let mut all: Vec<_> = members(plan, name).collect();
        if !all.is_empty() {
            all.sort_by_key(|entry| entry.ddp.as_ref().map(|place| place.start_rank));
            let places = all.into_iter().map(|e| (e.index, e.name.clone()));
            return places.collect();
        }
        before = find(plan, name).and_then(|entry| entry.replaces.as_deref());
    }
    Vec::new()
}
