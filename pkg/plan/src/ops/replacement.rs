//! Replacement: a fresh name with the same index takes the place of a replica that is lost.

use di_api::{EntryState, PlanEntry};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

use super::{aggregator_of, find, follow, successor};
use crate::{
    Job,
    names::{Suffixes, fresh},
};

/// Swaps a replica for one with a fresh name and the same index. Returns the name that holds its place now, which is that of an
/// earlier successor where it was swapped before; nothing for names that the plan does not know. A ddp learner is swapped with its aggregator and
/// all others of that.
///
/// `ran` is how long it ran, in seconds, where that is known.
pub fn replace(
    job: &impl Job,
    plan: &mut Vec<PlanEntry>,
    name: &str,
    ran: Option<i64>,
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) -> Option<String> {
    let aggregator = find(plan, name).and_then(aggregator_of).map(str::to_owned);
    let name = aggregator.as_deref().unwrap_or(name);
    let Some(i) = plan
        .iter()
        .position(|entry| entry.name == name && entry.is_wanted())
    else {
        return successor(plan, name).map(|entry| entry.name.clone());
    };
    let (attempt, not_before) = next_attempt(plan[i].attempt, ran, now);
    let is_taken = |name: &str| {
        let mut entries = plan.iter();
        entries.any(|entry| entry.name == name || entry.replaces.as_deref() == Some(name))
    };
    let fresh = fresh(job.key().1, plan[i].role, is_taken, suffixes);
    let next = PlanEntry {
        name: fresh.clone(),
        uid: None,
        replaces: Some(name.to_owned()),
        attempt,
        reported: false,
        done: false,
        planned_at: Some(MicroTime(now)),
        not_before,
        ..plan[i].clone()
    };
    // One failed pod per index is kept for its logs: the one that failed last.
    let place = (next.role, next.index);
    let of_place = |entry: &&mut PlanEntry| (entry.role, entry.index) == place;
    for before in plan.iter_mut().filter(of_place) {
        if before.state == EntryState::Replaced {
            before.state = EntryState::Removing;
        }
    }
    plan[i].state = EntryState::Replaced;
    plan.push(next);
    follow(plan);
    Some(fresh)
}

/// Which attempt the pod is that follows one that was lost after so many seconds, where that is known, and before when it is not made: the
/// first follows at once, those after it ever later.
pub fn next_attempt(attempt: i32, ran: Option<i64>, now: Timestamp) -> (i32, Option<Time>) {
    let attempt = match ran {
        Some(seconds) if seconds >= HEALTHY_AFTER_SECONDS => 0,
        _ => attempt,
    };
    let not_before = backoff(attempt).and_then(|wait| now.checked_add(wait).ok());
    (attempt.saturating_add(1), not_before.map(Time))
}

/// A replica that ran this long, in seconds, was healthy: its next failure counts as the first.
const HEALTHY_AFTER_SECONDS: i64 = 600;
const FIRST_BACKOFF_SECONDS: i64 = 10;
/// The pod of a replacement is never made later than so many seconds after it was planned.
pub const LONGEST_BACKOFF_SECONDS: i64 = 300;

/// How long to wait before the pod of a replacement is made; the first is immediate.
fn backoff(attempt: i32) -> Option<jiff::SignedDuration> {
    let doublings = u32::try_from(attempt).ok()?.checked_sub(1)?;
    let seconds = 2_i64
        .checked_pow(doublings.min(16))
        .map_or(LONGEST_BACKOFF_SECONDS, |factor| {
            FIRST_BACKOFF_SECONDS * factor
        });
    Some(jiff::SignedDuration::from_secs(
        seconds.min(LONGEST_BACKOFF_SECONDS),
    ))
}
