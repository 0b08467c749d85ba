//! Decides which status writes are urgent, which are debounced, and which actions are allowed
//! before the write.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use di_api::{ConditionType, DIJobStatus, EntryState, Phase, PlanEntry, Role};
use di_cache::Key;

use crate::{Action, Step, context::Context};

/// A status write that is not urgent waits until nothing has changed for this long. Pods come and
/// change in bursts.
pub(crate) const DEBOUNCE: Duration = Duration::from_millis(400);
/// Maximum delay of a debounced write after the first change.
const MAX_DELAY: Duration = Duration::from_millis(800);

/// A debounced status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Debounce {
    /// Time of the first change.
    since: Instant,
    /// Time of the write if nothing else changes.
    due: Instant,
}

impl Debounce {
    /// Starts a debounced write, or extends a pending one that is not due: a reconcile before
    /// its time means that something else has changed.
    fn extend(pending: Option<Self>, now: Instant, min_interval: Duration) -> Self {
        if let Some(due) = pending.filter(|pending| pending.due <= now) {
            return due;
        }
        let since = pending.map_or(now, |pending| pending.since);
        let due = (now + DEBOUNCE).min(since + MAX_DELAY);
        Self {
            since,
            due: due.max(since + min_interval),
        }
    }
}

/// Returns how long a status write waits, so that a burst of pod changes becomes one write.
///
/// `None` if the status is written now: the difference is urgent, or the write is due.
pub(crate) fn debounce_write(
    context: &Context,
    key: &Key,
    old: Option<&DIJobStatus>,
    step: &Step,
) -> Option<Duration> {
    let now = Instant::now();
    let state = context.job_state(key);
    let min_interval = min_write_interval(&step.status);
    let pending = if !is_urgent(old, step) {
        Debounce::extend(state.pending_write, now, min_interval)
    } else if !min_interval.is_zero() && only_replacements(old, &step.status) {
        Debounce {
            since: state.pending_write.map_or(now, |pending| pending.since),
            due: state.last_write? + min_interval,
        }
    } else {
        return None;
    };
    context.update_state(key, |state| state.pending_write = Some(pending));
    let wait = pending.due.checked_duration_since(now);
    wait.filter(|wait| !wait.is_zero())
}

/// Returns the minimum interval of status writes that only follow from replaced replicas.
///
/// The status of a large plan has up to a megabyte, and etcd keeps every version for minutes.
/// See docs/decisions/0003.
fn min_write_interval(status: &DIJobStatus) -> Duration {
    const SMALL_PLAN_ENTRIES: usize = 500;
    let is_small = status.plan.len() <= SMALL_PLAN_ENTRIES;
    Duration::from_millis(if is_small { 0 } else { 1000 })
}

/// Returns true if the only urgent difference is that replicas were replaced, or are gone.
fn only_replacements(old: Option<&DIJobStatus>, new: &DIJobStatus) -> bool {
    let Some(old) = old else { return false };
    let before: HashMap<&str, EntryState> = entry_states(old).collect();
    let is_unchanged = |name: &str, state| {
        let before = before.get(name);
        before.is_some_and(|before| *before == state || *before != EntryState::Wanted)
    };
    let replaced: HashSet<&str> = new
        .plan
        .iter()
        .filter_map(|e| e.replaces.as_deref())
        .collect();
    let is_replacement = |entry: &PlanEntry| {
        is_unchanged(&entry.name, entry.state)
            || replaced.contains(entry.name.as_str())
            || (entry.is_wanted() && entry.replaces.is_some())
    };
    significant_fields(old) == significant_fields(new)
        && old.coordinator == new.coordinator
        && new.plan.iter().all(is_replacement)
}

/// Returns true if the status, or an action that follows from it, must not wait.
pub(crate) fn is_urgent(old: Option<&DIJobStatus>, step: &Step) -> bool {
    let new = &step.status;
    let differs = |old| {
        significant_fields(old) != significant_fields(new)
            || !entry_states(old).eq(entry_states(new))
    };
    !step.actions.is_empty() || old.is_none_or(differs)
}

/// Returns the fields that make a write urgent when they change. The plan is compared separately.
fn significant_fields(status: &DIJobStatus) -> (Option<Phase>, i32) {
    // These phases follow the coordinator's pod, in the same burst as the counts.
    let phase = status.phase.map(|phase| match phase {
        Phase::Running | Phase::Unknown => Phase::Created,
        other => other,
    });
    (phase, status.restarts)
}

fn entry_states(status: &DIJobStatus) -> impl Iterator<Item = (&str, EntryState)> {
    let plan = status.plan.iter();
    plan.map(|entry| (entry.name.as_str(), entry.state))
}

/// Returns true if no status write is needed. A job that is deleted before it has a status gets
/// none.
pub(crate) fn is_up_to_date(old: Option<&DIJobStatus>, new: &DIJobStatus) -> bool {
    match old {
        Some(old) => old == new,
        None => *new == DIJobStatus::default(),
    }
}

/// Returns true if every field that actions depend on is persisted. Counts, and the condition
/// about them, can be written later.
pub(crate) fn is_persisted(old: Option<&DIJobStatus>, new: &DIJobStatus) -> bool {
    let without_counts = |status: &DIJobStatus| {
        let mut status = status.clone();
        status.replica_status.clear();
        status
            .conditions
            .retain(|condition| condition.type_ != ConditionType::ReplicasReady.as_str());
        (
            status.collectors_ready,
            status.learners_ready,
            status.reason,
        ) = (None, None, None);
        status
    };
    old.is_some_and(|old| without_counts(old) == without_counts(new))
}

/// Keeps the actions with a persisted plan entry, while the rest of the plan is debounced.
pub(crate) fn backed_by_persisted_status(
    old: Option<&DIJobStatus>,
    new: &DIJobStatus,
    mut actions: Vec<Action>,
) -> Vec<Action> {
    let plan = old.map_or(&[][..], |old| &old.plan);
    let persisted: HashMap<&str, &PlanEntry> = plan.iter().map(|e| (e.name.as_str(), e)).collect();
    actions.retain(|action| match action {
        Action::CreatePod(entry) | Action::CreateService(entry) => {
            if entry.role == Role::Coordinator {
                old.is_some_and(|old| old.coordinator == new.coordinator)
            } else {
                persisted.get(entry.name.as_str()) == Some(&entry)
            }
        }
        Action::DeletePod { name, .. } | Action::DeleteService { name, .. } => persisted
            .get(name.as_str())
            .is_some_and(|entry| !entry.is_wanted()),
        Action::StopPod { .. } | Action::DeleteJob => false,
    });
    actions
}

#[cfg(test)]
mod tests;
