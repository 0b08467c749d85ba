//! Pods that are found without anybody having wanted them.

use std::collections::{HashMap, HashSet};

use di_api::{DIJob, EntryState, Origin, PlanEntry, ReplicaResources, Role};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{aggregator_of, declared::WORKERS, find, follow, planned_as, slots::Slots};
use crate::view::{PodView, Stage};

/// Takes in pods of the job that have no entry (made by an older server, or left when the status was lost): they are counted, not killed.
///
/// A logic learner is taken in as one. Of a ddp learner without its aggregator nothing can be made: it goes.
pub fn adopt(job: &DIJob, plan: &mut Vec<PlanEntry>, pods: &[PodView], now: Timestamp) {
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
    strangers.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    let led: HashSet<String> = plan
        .iter()
        .filter_map(|entry| aggregator_of(entry).map(str::to_owned))
        .collect();
    let worlds: HashMap<&str, i32> = strangers
        .iter()
        .filter_map(|(pod, _)| pod.ddp.as_ref())
        .map(|ddp| (ddp.place.aggregator.as_str(), ddp.place.world_size))
        .collect();
    for (pod, role) in strangers {
        let origin = origin(job, plan, role);
        let mut entry = Slots::new(job, plan, role).entry(origin, pod.name.clone(), now);
        if role == Role::DdpLearner {
            let place = pod.ddp.as_ref();
            if place.is_none_or(|ddp| led.contains(&ddp.place.aggregator)) {
                entry.state = EntryState::Removing;
            }
            entry.resources = gpus(place.map_or(1, |ddp| ddp.gpus));
            entry.ddp = place.map(|ddp| ddp.place.clone());
        } else if pod.stage() == Stage::Failed {
            // It is kept for its logs; whether its place is wanted is not known.
            entry.state = EntryState::Replaced;
        }
        if role == Role::Aggregator {
            let template = || job.spec.learner_gpus(&ReplicaResources::default()).max(1);
            let world = worlds.get(pod.name.as_str()).copied();
            entry.resources = gpus(world.unwrap_or_else(template));
            entry.port = Some(pod.port);
        }
        plan.push(entry);
    }
    follow(plan);
}

fn gpus(number: i32) -> ReplicaResources {
    ReplicaResources {
        gpus: Some(Quantity(number.to_string())),
        ..ReplicaResources::default()
    }
}

/// Declared, while fewer are there than the spec declares of this kind.
fn origin(job: &DIJob, plan: &[PlanEntry], role: Role) -> Origin {
    let counted = role.counted_as();
    if !WORKERS.contains(&counted)
        || planned_as(job, counted, &ReplicaResources::default()).0 != role
    {
        return Origin::Requested;
    }
    let declared = job.spec.declared(counted).map_or(0, |part| part.replicas);
    let have = plan
        .iter()
        .filter(|e| {
            e.role == role && e.origin == Origin::Declared && e.group.is_none() && e.is_wanted()
        })
        .count();
    if have < usize::try_from(declared).unwrap_or(0) {
        Origin::Declared
    } else {
        Origin::Requested
    }
}
