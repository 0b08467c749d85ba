use std::collections::{HashMap, HashSet};

use di_api::{ListWhen, PlanEntry, QueueState, Role, names};
use jiff::{SignedDuration, Timestamp};

use crate::{
    job::Job,
    ops::{find_entry, group_members, incomplete_units, is_group_complete, leader_of},
    ports::port_of_entry,
    view::PodView,
};

/// A watch shows a created pod within this time: a dead watch connection is replaced after a
/// minute.
const WATCH_TIMEOUT: SignedDuration = SignedDuration::from_secs(90);

/// The reconciler tries to create a planned pod within this time.
const CREATE_TIMEOUT: SignedDuration = SignedDuration::from_secs(2);

/// URLs of the replicas that a coordinator can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// URLs of collectors.
    pub collectors: Vec<String>,
    /// URLs of learners; of the aggregator for a learner group. A unit has the URL of its leader.
    pub learners: Vec<String>,
}

/// Lists the URLs of the replicas of a job.
///
/// Left out are replicas that the plan does not want, that have succeeded, that are being deleted
/// or that cannot start. Replicas that wait for quota are left out too, also preempted ones whose pod
/// has not ended. An aggregator is left out if one of its ddp learners is. A failed replica and its
/// replacement swap in one step, with the plan. See docs/decisions/0012. A replica of a role with
/// [`ListWhen::Ready`] is listed only while its pods are ready. A unit is listed only while all its
/// pods have nodes and run. See docs/decisions/0040.
///
/// `pod` finds a pod by name, `was_deleted` says whether the watch showed the deletion of a UID. A
/// replica without a visible pod is listed, unless the API server rejects the pods of the job.
/// For `scheduling_wait` after planning, an unscheduled replica is left out: a client would block on
/// a replica that does not fit.
pub fn list_replicas<'a>(
    job: &impl Job,
    pod: impl Fn(&str) -> Option<&'a PodView>,
    was_deleted: impl Fn(&str) -> bool,
    now: Timestamp,
    scheduling_wait: SignedDuration,
) -> Listing {
    let plan = job.plan_entries();
    let leaders: HashMap<&str, &PlanEntry> = plan
        .iter()
        .filter(|entry| entry.leads_group())
        .map(|entry| (&*entry.name, entry))
        .collect();
    let port_if_listed = |entry: &PlanEntry| {
        // Ddp learners are planned after their aggregator; the wait counts for the whole group.
        let leader = leader_of(entry).and_then(|name| leaders.get(name).copied());
        let planned = leader.unwrap_or(entry);
        listable_port(job, entry, &pod, &was_deleted, now, scheduling_wait)
            .filter(|_| !waits_for_quota(planned))
            .filter(|_| !is_unscheduled(planned, pod(&entry.name), now, scheduling_wait))
            .filter(|_| !awaits_readiness(job, entry, pod(&entry.name)))
            .filter(|_| !entry.is_in_unit() || serves_unit(job, entry, pod(&entry.name)))
    };
    let incomplete: HashSet<&str> = plan
        .iter()
        .filter(|entry| entry.is_wanted() && port_if_listed(entry).is_none())
        .filter_map(leader_of)
        .chain(incomplete_units(plan))
        .collect();
    let url = |entry: &PlanEntry| {
        let port = port_if_listed(entry).filter(|_| !incomplete.contains(&*entry.name))?;
        Some(replica_url(job, entry, port))
    };
    list_by_role(plan, url)
}

/// Lists the URLs of replicas by role. `url` returns `None` for those that are left out.
pub(crate) fn list_by_role(
    plan: &[PlanEntry],
    url: impl Fn(&PlanEntry) -> Option<String>,
) -> Listing {
    let with_role = |role: Role| {
        let replicas = plan.iter().filter(|entry| entry.is_replica());
        replicas.filter(move |entry| entry.role == role)
    };
    Listing {
        collectors: with_role(Role::Collector).filter_map(&url).collect(),
        learners: with_role(Role::Learner)
            .chain(with_role(Role::Aggregator))
            .filter_map(&url)
            .collect(),
    }
}

/// Lists the URLs of the processes of a learner group, ordered by rank.
///
/// Leaves out the same replicas as [`list_replicas`], but readiness does not count: an aggregator
/// waits for its ddp learners itself.
pub fn list_processes<'a>(
    job: &impl Job,
    aggregator: &str,
    pod: impl Fn(&str) -> Option<&'a PodView>,
    was_deleted: impl Fn(&str) -> bool,
    now: Timestamp,
) -> Vec<String> {
    // A learner group has quota as a whole, which is in the entry of the aggregator.
    if find_entry(job.plan_entries(), aggregator).is_some_and(waits_for_quota) {
        return Vec::new();
    }
    let port = |entry| listable_port(job, entry, &pod, &was_deleted, now, SignedDuration::ZERO);
    let mut members: Vec<_> = group_members(job.plan_entries(), aggregator)
        .filter_map(|entry| Some((port(entry)?, entry)))
        .collect();
    members.sort_by_key(|(port, _)| *port);
    members
        .into_iter()
        .flat_map(|(port, entry)| {
            (0..entry.gpu_count()).map(move |i| replica_url(job, entry, port + i))
        })
        .collect()
}

