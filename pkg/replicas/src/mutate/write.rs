use std::{collections::HashMap, sync::Arc};

use di_api::{DIJob, DIJobStatus, Role, guarded_patch};
use di_cache::{JobRef, Key};
use kube::api::{Patch, PatchParams};

use super::{Draft, plan_of};
use crate::{
    error::{Error, Result},
    state::{Shared, call},
};

/// Writes the declared counts, where they change, and then the status.
pub(super) async fn write(
    state: &Shared,
    key: &Key,
    job: &JobRef,
    draft: Draft,
    lowering: &mut Lowering,
) -> Result<JobRef> {
    let mut job = job.clone();
    for (role, by) in draft.lower {
        job = lower(state, key, &job, role, by, lowering).await?;
    }
    if draft.plan == plan_of(&job) {
        return Ok(job);
    }
    let mut status = job.status.clone().unwrap_or_default();
    status.plan = draft.plan;
    count(&mut status);
    let status =
        serde_json::to_value(&status).map_err(|error| Error::Invalid(error.to_string()))?;
    let written = call("write the status of the DIJob", async {
        di_cache::write_status(&state.client, &job, status).await
    });
    let written = Arc::new(written.await?);
    state.jobs.written(written.clone());
    Ok(written.into())
}

/// Declares fewer replicas: first, or the reconciler would make new ones for those that go.
async fn lower(
    state: &Shared,
    key: &Key,
    job: &JobRef,
    role: Role,
    by: i32,
    lowering: &mut Lowering,
) -> Result<JobRef> {
    let to = declared(job, role).saturating_sub(by);
    let version = job.metadata.resource_version.as_deref();
    let patch = guarded_patch(version, ["spec", role.label(), "replicas"], to.into());
    let patch = Patch::Json::<()>(patch);
    let sent = call("lower the declared replicas of the DIJob", async {
        let api = state.job_api(&key.0);
        api.patch(&key.1, &PatchParams::default(), &patch).await
    });
    match sent.await {
        Ok(job) => {
            lowering.unsure.remove(&role);
            *lowering.done.entry(role).or_default() += by;
            let job = Arc::new(job);
            state.jobs.written(job.clone());
            Ok(job.into())
        }
        Err(error) => {
            if !error.is_stale() {
                lowering.unsure.insert(role, (to, by));
            }
            Err(error)
        }
    }
}

fn declared(job: &DIJob, role: Role) -> i32 {
    job.spec.declared(role).map_or(0, |part| part.replicas)
}

/// By how much the tries of one change have lowered the declared counts.
#[derive(Debug, Default)]
pub(super) struct Lowering {
    pub(super) done: HashMap<Role, i32>,
    /// Writes whose answer was lost: the count they set, and by how much it is lower.
    unsure: HashMap<Role, (i32, i32)>,
}

impl Lowering {
    /// Finds out what became of the unsure: lowering twice would take replicas that nobody asked for.
    pub(super) fn settle(&mut self, job: &DIJob) {
        self.unsure.retain(|role, (to, by)| {
            let made = declared(job, *role) == *to;
            if made {
                *self.done.entry(*role).or_default() += *by;
            }
            !made
        });
    }
}

/// Keeps the totals in step with the plan.
pub(super) fn count(status: &mut DIJobStatus) {
    let wanted = |roles: &[Role]| {
        let entries = status.plan.iter();
        let number = entries
            .filter(|entry| entry.is_wanted() && roles.contains(&entry.role))
            .count();
        i32::try_from(number).unwrap_or(i32::MAX)
    };
    (status.collectors, status.learners) = (
        wanted(&[Role::Collector]),
        wanted(&[Role::Learner, Role::Aggregator]),
    );
}
