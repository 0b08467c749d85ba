//! Declared replicas: those that the spec asks for.

use std::collections::HashSet;

use di_api::{DIJob, Origin, PlanEntry, ReplicaResources, Role, names};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    learner_groups::entry_kind,
    lookup::leader_of,
    name_allocator::NameAllocator,
    scale_down::{mark_excess, mark_named},
};
use crate::{job::Job, names::Suffixes, view::PodView};

/// Roles that users declare and coordinators request.
pub(super) const WORKER_ROLES: [Role; 2] = [Role::Collector, Role::Learner];

/// Aligns the declared entries with the spec: adds missing entries and marks excess ones.
///
/// Replicas that the annotation of the job names are removed first. If the spec no longer has a
/// role, all its entries are removed, also requested ones, because their pods cannot be created.
pub fn sync_declared(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    pods: &[PodView],
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) {
    let named = job.annotations().get(names::PODS_TO_DELETE_ANNOTATION);
    let named: Vec<_> = named
        .into_iter()
        .flat_map(|names| names.split(','))
        .collect();
    for role in WORKER_ROLES {
        let is_counted = |e: &PlanEntry| e.counts_as(role);
        let Some(declared) = job.spec.declared(role) else {
            mark_excess(plan, pods, is_counted, 0);
            continue;
        };
        let is_declared = |e: &PlanEntry| is_counted(e) && e.origin == Origin::Declared;
        let groups = declared.groups;
        let is_of_removed_group = |e: &PlanEntry| {
            let is_known = |name: &String| groups.iter().any(|group| group.name == *name);
            is_declared(e) && e.group.as_ref().is_some_and(|name| !is_known(name))
        };
        mark_excess(plan, pods, is_of_removed_group, 0);
        let declared_groups =
            std::iter::once((None, declared.replicas, ReplicaResources::default())).chain(
                groups
                    .iter()
                    .map(|g| (Some(g.name.clone()), g.replicas, g.resources.clone())),
            );
        for (group, wanted, resources) in declared_groups {
            let (planned_role, resources) = entry_kind(job, role, &resources);
            let is_of_group = |e: &PlanEntry| is_declared(e) && e.group == group;
            // The spec may have changed. A pod that does not exist follows the new spec. Its entry
            // is planned again if the kind of learner or the size of units changes, or if its unit or
            // learner group is planned.
            let is_uncreated = |e: &PlanEntry| is_of_group(e) && e.is_wanted() && e.uid.is_none();
            let planned_groups: HashSet<_> = plan.iter().filter_map(leader_of).collect();
            let outdated = plan.iter().filter(|e| {
                is_uncreated(e)
                    && (e.role != planned_role
                        || e.unit.as_ref().map(|place| place.size) != job.unit_size(planned_role)
                        || e.resources != resources && planned_groups.contains(e.name.as_str()))
            });
            let outdated: HashSet<_> = outdated.map(|e| e.name.clone()).collect();
            mark_excess(plan, pods, |e| outdated.contains(&e.name), 0);
            for entry in plan.iter_mut().filter(|e| is_uncreated(e)) {
                entry.resources.clone_from(&resources);
            }
            let wanted = usize::try_from(wanted).unwrap_or(0);
            let existing = plan
                .iter()
                .filter(|e| is_of_group(e) && e.is_wanted())
                .count();
            if existing < wanted {
                let mut allocator = NameAllocator::new(job, plan, planned_role);
                for _ in existing..wanted {
                    let name = allocator.allocate_name(suffixes);
                    plan.push(PlanEntry {
                        group: group.clone(),
                        resources: resources.clone(),
                        ..allocator.new_entry(Origin::Declared, name, now)
                    });
                }
            }
            mark_named(plan, &named, is_of_group, wanted);
            mark_excess(plan, pods, is_of_group, wanted);
        }
    }
}