/// The next time at which a listing changes without an event.
///
/// That is when a delayed replica may be created, a scheduling wait ends, or a pod was not visible
/// for too long.
pub fn next_change(
    job: &impl Job,
    now: Timestamp,
    scheduling_wait: SignedDuration,
) -> Option<Timestamp> {
    let times = job.plan_entries().iter().flat_map(|entry| {
        let planned = entry.planned_at.as_ref().map(|time| time.0);
        let start = entry.not_before.as_ref().map(|time| time.0);
        let visible = entry.earliest_creation().filter(|_| entry.uid.is_some());
        let after = |time: Option<Timestamp>, wait: SignedDuration| time?.checked_add(wait).ok();
        [
            start,
            after(planned, scheduling_wait),
            after(planned, CREATE_TIMEOUT),
            after(visible, WATCH_TIMEOUT),
        ]
    });
    times.flatten().filter(|time| *time > now).min()
}

/// Whether Kueue has not admitted the replica, or has preempted it.
pub(crate) fn waits_for_quota(entry: &PlanEntry) -> bool {
    entry.queue == Some(QueueState::Waiting)
}

/// Whether a pod allows its unit to be listed: it has a node and runs, and is ready if the role needs
/// that.
pub(crate) fn serves_unit(job: &impl Job, entry: &PlanEntry, pod: Option<&PodView>) -> bool {
    let must_be_ready = job.list_when(entry.role) == ListWhen::Ready;
    pod.is_some_and(|pod| {
        let can_run = pod.is_active() && pod.end.is_none() && pod.stuck_reason().is_none();
        let is_placed = pod.scheduled == Ok(true) && !pod.deleting;
        can_run && is_placed && (pod.ready || !must_be_ready)
    })
}

/// Whether the replica is listed only while it is ready, and is not.
fn awaits_readiness(job: &impl Job, entry: &PlanEntry, pod: Option<&PodView>) -> bool {
    let is_ready = || {
        let is_group = entry.role == Role::Aggregator;
        let is_complete = !is_group || is_group_complete(job.plan_entries(), &entry.name);
        is_complete && pod.is_some_and(|pod| pod.ready)
    };
    job.list_when(entry.role) == ListWhen::Ready && !is_ready()
}

/// Whether a new replica is still in the scheduling wait and has no node.
///
/// Replacements do not wait: the lost replicas leave the list together with the swap.
fn is_unscheduled(
    entry: &PlanEntry,
    pod: Option<&PodView>,
    now: Timestamp,
    scheduling_wait: SignedDuration,
) -> bool {
    let is_scheduled = pod.is_some_and(|pod| pod.scheduled == Ok(true));
    !is_scheduled && was_planned_within(scheduling_wait, entry, now) && entry.replaces.is_none()
}

/// Whether the replica was planned less than `wait` ago.
fn was_planned_within(wait: SignedDuration, entry: &PlanEntry, now: Timestamp) -> bool {
    let planned = entry.planned_at.as_ref().map(|time| time.0);
    planned.is_some_and(|planned| now.duration_since(planned) < wait)
}

/// Whether the pod was created and no longer exists.
///
/// The plan may be ahead of the watch of pods, so a new pod may not be visible.
fn is_pod_deleted(entry: &PlanEntry, was_deleted: impl Fn(&str) -> bool, now: Timestamp) -> bool {
    let may_be_invisible = entry
        .earliest_creation()
        .is_some_and(|from| now.duration_since(from) < WATCH_TIMEOUT);
    let uid = entry.uid.as_deref();
    uid.is_some_and(|uid| was_deleted(uid) || !may_be_invisible)
}

fn replica_url(job: &impl Job, entry: &PlanEntry, port: i32) -> String {
    names::replica_url(&entry.name, job.job_key().0, port)
}

/// The port of a replica if it can be listed.
fn listable_port<'a>(
    job: &impl Job,
    entry: &PlanEntry,
    pod: &impl Fn(&str) -> Option<&'a PodView>,
    was_deleted: &impl Fn(&str) -> bool,
    now: Timestamp,
    scheduling_wait: SignedDuration,
) -> Option<i32> {
    if !entry.is_wanted() || entry.done || waits_for_quota(entry) {
        return None;
    }
    if let Some(pod) = pod(&entry.name) {
        // A failed pod stays listed until the plan swaps it. DI-engine's sync thread can end when
        // a replica disappears, and must know the replacement then. See docs/decisions/0012.
        let is_listable = !pod.has_completed() && !pod.deleting && pod.stuck_reason().is_none();
        return is_listable.then_some(pod.port);
    }
    // A pod that is not visible may be delayed, deleted or rejected by the API server. An entry
    // with a UID had a pod. See docs/decisions/0004.
    let wait = scheduling_wait.max(CREATE_TIMEOUT);
    let is_expected = entry.uid.is_some() || was_planned_within(wait, entry, now);
    let is_rejected = job.rejection_message().is_some() && !is_expected;
    let is_deleted = is_pod_deleted(entry, was_deleted, now);
    if is_rejected || is_deleted || entry.not_before.as_ref().is_some_and(|time| time.0 > now) {
        return None;
    }
    // The port of an aggregator is unknown until its AggregatorConfig is known.
    if entry.role == Role::Aggregator && entry.port.is_none() {
        return None;
    }
    Some(port_of_entry(job, entry))
}

#[cfg(test)]
mod tests;
