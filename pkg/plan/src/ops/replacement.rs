//! Replacement: an entry with a new name and the same index takes the place of a lost replica.

use di_api::{EntryState, PlanEntry};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

use super::{
    learner_groups::propagate_to_members,
    lookup::{aggregator_of, find_entry, find_successor},
};
use crate::{
    job::Job,
    names::{Suffixes, unused_name},
};

/// Replaces a replica by one with a new name and the same index.
///
/// Returns the name of the replacement, or of the last successor if the replica was replaced
/// before, or `None` if the plan does not know the name. A ddp learner is replaced with its whole
/// learner group. See docs/decisions/0008.
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
    let aggregator = find_entry(plan, name)
        .and_then(aggregator_of)
        .map(str::to_owned);
    let name = aggregator.as_deref().unwrap_or(name);
    let Some(i) = plan
        .iter()
        .position(|entry| entry.name == name && entry.is_wanted())
    else {
        return find_successor(plan, name).map(|entry| entry.name.clone());
    };
    let (attempt, not_before) = next_attempt(plan[i].attempt, run_seconds, now);
    let is_taken = |name: &str| {
        let mut entries = plan.iter();
        entries.any(|entry| entry.name == name || entry.replaces.as_deref() == Some(name))
    };
    let new_name = unused_name(job.job_key().1, plan[i].role, is_taken, suffixes);
    let next = PlanEntry {
        name: new_name.clone(),
        uid: None,
        replaces: Some(name.to_owned()),
        attempt,
        reported: false,
        done: false,
        planned_at: Some(MicroTime(now)),
        not_before,
        ..plan[i].clone()
    };
    // Keep the logs of one failed pod per index: the last one.
    let place = (next.role, next.index);
    let has_place = |entry: &&mut PlanEntry| (entry.role, entry.index) == place;
    for before in plan.iter_mut().filter(has_place) {
        if before.state == EntryState::Replaced {
            before.state = EntryState::Removing;
        }
    }
    plan[i].state = EntryState::Replaced;
    plan.push(next);
    propagate_to_members(plan);
    Some(new_name)
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
