//! Pods that are found without anybody having wanted them.

use std::collections::{HashMap, HashSet};

use di_api::{DIJob, EntryState, Origin, PlanEntry, ReplicaResources, Role};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{aggregator_of, declared::WORKERS, find, follow, planned_as, slots::Slots};
use crate::view::{PodView, Stage};

/// Takes in pods of the job that have no entry (made by an older server, or left when the status was lost): they are counted, not killed.
///
/// A logic learner is taken in as one. Of a ddp learner without its aggregator nothing can be made: it goes. Requested ones are of `coordinator`,
/// the [incarnation](PodView::incarnation) that there is: its successor is served with them first. Without one they were another's, in any case.
pub fn adopt(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    pods: &[PodView],
    coordinator: Option<String>,
    now: Timestamp,
) {
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let mut strangers: Vec<_> = pods
        .iter()
        .filter(|pod| pod.belongs_to(uid) && !pod.deleting)
        .filter_map(|pod| Some((pod, pod.role.filter(|role| *role != Role::Coordinator)?)))
        .filter(|(pod, _)| find(plan, &pod.name).is_none())
        .collect();
    if strangers.is_empty() {
        return;
    }
    // Those that live first: a failed one may have had the number of one of them before.
    strangers.sort_by_key(|(pod, _)| (has_failed(pod), pod.name.as_str()));
    let led: HashSet<String> = plan
        .iter()
        .filter_map(|entry| aggregator_of(entry).map(str::to_owned))
        .collect();
    let worlds: HashMap<&str, i32> = strangers
        .iter()
        .filter_map(|(pod, _)| pod.ddp.as_ref())
        .map(|ddp| (ddp.place.aggregator.as_str(), ddp.place.world_size))
        .collect();
    let claimed_by = coordinator.unwrap_or_default();
    let mut all_slots = HashMap::new();
    for (pod, role) in strangers {
        let (origin, group, resources) = place(job, plan, role, pod.group.as_deref());
        let slots = all_slots
            .entry(role)
            .or_insert_with(|| Slots::new(job, plan, role));
        let mut entry = PlanEntry {
            group,
            resources,
            ..slots.entry_at(pod.index, origin, pod.name.clone(), now)
        };
        if role == Role::DdpLearner {
            let place = pod.ddp.as_ref();
            if place.is_none_or(|ddp| led.contains(&ddp.place.aggregator)) {
                entry.state = EntryState::Removing;
            }
            entry.resources = gpus(place.map_or(1, |ddp| ddp.gpus));
            entry.ddp = place.map(|ddp| ddp.place.clone());
            let unit = aggregator_of(&entry).and_then(|name| find(plan, name));
            entry.origin = unit.map_or(origin, |unit| unit.origin);
        } else if has_failed(pod) {
            // It is kept for its logs; whether its place is wanted is not known.
            entry.state = EntryState::Replaced;
            entry.index = pod.index.unwrap_or(entry.index);
            let mut same = plan.iter_mut().filter(|other| other.role == role);
            if let Some(next) = same.find(|other| other.index == entry.index) {
                next.replaces.get_or_insert_with(|| entry.name.clone());
            }
        }
        if role == Role::Aggregator {
            let template = || job.spec.learner_gpus(&ReplicaResources::default()).max(1);
            let world = worlds.get(pod.name.as_str()).copied();
            entry.resources.gpus = gpus(world.unwrap_or_else(template)).gpus;
            entry.port = Some(pod.port);
        }
        if entry.is_wanted() && entry.origin == Origin::Requested {
            entry.claimed_by = Some(claimed_by.clone());
        }
        plan.push(entry);
    }
    follow(plan);
}

fn has_failed(pod: &PodView) -> bool {
    pod.stage() == Stage::Failed
}

fn gpus(number: i32) -> ReplicaResources {
    ReplicaResources {
        gpus: Some(Quantity(number.to_string())),
        ..ReplicaResources::default()
    }
}

/// Who wants a pod of this role that was made for this group: the spec, while fewer are there than it declares of that kind.
fn place(
    job: &DIJob,
    plan: &[PlanEntry],
    role: Role,
    group: Option<&str>,
) -> (Origin, Option<String>, ReplicaResources) {
    let counted = role.counted_as();
    let declared = WORKERS
        .contains(&counted)
        .then(|| job.spec.declared(counted));
    let bucket = declared.flatten().and_then(|declared| match group {
        None => Some((declared.replicas, ReplicaResources::default())),
        Some(name) => {
            let group = declared.groups.iter().find(|group| group.name == name)?;
            Some((group.replicas, group.resources.clone()))
        }
    });
    let requested = (Origin::Requested, None, ReplicaResources::default());
    let Some((declared, resources)) = bucket else {
        return requested;
    };
    let (planned, resources) = planned_as(job, counted, &resources);
    let alike = plan.iter().filter(|e| {
        e.role == role
            && e.origin == Origin::Declared
            && e.group.as_deref() == group
            && e.is_wanted()
    });
    if planned != role || alike.count() >= usize::try_from(declared).unwrap_or(0) {
        return requested;
    }
    (Origin::Declared, group.map(str::to_owned), resources)
}
