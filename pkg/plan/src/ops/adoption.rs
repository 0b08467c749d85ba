//! Adoption: pods of the job without a plan entry (orphans) are taken into the plan.

use std::collections::{HashMap, HashSet};

use di_api::{DIJob, EntryState, Origin, PlanEntry, ReplicaResources, Role};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::MicroTime};

use super::{
    declared::WORKER_ROLES,
    learner_groups::{entry_kind, propagate_to_members},
    lookup::{find_entry, leader_of},
    name_allocator::NameAllocator,
};
use crate::view::{PodView, Stage};

/// Adds entries for pods of the job that have none, instead of deleting the pods.
///
/// Such pods were created by an older version, or the status was lost. Learner groups and units are
/// adopted as a whole; a ddp learner without its aggregator, and a pod of a unit without its leader,
/// is removed. Adopted requested replicas are claimed by `coordinator`, the
/// [instance](PodView::coordinator_instance) that runs now, so that its next instance receives them
/// first.
pub fn adopt(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    pods: &[PodView],
    coordinator: Option<String>,
    now: Timestamp,
) {
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let mut orphans: Vec<_> = pods
        .iter()
        .filter(|pod| pod.belongs_to(uid) && !pod.deleting)
        .filter_map(|pod| Some((pod, pod.role.filter(|role| *role != Role::Coordinator)?)))
        .filter(|(pod, _)| find_entry(plan, &pod.name).is_none())
        .collect();
    if orphans.is_empty() {
        return;
    }
    // Leaders first, then active pods: a failed pod may have the same index as its successor.
    orphans.sort_by_key(|(pod, _)| (follows_leader(pod), has_failed(pod), pod.name.as_str()));
    let known_aggregators: HashSet<String> = plan
        .iter()
        .filter_map(|entry| leader_of(entry).map(str::to_owned))
        .collect();
    let world_sizes: HashMap<&str, i32> = orphans
        .iter()
        .filter_map(|(pod, _)| pod.ddp.as_ref())
        .map(|ddp| (ddp.place.aggregator.as_str(), ddp.place.world_size))
        .collect();
    let claimed_by = coordinator.unwrap_or_default();
    let mut allocators = HashMap::new();
    for (pod, role) in orphans {
        if follows_leader(pod) {
            let entry = new_unit_member(plan, pod, role, now);
            plan.push(entry);
            continue;
        }
        let (origin, group, resources) = entry_origin(job, plan, role, pod.group.as_deref());
        let allocator = allocators
            .entry(role)
            .or_insert_with(|| NameAllocator::new(job, plan, role));
        let mut entry = PlanEntry {
            group,
            resources,
            unit: pod.unit.as_deref().cloned(),
            ..allocator.new_entry_at(pod.index, origin, pod.name.clone(), now)
        };
        if role == Role::DdpLearner {
            let place = pod.ddp.as_ref();
            if place.is_none_or(|ddp| known_aggregators.contains(&ddp.place.aggregator)) {
                entry.state = EntryState::Removing;
            }
            entry.resources = gpu_resources(place.map_or(1, |ddp| ddp.gpus));
            entry.ddp = place.map(|ddp| ddp.place.clone());
            let aggregator = leader_of(&entry).and_then(|name| find_entry(plan, name));
            entry.origin = aggregator.map_or(origin, |aggregator| aggregator.origin);
        } else if has_failed(pod) {
            // Keep the failed pod for its logs. Whether its place is wanted is unknown.
            entry.state = EntryState::Replaced;
            entry.index = pod.index.unwrap_or(entry.index);
            let is_alike = |other: &&mut PlanEntry| other.role == role && other.is_replica();
            let mut same_role = plan.iter_mut().filter(is_alike);
            if let Some(next) = same_role.find(|other| other.index == entry.index) {
                next.replaces.get_or_insert_with(|| entry.name.clone());
            }
        }
        if role == Role::Aggregator {
            let template_gpus = || job.spec.learner_gpus(&ReplicaResources::default()).max(1);
            let world_size = world_sizes.get(pod.name.as_str()).copied();
            entry.resources.gpus = gpu_resources(world_size.unwrap_or_else(template_gpus)).gpus;
            entry.port = Some(pod.port);
        }
        if entry.is_wanted() && entry.origin == Origin::Requested {
            entry.claimed_by = Some(claimed_by.clone());
        }
        plan.push(entry);
    }
    propagate_to_members(plan);
}

/// Whether the pod belongs to a unit, and is not its leader.
fn follows_leader(pod: &PodView) -> bool {
    let place = pod.unit.as_ref();
    place.is_some_and(|place| place.leader.is_some())
}

/// The entry of a pod of a unit. Its leader has an entry already, if it has a pod.
fn new_unit_member(plan: &[PlanEntry], pod: &PodView, role: Role, now: Timestamp) -> PlanEntry {
    let place = pod.unit.as_deref();
    let leader = place.and_then(|place| find_entry(plan, place.leader.as_deref()?));
    let is_taken = |other: &PlanEntry| other.is_wanted() && other.unit.as_ref() == place;
    let state = if has_failed(pod) {
        EntryState::Replaced
    } else if plan.iter().any(is_taken) {
        EntryState::Removing
    } else {
        EntryState::Wanted
    };
    let origin = leader.map_or(Origin::Requested, |leader| leader.origin);
    let index = leader.map(|leader| leader.index).or(pod.index);
    PlanEntry {
        state,
        group: leader.and_then(|leader| leader.group.clone()),
        resources: leader.map_or_else(ReplicaResources::default, |leader| leader.resources.clone()),
        unit: place.cloned(),
        planned_at: Some(MicroTime(now)),
        ..PlanEntry::new(pod.name.clone(), role, origin, index.unwrap_or(0))
    }
}

fn has_failed(pod: &PodView) -> bool {
    pod.stage() == Stage::Failed
}

fn gpu_resources(gpus: i32) -> ReplicaResources {
    ReplicaResources {
        gpus: Some(Quantity(gpus.to_string())),
        ..ReplicaResources::default()
    }
}

/// Origin, group and resources of an adopted pod: declared while the spec declares more replicas of
/// this role and group than the plan has, or else requested.
fn entry_origin(
    job: &DIJob,
    plan: &[PlanEntry],
    role: Role,
    group: Option<&str>,
) -> (Origin, Option<String>, ReplicaResources) {
    let counted = role.counted_as();
    let declared = WORKER_ROLES
        .contains(&counted)
        .then(|| job.spec.declared(counted));
    let declared_group = declared.flatten().and_then(|declared| match group {
        None => Some((declared.replicas, ReplicaResources::default())),
        Some(name) => {
            let group = declared.groups.iter().find(|group| group.name == name)?;
            Some((group.replicas, group.resources.clone()))
        }
    });
    let requested = (Origin::Requested, None, ReplicaResources::default());
    let Some((declared, resources)) = declared_group else {
        return requested;
    };
    let (kind, resources) = entry_kind(job, counted, &resources);
    let existing = plan.iter().filter(|e| {
        e.role == role
            && e.is_replica()
            && e.origin == Origin::Declared
            && e.group.as_deref() == group
            && e.is_wanted()
    });
    if kind != role || existing.count() >= usize::try_from(declared).unwrap_or(0) {
        return requested;
    }
    (Origin::Declared, group.map(str::to_owned), resources)
}
