//! Changes of one job: the plan in its status, in one guarded write, tried again from the newest state when another was faster.

mod write;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use di_api::{DIJob, PlanEntry, Role};
use di_cache::{JobRef, Key};
use tracing::debug;

use self::write::{Lowering, write};
use crate::{error::Result, state::Shared};

/// How long conflicts and faults that will pass are waited out: longer than one call may take, so that a write whose answer did not come is looked for.
const PATIENCE: Duration = Duration::from_secs(8);
const FIRST_WAIT_MS: u64 = 10;
const LONGEST_WAIT_MS: u64 = 200;

/// What a change makes of a job.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The plan as it is to be.
    pub(crate) plan: Vec<PlanEntry>,
    /// How many fewer replicas of a role are to be declared.
    pub(crate) lower: HashMap<Role, i32>,
    /// How many fewer an earlier try of this change has declared already.
    pub(crate) lowered: HashMap<Role, i32>,
}

/// A write of which it is not known whether it was made.
struct Unsure<T> {
    /// Entries as the write was to leave them, and whether each was new.
    touched: Vec<(PlanEntry, bool)>,
    answer: T,
}

/// Changes a job. `change` may be called several times, each time with a newer state of the job.
pub(crate) async fn mutate<T>(
    state: &Shared,
    key: &Key,
    mut change: impl FnMut(&DIJob, &mut Draft) -> Result<T>,
) -> Result<(JobRef, T)> {
    let _turn = state.turn(key).await?;
    let started = Instant::now();
    let mut lowering = Lowering::default();
    let mut unsure: Vec<Unsure<T>> = Vec::new();
    let mut job = state.find_job(key).await?;
    let mut tried = 0;
    loop {
        lowering.settle(&job);
        if let Some(made) = unsure
            .iter()
            .position(|write| was_made(&write.touched, plan_of(&job)))
        {
            return Ok((job, unsure.swap_remove(made).answer));
        }
        let mut draft = Draft {
            plan: plan_of(&job).to_vec(),
            lower: HashMap::new(),
            lowered: lowering.done.clone(),
        };
        let answer = change(&job, &mut draft)?;
        let touched = touched(plan_of(&job), &draft.plan);
        if touched.is_empty() && draft.lower.is_empty() {
            return Ok((job, answer));
        }
        let error = match write(state, key, &job, draft, &mut lowering).await {
            Ok(job) => return Ok((job, answer)),
            Err(error) => error,
        };
        tried += 1;
        if error.is_stale() {
            state.metrics.conflicts.inc();
        }
        if started.elapsed() > PATIENCE || !error.will_pass() {
            return Err(error);
        }
        debug!(
            job = key.1,
            namespace = key.0,
            error = &error as &dyn std::error::Error,
            "Trying a write again"
        );
        // After a conflict, only names drawn for this try can prove that an earlier send of it arrived.
        let provable = |(_, new): &(PlanEntry, bool)| *new || !error.is_stale();
        if touched.iter().any(provable) {
            unsure.push(Unsure { touched, answer });
        }
        job = reread(state, key, tried, started).await?;
    }
}

/// Reads the job from the API server, after a while, waiting out faults that will pass.
async fn reread(state: &Shared, key: &Key, tried: u32, started: Instant) -> Result<JobRef> {
    let mut tried = tried;
    loop {
        tokio::time::sleep(pause(tried)).await;
        match state.read_job(key).await {
            Ok(job) => return Ok(job.into()),
            Err(error) if !error.will_pass() || started.elapsed() > PATIENCE => return Err(error),
            Err(_) => tried += 1,
        }
    }
}

/// Doubles with each try; drawn at random, so that those who collided do not meet again.
fn pause(tried: u32) -> Duration {
    let longest = (FIRST_WAIT_MS << tried.min(10)).min(LONGEST_WAIT_MS);
    Duration::from_millis(rand::random_range(longest / 2..=longest))
}

pub(crate) fn plan_of(job: &DIJob) -> &[PlanEntry] {
    job.status.as_ref().map_or(&[], |status| &status.plan)
}

/// The entries that a change adds or alters, and whether each is new.
fn touched(before: &[PlanEntry], after: &[PlanEntry]) -> Vec<(PlanEntry, bool)> {
    let before: HashMap<&str, &PlanEntry> = before.iter().map(|e| (e.name.as_str(), e)).collect();
    after
        .iter()
        .filter_map(|entry| match before.get(entry.name.as_str()) {
            None => Some((entry.clone(), true)),
            Some(old) if *old != entry => Some((entry.clone(), false)),
            Some(_) => None,
        })
        .collect()
}

/// Whether the plan shows that a write was made, though its answer was lost. A write is made whole or not at all.
fn was_made(touched: &[(PlanEntry, bool)], plan: &[PlanEntry]) -> bool {
    let now = |name: &str| di_plan::find(plan, name);
    let new: Vec<_> = touched.iter().filter(|(_, new)| *new).collect();
    if !new.is_empty() {
        return new.iter().any(|(entry, _)| now(&entry.name).is_some());
    }
    touched.iter().all(|(entry, _)| match now(&entry.name) {
        Some(now) if entry.is_wanted() => {
            now.claimed_by == entry.claimed_by && now.request_key == entry.request_key
        }
        Some(now) => !now.is_wanted(),
        None => !entry.is_wanted(),
    })
}

#[cfg(test)]
mod tests;
