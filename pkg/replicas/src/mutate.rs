//! Changes the plan in the status of one job with one guarded write. After a conflict, retries from
//! the newest state.

pub(crate) mod job_change;
mod write;

use std::time::{Duration, Instant};

use di_cache::{JobView, Key};
use di_plan::Job;
use kube::ResourceExt;
use tokio::time::timeout;
use tracing::debug;

use self::{job_change::JobChange, write::write_change};
use crate::{
    authorize::identity::Identity,
    error::{Error, Result},
    state::{JobRef, SharedState},
};

/// How long conflicts and retryable errors are retried. Longer than one API call, so that the job is
/// read again after a write that timed out.
const RETRY_DEADLINE: Duration = Duration::from_secs(8);
/// Timeout of the live read that confirms a result from the cache. Short: the job is locked.
const LIVE_READ_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_BACKOFF_MS: u64 = 10;
const MAX_BACKOFF_MS: u64 = 200;

/// Changes a job. It must be the job that the sender was authorized for, not a newer one of the
/// same name.
///
/// `change` may be called several times, each time with a newer state of the job. It must detect
/// whether an earlier write succeeded although its response was lost. See docs/decisions/0009.
pub(crate) async fn mutate_job<T>(
    state: &SharedState,
    key: &Key,
    identity: &Identity,
    mut change: impl FnMut(&JobView, &mut JobChange) -> Result<T>,
) -> Result<(JobRef, T)> {
    let _lock = state.lock_job(key).await?;
    let started = Instant::now();
    let mut is_cached = state.jobs.get(key).is_some();
    let mut job = state.find_job(key).await?;
    let mut attempts = 0;
    loop {
        identity.check_same_job(&job)?;
        let mut draft = JobChange {
            plan: job.plan_entries().to_vec(),
            ..JobChange::default()
        };
        let answer = change(&job, &mut draft);
        // The cache may be behind: confirm a rejection, or a change without effect, by a live read.
        let is_final = match &answer {
            Ok(_) => draft.is_noop(&job),
            Err(error) => matches!(error, Error::Conflict(_) | Error::Invalid(_)),
        };
        if is_final
            && std::mem::take(&mut is_cached)
            && let Some(newest) = read_newer_job(state, key, &job, answer.is_err()).await?
        {
            job = newest;
            continue;
        }
        let answer = answer?;
        if is_final {
            return Ok((job, answer));
        }
        let error = match write_change(state, &job, draft).await {
            Ok(job) => return Ok((job, answer)),
            Err(error) => error,
        };
        attempts += 1;
        if error.is_conflict_response() {
            state.metrics.conflicts.inc();
        }
        if started.elapsed() > RETRY_DEADLINE || !error.is_retryable() {
            return Err(error);
        }
        debug!(
            job = key.1,
            namespace = key.0,
            error = &error as &dyn std::error::Error,
            "Writing the DIJob failed, retrying"
        );
        job = reread_job(state, key, attempts, started).await?;
    }
}

/// Reads the job from the API server, and returns it if it is newer than `cached`.
async fn read_newer_job(
    state: &SharedState,
    key: &Key,
    cached: &JobRef,
    is_rejected: bool,
) -> Result<Option<JobRef>> {
    match timeout(LIVE_READ_TIMEOUT, state.read_job(key)).await {
        Ok(Ok(newest)) => {
            let is_newer = newest.resource_version() != cached.resource_version();
            Ok(is_newer.then_some(newest))
        }
        // A not-found counts only if the cache agrees: an API server that just started may not know
        // the job yet.
        Ok(Err(gone @ Error::NotFound(_))) if state.jobs.get(key).is_none() => Err(gone),
        // DI-engine exits on a rejection, and the cached reason may be outdated.
        // See docs/decisions/0007.
        Ok(Err(_)) | Err(_) if is_rejected => Err(Error::Unavailable(
            "the DIJob could not be read from the API server".to_owned(),
        )),
        Ok(Err(_)) | Err(_) => Ok(None),
    }
}

/// Reads the job from the API server after a delay, and retries retryable errors.
async fn reread_job(
    state: &SharedState,
    key: &Key,
    attempts: u32,
    started: Instant,
) -> Result<JobRef> {
    let mut attempts = attempts;
    loop {
        tokio::time::sleep(retry_delay(attempts)).await;
        match state.read_job(key).await {
            Ok(job) => return Ok(job),
            Err(error) if !error.is_retryable() || started.elapsed() > RETRY_DEADLINE => {
                return Err(error);
            }
            Err(_) => attempts += 1,
        }
    }
}

/// Doubles with each attempt, with jitter so that conflicting writers separate.
fn retry_delay(attempts: u32) -> Duration {
    let longest = (MIN_BACKOFF_MS << attempts.min(10)).min(MAX_BACKOFF_MS);
    Duration::from_millis(rand::random_range(longest / 2..=longest))
}

#[cfg(test)]
mod tests;
