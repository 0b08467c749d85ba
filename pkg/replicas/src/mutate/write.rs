use std::{collections::HashMap, sync::Arc};

use di_api::{DIJob, DIJobStatus, Role, guarded_patches};
use di_cache::{JobRef, Key};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

use super::{Bucket, Draft, answered, lowering, plan_of};
use crate::{
    error::{Error, Result},
    state::{Shared, call},
};

/// Writes the declared counts, where they change, and then the status.
pub(super) async fn write(state: &Shared, key: &Key, job: &JobRef, draft: Draft) -> Result<JobRef> {
    let mut job = job.clone();
    if !draft.lower.is_empty() {
        let request = draft.answers.as_ref().map_or("", |request| &request.key);
        job = lower(state, key, &job, request, &draft.lower).await?;
    }
    let mut status = job.status.clone().unwrap_or_default();
    status.plan = draft.plan;
    if let Some(request) = draft.answers {
        answered::note(&mut status.requests, request, Timestamp::now());
    } else if status.plan == plan_of(&job) {
        return Ok(job);
    }
    count(&mut status);
    let status = serde_json::to_value(&status)
        .map_err(|_| Error::Internal("the status cannot be written"))?;
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
    request: &str,
    by: &HashMap<Bucket, i32>,
) -> Result<JobRef> {
    let version = job.metadata.resource_version.as_deref();
    let annotations = serde_json::to_value(lowering::note(job, request, by));
    let annotations = annotations.map_err(|_| Error::Internal("annotations cannot be written"))?;
    let mut fields = vec![(
        ["metadata", "annotations"].map(str::to_owned).to_vec(),
        annotations,
    )];
    fields.extend(
        by.iter()
            .filter_map(|(bucket, by)| count_of(job, bucket, *by)),
    );
    let patch = Patch::Json::<()>(guarded_patches(version, fields));
    let sent = call("lower the declared replicas of the DIJob", async {
        let api = state.job_api(&key.0);
        api.patch(&key.1, &PatchParams::default(), &patch).await
    });
    let job = Arc::new(sent.await?);
    state.jobs.written(job.clone());
    Ok(job.into())
}

/// Where a declared count stands in the job, and what it is when it is lowered.
fn count_of(job: &DIJob, (role, group): &Bucket, by: i32) -> Option<(Vec<String>, Value)> {
    let declared = job.spec.declared(*role)?;
    let mut path = vec!["spec".to_owned(), role.label().to_owned()];
    let count = match group {
        None => declared.replicas,
        Some(name) => {
            let at = declared
                .groups
                .iter()
                .position(|group| group.name == *name)?;
            path.extend(["groups".to_owned(), at.to_string()]);
            declared.groups[at].replicas
        }
    };
    path.push("replicas".to_owned());
    Some((path, count.saturating_sub(by).into()))
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
