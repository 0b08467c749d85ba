//! Writes the status: whole, guarded, and not more often than it helps; then tells what it says has happened.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use di_api::{ConditionType, DIJob, DIJobStatus, EntryState, Phase, PlanEntry, Role};
use di_cache::Key;
use kube::Api;

use crate::{Action, Error, Note, Step, context::Context, error::Result};

/// What changes with every pod is written once nothing more has changed for so long: pods come and change in bursts.
pub(crate) const COUNTS_EVERY: Duration = Duration::from_millis(400);
/// And however long a burst lasts, so long after its first change.
const COUNTS_WITHIN: Duration = Duration::from_millis(800);

/// A status that is to be written, for something that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Since when it is.
    since: Instant,
    /// When it is written, if nothing more changes until then.
    until: Instant,
}

impl Held {
    /// A look that finds it to be written still, or for the first time: one before its time was caused by a further change.
    fn on(held: Option<Self>, now: Instant, pace: Duration) -> Self {
        if let Some(due) = held.filter(|held| held.until <= now) {
            return due;
        }
        let since = held.map_or(now, |held| held.since);
        let until = (now + COUNTS_EVERY).min(since + COUNTS_WITHIN);
        Self {
            since,
            until: until.max(since + pace),
        }
    }
}

/// How long a status that differs in nothing urgent, such as counts and the UIDs of pods, is held back, so that a burst of pod changes
/// becomes one write.
pub(crate) fn may_wait(
    context: &Context,
    key: &Key,
    old: Option<&DIJobStatus>,
    step: &Step,
) -> Option<Duration> {
    let now = Instant::now();
    let memory = context.memory(key);
    let pace = pace(&step.status);
    let held = if !is_urgent(old, step) {
        Held::on(memory.held, now, pace)
    } else if !pace.is_zero() && is_churn(old, &step.status) {
        Held {
            since: memory.held.map_or(now, |held| held.since),
            until: memory.written? + pace,
        }
    } else {
        return None;
    };
    context.remember(key, |memory| memory.held = Some(held));
    let wait = held.until.checked_duration_since(now);
    wait.filter(|wait| !wait.is_zero())
}

/// How far apart the writes of a status are that follow from replicas that come and go. One of a large plan is up to a megabyte, of which etcd
/// keeps every version for minutes.
fn pace(status: &DIJobStatus) -> Duration {
    const SMALL: usize = 500;
    let entries = status.plan.len();
    Duration::from_millis(if entries <= SMALL { 0 } else { 1000 })
}

/// Whether all that is urgent about a status is that replicas were replaced, or have gone.
fn is_churn(old: Option<&DIJobStatus>, new: &DIJobStatus) -> bool {
    let Some(old) = old else { return false };
    let before: HashMap<&str, EntryState> = states(old).collect();
    let is_as_before = |name: &str, state| {
        let before = before.get(name);
        before.is_some_and(|before| *before == state || *before != EntryState::Wanted)
    };
    let replaced: HashSet<&str> = new
        .plan
        .iter()
        .filter_map(|e| e.replaces.as_deref())
        .collect();
    let has_place = |entry: &PlanEntry| {
        is_as_before(&entry.name, entry.state)
            || replaced.contains(entry.name.as_str())
            || (entry.is_wanted() && entry.replaces.is_some())
    };
    matters(old) == matters(new)
        && old.coordinator == new.coordinator
        && new.plan.iter().all(has_place)
}

/// Whether a status, or what follows from it, is not to wait.
pub(crate) fn is_urgent(old: Option<&DIJobStatus>, step: &Step) -> bool {
    let new = &step.status;
    let differs = |old| matters(old) != matters(new) || !states(old).eq(states(new));
    !step.actions.is_empty() || old.is_none_or(differs)
}

/// What is urgent of a status, but for its plan.
fn matters(status: &DIJobStatus) -> (Option<Phase>, i32) {
    // These follow one another with the coordinator's pod, in the same burst as the counts.
    let phase = status.phase.map(|phase| match phase {
        Phase::Running | Phase::Unknown => Phase::Created,
        other => other,
    });
    (phase, status.restarts)
}

fn states(status: &DIJobStatus) -> impl Iterator<Item = (&str, EntryState)> {
    let plan = status.plan.iter();
    plan.map(|entry| (entry.name.as_str(), entry.state))
}

