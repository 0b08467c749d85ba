use std::collections::{BTreeMap, BTreeSet};

use di_api::{DIJob, Origin, PlanEntry, Role};

use crate::ops::{has_all_members, leader_of};

/// Names of the entries in the floor of a job, without the coordinator, which is always in it. Empty
/// if the job asks for no gang.
///
/// `plan` must have all declared replicas. `None` until all pods of the floor are known: an
/// aggregator may have no ddp learners yet, or a leader no other pods.
pub fn floor_members<'a>(job: &DIJob, plan: &'a [PlanEntry]) -> Option<BTreeSet<&'a str>> {
    let mut floor = BTreeSet::new();
    let scheduling = job.spec.scheduling.as_ref();
    let Some(gang) = scheduling.and_then(|scheduling| scheduling.gang.as_ref()) else {
        return Some(floor);
    };
    let mut groups: BTreeMap<&str, Vec<&PlanEntry>> = BTreeMap::new();
    for entry in plan {
        if let Some(leader) = leader_of(entry) {
            groups.entry(leader).or_default().push(entry);
        }
    }
    for (roles, min) in [
        (&[Role::Collector][..], gang.min_collectors),
        (&[Role::Learner, Role::Aggregator][..], gang.min_learners),
    ] {
        let min = min.map_or(usize::MAX, |min| usize::try_from(min).unwrap_or(0));
        // A done replica keeps its place, so that no other one moves up, but it has no pod to place.
        for entry in first_declared(plan, roles, min).filter(|entry| !entry.done) {
            floor.insert(&*entry.name);
            if entry.leads_group() {
                let members = groups.remove(&*entry.name).unwrap_or_default();
                if !has_all_members(entry, &members) {
                    return None;
                }
                let is_in_floor = |member: &&PlanEntry| member.is_wanted() && !member.done;
                let members = members.into_iter().filter(is_in_floor);
                floor.extend(members.map(|member| &*member.name));
            }
        }
    }
    Some(floor)
}

/// The first `min` declared replicas of these roles by index. A replacement has the index of its
/// predecessor. Replicas with quota of their own start on their own.
fn first_declared<'a>(
    plan: &'a [PlanEntry],
    roles: &[Role],
    min: usize,
) -> impl Iterator<Item = &'a PlanEntry> {
    let may_be_in_floor = |entry: &&PlanEntry| {
        let is_declared = entry.is_wanted() && entry.origin == Origin::Declared;
        is_declared && entry.is_replica() && entry.queue.is_none() && roles.contains(&entry.role)
    };
    let mut declared: Vec<_> = plan.iter().filter(may_be_in_floor).collect();
    declared.sort_by(|one, other| {
        let key = |entry: &PlanEntry| (entry.index, entry.role);
        key(one)
            .cmp(&key(other))
            .then_with(|| one.name.cmp(&other.name))
    });
    declared.into_iter().take(min)
}
