//! Changes of one job: the plan in its status, in one guarded write, tried again from the newest state when another was faster.

mod write;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use di_api::{AnsweredRequest, PlanEntry, RequestKind, Role};
use di_cache::{JobView, Key};
use di_plan::Job;
use kube::ResourceExt;
use tokio::time::timeout;
use tracing::debug;

use self::write::write_change;
use crate::{
    authorize::Requester,
    error::{Error, Result},
    idempotency::scale_down::ScaleDown,
    state::{JobRef, SharedState},
};

/// How long conflicts and faults that will pass are waited out: longer than one call may take, so that a write whose answer did not come is looked for.
const RETRY_DEADLINE: Duration = Duration::from_secs(8);
/// How long the job as it is now is waited for, where the cache has an answer: others wait for their turn meanwhile.
const LIVE_READ_TIMEOUT: Duration = Duration::from_secs(1);
const MIN_BACKOFF_MS: u64 = 10;
const MAX_BACKOFF_MS: u64 = 200;

/// Declared replicas that are counted together: of a role, and of one of its groups or of none.
pub(crate) type ReplicaGroupRef = (Role, Option<String>);

/// What a change makes of a job.
#[derive(Debug, Default)]
pub(crate) struct JobChange {
    /// The plan as it is to be.
    pub(crate) plan: Vec<PlanEntry>,
    /// The request that this change answers, so that it is known when it comes again.
    pub(crate) answers: Option<AnsweredRequest>,
    /// Kind and key of the request that was answered by an earlier change and is to count as never served.
    pub(crate) rolled_back_request: Option<(RequestKind, String)>,
    /// How many fewer replicas are to be declared, and who goes for that.
    pub(crate) lower: HashMap<ReplicaGroupRef, ScaleDown>,
}

impl JobChange {
    fn is_noop(&self, job: &JobView) -> bool {
        self.plan == job.plan
            && self.lower.is_empty()
            && self.answers.is_none()
            && self.rolled_back_request.is_none()
    }
}

/// Changes a job, which must be the one that the requester was let in for: another may have its name by now.
///
/// `change` may be called several times, each time with a newer state of the job; it must find out by itself whether a write of an earlier call
/// was made though its answer was lost.
pub(crate) async fn mutate_job<T>(
    state: &SharedState,
    key: &Key,
    requester: &Requester,
    mut change: impl FnMut(&JobView, &mut JobChange) -> Result<T>,
) -> Result<(JobRef, T)> {
    let _turn = state.lock_job(key).await?;
    let started = Instant::now();
    let mut is_cached = state.jobs.get(key).is_some();
    let mut job = state.find_job(key).await?;
    let mut tried = 0;
    loop {
        requester.check(&job)?;
        let mut draft = JobChange {
            plan: job.plan_entries().to_vec(),
            ..JobChange::default()
        };
        let answer = change(&job, &mut draft);
        // The cache may be behind: who is refused, or changes nothing, is told by the job as it is now, if that is to be had.
        let is_moot = match &answer {
            Ok(_) => draft.is_noop(&job),
            Err(error) => matches!(error, Error::Conflict(_) | Error::Invalid(_)),
        };
        if is_moot && std::mem::take(&mut is_cached) {
            let newest = match timeout(LIVE_READ_TIMEOUT, state.read_job(key)).await {
                Ok(Ok(newest)) => Some(newest),
                // A server that has just started may know of nothing yet that the watch has long shown.
                Ok(Err(gone @ Error::NotFound(_))) if state.jobs.get(key).is_none() => {
                    return Err(gone);
                }
                // DI-engine ends by a refusal; what it is refused for may have passed.
                Ok(Err(_)) | Err(_) if answer.is_err() => {
                    let why = "the DIJob could not be looked at as it is now";
                    return Err(Error::Unavailable(why.to_owned()));
                }
                Ok(Err(_)) | Err(_) => None,
            };
            let newer = |newest: &JobRef| newest.resource_version() != job.resource_version();
            if let Some(newest) = newest.filter(newer) {
                job = newest;
                continue;
            }
        }
        let answer = answer?;
        if is_moot {
            return Ok((job, answer));
        }
        let error = match write_change(state, &job, draft).await {
            Ok(job) => return Ok((job, answer)),
            Err(error) => error,
        };
        tried += 1;
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
            "Trying a write again"
        );
        job = reread_job(state, key, tried, started).await?;
    }
}

/// Reads the job from the API server, after a while, waiting out faults that will pass.
async fn reread_job(
    state: &SharedState,
    key: &Key,
    tried: u32,
    started: Instant,
) -> Result<JobRef> {
    let mut tried = tried;
    loop {
        tokio::time::sleep(retry_delay(tried)).await;
        match state.read_job(key).await {
            Ok(job) => return Ok(job),
            Err(error) if !error.is_retryable() || started.elapsed() > RETRY_DEADLINE => {
                return Err(error);
            }
            Err(_) => tried += 1,
        }
    }
}

/// Doubles with each try; drawn at random, so that those who collided do not meet again.
fn retry_delay(tried: u32) -> Duration {
    let longest = (MIN_BACKOFF_MS << tried.min(10)).min(MAX_BACKOFF_MS);
    Duration::from_millis(rand::random_range(longest / 2..=longest))
}

#[cfg(test)]
mod tests;
