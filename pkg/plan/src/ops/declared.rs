//! Declared replicas: what the spec wants.

use std::collections::HashSet;

use di_api::{DIJob, Origin, PlanEntry, ReplicaResources, Role, names};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    aggregator_of, planned_as,
    slots::Slots,
    victims::{mark_named, mark_surplus},
};
use crate::{names::Suffixes, view::PodView};

/// Roles that users declare and coordinators request.
pub(super) const WORKERS: [Role; 2] = [Role::Collector, Role::Learner];

/// Brings the Declared entries in line with the spec: adds what is missing, marks what is too much. Those that the job's annotation names go
/// first. Of a role that the job does not have any more all go, the Requested too: no pod of it can be made.
pub fn declare(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    pods: &[PodView],
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) {
    let named = job.annotations().get(names::LET_GO_ANNOTATION);
    let named: Vec<_> = named.into_iter().flat_map(|all| all.split(',')).collect();
    for role in WORKERS {
        let counted = |e: &PlanEntry| e.role.counted_as() == role;
        let Some(declared) = job.spec.declared(role) else {
            mark_surplus(plan, pods, counted, 0);
            continue;
        };
        let of_role = |e: &PlanEntry| counted(e) && e.origin == Origin::Declared;
        let groups = declared.groups;
        let of_lost_group = |e: &PlanEntry| {
            let known = |group: &String| groups.iter().any(|known| known.name == *group);
            of_role(e) && e.group.as_ref().is_some_and(|group| !known(group))
        };
        mark_surplus(plan, pods, of_lost_group, 0);
        let buckets = std::iter::once((None, declared.replicas, ReplicaResources::default()))
            .chain(
                groups
                    .iter()
                    .map(|g| (Some(g.name.clone()), g.replicas, g.resources.clone())),
            );
        for (group, wanted, resources) in buckets {
            let (planned_role, resources) = planned_as(job, role, &resources);
            let of_bucket = |e: &PlanEntry| of_role(e) && e.group == group;
            // The job may have been changed, and what was not made yet is made as it says now: planned anew if it is another kind of learner by
            // now, or a unit whose parts are planned already, else as it is.
            let unmade = |e: &PlanEntry| of_bucket(e) && e.is_wanted() && e.uid.is_none();
            let led: HashSet<_> = plan.iter().filter_map(aggregator_of).collect();
            let misfits = plan.iter().filter(|e| {
                unmade(e)
                    && (e.role != planned_role
                        || e.resources != resources && led.contains(e.name.as_str()))
            });
            let misfits: HashSet<_> = misfits.map(|e| e.name.clone()).collect();
            mark_surplus(plan, pods, |e| misfits.contains(&e.name), 0);
            for entry in plan.iter_mut().filter(|e| unmade(e)) {
                entry.resources.clone_from(&resources);
            }
            let wanted = usize::try_from(wanted).unwrap_or(0);
            let have = plan
                .iter()
                .filter(|e| of_bucket(e) && e.is_wanted())
                .count();
            if have < wanted {
                let mut slots = Slots::new(job, plan, planned_role);
                for _ in have..wanted {
                    let name = slots.name(suffixes);
                    plan.push(PlanEntry {
                        group: group.clone(),
                        resources: resources.clone(),
                        ..slots.entry(Origin::Declared, name, now)
                    });
                }
            }
            mark_named(plan, &named, of_bucket, wanted);
            mark_surplus(plan, pods, of_bucket, wanted);
        }
    }
}
