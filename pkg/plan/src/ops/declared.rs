//! Declared replicas: what the spec wants, and what is found without anybody having wanted it.

use di_api::{DIJob, EntryState, Origin, PlanEntry, ReplicaResources, Role};
use jiff::Timestamp;

use super::{find, slots::Slots, victims::mark_surplus};
use crate::{
    names::Suffixes,
    view::{PodView, Stage, uid},
};

/// Roles that users declare and coordinators request.
const WORKERS: [Role; 2] = [Role::Collector, Role::Learner];

/// Brings the Declared entries in line with the spec: adds what is missing, marks what is too much.
pub fn declare(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    pods: &[PodView],
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) {
    for role in WORKERS {
        let mut slots = Slots::new(job, plan, role);
        let Some(declared) = job.spec.declared(role) else {
            mark_surplus(
                plan,
                pods,
                |e| e.role == role && e.origin == Origin::Declared,
                0,
            );
            continue;
        };
        let groups = declared.groups;
        mark_surplus(
            plan,
            pods,
            |e| {
                e.role == role
                    && e.origin == Origin::Declared
                    && e.group
                        .as_ref()
                        .is_some_and(|g| !groups.iter().any(|known| known.name == *g))
            },
            0,
        );
        let buckets = std::iter::once((None, declared.replicas, ReplicaResources::default()))
            .chain(
                groups
                    .iter()
                    .map(|g| (Some(g.name.clone()), g.replicas, g.resources.clone())),
            );
        for (group, wanted, resources) in buckets {
            let of_bucket =
                |e: &PlanEntry| e.role == role && e.origin == Origin::Declared && e.group == group;
            let wanted = usize::try_from(wanted).unwrap_or(0);
            let have = plan
                .iter()
                .filter(|e| of_bucket(e) && e.is_wanted())
                .count();
            for _ in have..wanted {
                let name = slots.name(suffixes);
                plan.push(PlanEntry {
                    group: group.clone(),
                    resources: resources.clone(),
                    ..slots.entry(Origin::Declared, name, now)
                });
            }
            mark_surplus(plan, pods, of_bucket, wanted);
        }
    }
}

/// Takes in pods of the job that have no entry (made by an older server, or left when the status was lost): they are counted, not killed.
pub fn adopt(job: &DIJob, plan: &mut Vec<PlanEntry>, pods: &[PodView], now: Timestamp) {
    let mut strangers: Vec<_> = pods
        .iter()
        .filter(|pod| pod.belongs_to(uid(job)) && !pod.deleting)
        .filter_map(|pod| Some((pod, pod.role.filter(|role| WORKERS.contains(role))?)))
        .filter(|(pod, _)| find(plan, &pod.name).is_none())
        .collect();
    strangers.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    for (pod, role) in strangers {
        let declared = job
            .spec
            .declared(role)
            .map_or(0, |declared| declared.replicas);
        let have = plan
            .iter()
            .filter(|e| {
                e.role == role && e.origin == Origin::Declared && e.group.is_none() && e.is_wanted()
            })
            .count();
        let origin = if have < usize::try_from(declared).unwrap_or(0) {
            Origin::Declared
        } else {
            Origin::Requested
        };
        let mut slots = Slots::new(job, plan, role);
        plan.push(PlanEntry {
            // One that failed is kept for its logs; whether its place is wanted is not known.
            state: if pod.stage() == Stage::Failed {
                EntryState::Replaced
            } else {
                EntryState::Wanted
            },
            ..slots.entry(origin, pod.name.clone(), now)
        });
    }
}
