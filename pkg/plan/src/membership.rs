//! The membership: the replicas that the plan records as listed, and its generation. Readers of one
//! generation see one set. See docs/decisions/0039.

use std::collections::HashSet;

use di_api::{ListWhen, PlanEntry, Role, names};

use crate::{
    job::Job,
    listing::{Listing, list_by_role, serves_unit, waits_for_quota},
    ops::{group_members, incomplete_units, is_group_complete, leader_of},
    ports::port_of_entry,
    view::PodView,
};

/// Whether a pod allows its replica to be listed, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Presence {
    /// It has a node, or is ready if the role needs that.
    Present,
    /// It has no node, or is not visible. A listed replica stays listed.
    Pending,
    /// It is being deleted, has succeeded, cannot start, or is not ready.
    Absent,
}

/// Records which replicas are listed, by their pods. `pod` finds a pod by name.
///
/// A replica is listed once all its pods have a node, or while all are ready, as its role says. A
/// replacement takes the place of its predecessor with the plan. No rule depends on the time. A unit
/// is listed only while it is complete, see docs/decisions/0040.
pub fn record_members<'a>(
    job: &impl Job,
    plan: &mut [PlanEntry],
    pod: impl Fn(&str) -> Option<&'a PodView>,
) {
    let presence = |entry: &PlanEntry| pod_presence(job.list_when(entry.role), pod(&entry.name));
    let in_units = plan.iter().filter(|e| e.is_wanted() && e.is_in_unit());
    let incomplete: HashSet<&str> = in_units
        .filter(|entry| !serves_unit(job, entry, pod(&entry.name)))
        .map(|entry| leader_of(entry).unwrap_or(&entry.name))
        .chain(incomplete_units(plan))
        .collect();
    let is_listed = |entry: &PlanEntry| {
        let is_possible = entry.is_wanted() && !entry.done && !waits_for_quota(entry);
        if !is_possible || !entry.is_replica() {
            return false;
        }
        if entry.is_in_unit() {
            return !incomplete.contains(&*entry.name);
        }
        let members = if entry.role == Role::Aggregator {
            group_members(plan, &entry.name).map(presence).max()
        } else {
            None
        };
        match members.max(Some(presence(entry))) {
            Some(Presence::Present) => entry.listed || is_complete(plan, entry),
            Some(Presence::Pending) => entry.listed,
            _ => false,
        }
    };
    let listed: Vec<bool> = plan.iter().map(is_listed).collect();
    for (entry, is_listed) in plan.iter_mut().zip(listed) {
        entry.listed = is_listed;
    }
}

fn pod_presence(list_when: ListWhen, pod: Option<&PodView>) -> Presence {
    match (list_when, pod) {
        (_, Some(pod)) if pod.has_completed() || pod.deleting || pod.stuck_reason().is_some() => {
            Presence::Absent
        }
        (ListWhen::Ready, Some(pod)) if pod.ready => Presence::Present,
        (ListWhen::Ready, _) => Presence::Absent,
        (ListWhen::Scheduled, Some(pod)) if pod.scheduled == Ok(true) => Presence::Present,
        (ListWhen::Scheduled, _) => Presence::Pending,
    }
}

/// Whether the replica has all its plan entries.
fn is_complete(plan: &[PlanEntry], entry: &PlanEntry) -> bool {
    entry.role != Role::Aggregator || is_group_complete(plan, &entry.name)
}

/// Removes the replicas that are not wanted from the membership, and returns the generation of this
/// plan: one more than `generation` if the set of listed replicas differs from that of `before`.
pub fn next_generation(before: &[PlanEntry], plan: &mut [PlanEntry], generation: i64) -> i64 {
    for entry in plan.iter_mut() {
        entry.listed &= entry.is_wanted();
    }
    let is_changed = listed_names(before) != listed_names(plan);
    generation.saturating_add(i64::from(is_changed))
}

fn listed_names(plan: &[PlanEntry]) -> HashSet<&str> {
    let listed = plan.iter().filter(|entry| entry.listed);
    listed.map(|entry| entry.name.as_str()).collect()
}

/// Lists the URLs of the members, in the order of [`list_replicas`](crate::list_replicas).
pub fn list_members<'a>(job: &impl Job, pod: impl Fn(&str) -> Option<&'a PodView>) -> Listing {
    list_by_role(job.plan_entries(), |entry| {
        let port = pod(&entry.name).map_or_else(|| port_of_entry(job, entry), |pod| pod.port);
        let url = || names::replica_url(&entry.name, job.job_key().0, port);
        entry.listed.then(url)
    })
}

#[cfg(test)]
mod tests;