/// Whether a status need not be written. A job that is being deleted before it has one gets none.
pub(crate) fn is_written(old: Option<&DIJobStatus>, new: &DIJobStatus) -> bool {
    match old {
        Some(old) => old == new,
        None => *new == DIJobStatus::default(),
    }
}

/// Whether all that actions may rest on is in the status as it was written; counts, and what is said about them, can follow after.
pub(crate) fn stands(old: Option<&DIJobStatus>, new: &DIJobStatus) -> bool {
    let basis = |status: &DIJobStatus| {
        let mut basis = status.clone();
        basis.replica_status.clear();
        basis
            .conditions
            .retain(|condition| condition.type_ != ConditionType::ReplicasReady.as_str());
        (basis.collectors_ready, basis.learners_ready, basis.reason) = (None, None, None);
        basis
    };
    old.is_some_and(|old| basis(old) == basis(new))
}

/// Of these actions those that rest on what is in the status as it was written, though something else of the plan is yet to be.
pub(crate) fn on_what_stands(
    old: Option<&DIJobStatus>,
    new: &DIJobStatus,
    mut actions: Vec<Action>,
) -> Vec<Action> {
    let plan = old.map_or(&[][..], |old| &old.plan);
    let written: HashMap<&str, &PlanEntry> = plan.iter().map(|e| (e.name.as_str(), e)).collect();
    actions.retain(|action| match action {
        Action::CreatePod(entry) | Action::CreateService(entry) => {
            if entry.role == Role::Coordinator {
                old.is_some_and(|old| old.coordinator == new.coordinator)
            } else {
                written.get(entry.name.as_str()) == Some(&entry)
            }
        }
        Action::DeletePod { name, .. } | Action::DeleteService { name, .. } => written
            .get(name.as_str())
            .is_some_and(|entry| !entry.is_wanted()),
        Action::EndPod { .. } | Action::DeleteJob => false,
    });
    actions
}

/// Writes the whole status, guarded by the version of the job that it was derived from.
async fn write_status(
    context: &Context,
    key: &Key,
    job: &DIJob,
    status: DIJobStatus,
) -> Result<()> {
    let whole = (vec!["status".to_owned()], serde_json::json!(status));
    let call = di_cache::write_fields(&context.client, job, Some("status"), [whole]);
    let what = || "write the status".to_owned();
    let written = context.write("patch", "dijobs/status", what, call).await;
    let written = written.map_err(Error::of_the_job)?;
    context.jobs.written(written);
    context.remember(key, |memory| {
        memory.held = None;
        memory.written = Some(Instant::now());
    });
    Ok(())
}

/// Writes the status, then tells what it says has happened.
pub(crate) async fn write_and_tell(
    context: &Context,
    key: &Key,
    job: &DIJob,
    step: Step,
) -> Result<()> {
    let sent = step.status.clone();
    let written = write_status(context, key, job, step.status).await;
    match &written {
        Ok(()) => publish_all(context, job, &step.notes),
        Err(error) if error.may_be_done() => {
            let unsaid = Arc::new((sent, step.notes));
            context.remember(key, |memory| memory.unsaid = Some(unsaid));
        }
        Err(_) => {}
    }
    written
}

/// A status whose write was not answered may stand all the same. Then the step does not find again what happened, and nothing may follow from
/// a job that the cache still has as it was before.
pub(crate) async fn tell_unsaid(context: &Context, key: &Key) -> Result<()> {
    let Some(unsaid) = context.memory(key).unsaid else {
        return Ok(());
    };
    let api: Api<DIJob> = Api::namespaced(context.client.clone(), &key.0);
    let what = || "get the job".to_owned();
    let job = context.get("dijobs", what, api.get_opt(&key.1)).await?;
    context.remember(key, |memory| memory.unsaid = None);
    let (status, notes) = &*unsaid;
    if let Some(job) = job {
        if job.status.as_ref() == Some(status) {
            publish_all(context, &job, notes);
        }
        context.jobs.written(job);
    }
    Ok(())
}

fn publish_all(context: &Context, job: &DIJob, notes: &[Note]) {
    for note in notes {
        context.publish(job, note);
    }
}

#[cfg(test)]
mod tests;
