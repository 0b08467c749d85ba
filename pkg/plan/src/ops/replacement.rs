//! Replacement: an entry with a new name and the same index takes the place of a lost replica.

use di_api::{EntryState, ListWhen, PlanEntry};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

use super::{
    learner_groups::propagate_to_members,
    lookup::{find_entry, find_successor, leader_of},
    units::{taken_names, unused_member_name},
};
use crate::{
    job::Job,
    names::{Suffixes, unused_name},
};

/// Replaces a replica by one with a new name and the same index.
///
/// Returns the name of the replacement, or of the last successor if the replica was replaced
/// before, or `None` if the plan does not know the name. A ddp learner is replaced with its whole
/// learner group, and a pod of a unit with its whole unit. See docs/decisions/0008 and 0040.
///
/// `run_seconds` is the run time of the replica in seconds, if known.
pub fn replace(
    job: &impl Job,
    plan: &mut Vec<PlanEntry>,
    name: &str,
    run_seconds: Option<i64>,
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) -> Option<String> {
    // A pod of a unit may have been replaced alone.
    let leader = find_entry(plan, name)
        .filter(|entry| entry.is_wanted())
        .and_then(leader_of)
        .map(str::to_owned);
    let name = leader.as_deref().unwrap_or(name);
    let Some(i) = plan
        .iter()
        .position(|entry| entry.name == name && entry.is_wanted())
    else {
        return find_successor(plan, name).map(|entry| entry.name.clone());
    };
    let is_taken = |name: &str| {
        let mut entries = plan.iter();
        entries.any(|entry| entry.name == name || entry.replaces.as_deref() == Some(name))
    };
    let new_name = unused_name(job.job_key().1, plan[i].role, is_taken, suffixes);
    let mut next = next_entry(&plan[i], new_name.clone(), run_seconds, now);
    // The new name takes the place in the list in the same write, except that of a unit. See
    // docs/decisions/0039 and 0040.
    let keeps_place = next.not_before.is_none() && !next.is_in_unit();
    let is_listed_at_once = job.list_when(next.role) == ListWhen::Scheduled;
    next.listed = plan[i].listed && keeps_place && is_listed_at_once;
    let place = (next.role, next.index);
    remove_replaced(plan, |entry| (entry.role, entry.index) == place);
    plan[i].state = EntryState::Replaced;
    plan.push(next);
    propagate_to_members(plan);
    Some(new_name)
}

/// Replaces a pod of a unit, other than the leader, by one with a new name and the same place.
///
/// Returns the new name, or `None` if the plan wants no such pod. `run_seconds` is the run time of
/// the pod in seconds, if known.
pub fn replace_unit_member(
    job: &impl Job,
    plan: &mut Vec<PlanEntry>,
    name: &str,
    run_seconds: Option<i64>,
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) -> Option<String> {
    let is_lost = |entry: &PlanEntry| {
        let is_member = entry.is_in_unit() && !entry.is_replica();
        entry.name == name && entry.is_wanted() && is_member
    };
    let i = plan.iter().position(is_lost)?;
    let index = plan[i].unit.as_ref()?.index;
    let taken = taken_names(plan);
    let new_name = unused_member_name(job, &plan[i], index, &taken, suffixes);
    let next = next_entry(&plan[i], new_name.clone(), run_seconds, now);
    remove_replaced(plan, |entry| entry.unit == next.unit);
    plan[i].state = EntryState::Replaced;
    plan.push(next);
    Some(new_name)
}

/// Removes the pods that were replaced in a place before: the logs of one failed pod are kept, the
/// last one.
fn remove_replaced(plan: &mut [PlanEntry], has_place: impl Fn(&PlanEntry) -> bool) {
    for entry in plan {
        if entry.state == EntryState::Replaced && has_place(entry) {
            entry.state = EntryState::Removing;
        }
    }
}

/// The entry that takes the place of another. It is not listed.
fn next_entry(
    before: &PlanEntry,
    name: String,
    run_seconds: Option<i64>,
    now: Timestamp,
) -> PlanEntry {
    let (attempt, not_before) = next_attempt(before.attempt, run_seconds, now);
    PlanEntry {
        name,
        uid: None,
        replaces: Some(before.name.clone()),
        attempt,
        reported: false,
        done: false,
        listed: false,
        planned_at: Some(MicroTime(now)),
        not_before,
        ..before.clone()
    }
}

/// The number of the next attempt, and the time before which its pod is not created.
///
/// The first replacement is immediate; the delay then doubles with each attempt. `run_seconds` is
/// the run time of the lost pod, if known.
pub fn next_attempt(attempt: i32, run_seconds: Option<i64>, now: Timestamp) -> (i32, Option<Time>) {
    let attempt = match run_seconds {
        Some(seconds) if seconds >= HEALTHY_AFTER_SECONDS => 0,
        _ => attempt,
    };
    let not_before = backoff_delay(attempt).and_then(|delay| now.checked_add(delay).ok());
    (attempt.saturating_add(1), not_before.map(Time))
}

/// After this run time a replica counts as healthy, and its next failure as the first.
const HEALTHY_AFTER_SECONDS: i64 = 600;
const FIRST_BACKOFF_SECONDS: i64 = 10;
/// Maximum delay between the planning of a replacement and the creation of its pod.
pub const MAX_BACKOFF_SECONDS: i64 = 300;

/// The delay before the pod of a replacement is created; `None` for the first.
fn backoff_delay(attempt: i32) -> Option<jiff::SignedDuration> {
    let doublings = u32::try_from(attempt).ok()?.checked_sub(1)?;
    let seconds = 2_i64
        .checked_pow(doublings.min(16))
        .map_or(MAX_BACKOFF_SECONDS, |factor| FIRST_BACKOFF_SECONDS * factor);
    Some(jiff::SignedDuration::from_secs(
        seconds.min(MAX_BACKOFF_SECONDS),
    ))
}
