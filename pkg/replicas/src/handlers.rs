//! The requests, one file each.

pub(crate) mod add;
pub(crate) mod failed;
pub(crate) mod health;
pub(crate) mod list;
pub(crate) mod remove;

use axum::{
    Json,
    body::{Body, Bytes},
    response::{IntoResponse, Response},
};
use di_api::{ConditionType, DIJob, Phase, Role, is_true, names};
use di_cache::Key;
use di_plan::{Listing, PodView};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::ResourceExt;
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    authorize::{Action, Caller, Source, authorize},
    error::{Error, Result},
    state::Shared,
    wire::{Replicas, Success, Target},
};

fn success(message: &str, data: impl Serialize) -> Result<Response> {
    Ok(Json(Success::new(message, data)).into_response())
}

async fn read(state: &Shared, body: Body) -> Result<Bytes> {
    let limit = state.settings.max_body;
    let collected = Limited::new(body, limit).collect();
    match timeout(state.settings.body_timeout, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Error::TooLarge(limit)),
        Ok(Err(_)) => Err(Error::Invalid("the body broke off".to_owned())),
        Err(_) => Err(Error::Invalid("the body took too long to come".to_owned())),
    }
}

/// The job of the coordinator that a request names.
fn key(namespace: &str, coordinator: &str) -> Result<Key> {
    match names::job_of_coordinator(coordinator) {
        Some(job) => Ok((namespace.to_owned(), job.to_owned())),
        None => Err(no_coordinator(namespace, coordinator)),
    }
}

fn no_coordinator(namespace: &str, coordinator: &str) -> Error {
    Error::NotFound(format!(
        "there is no coordinator {coordinator} in namespace {namespace}"
    ))
}

/// The job that a request may change, and who asks.
async fn admit(state: &Shared, source: &Source, target: &Target) -> Result<(Key, Caller)> {
    state.wait_synced().await?;
    // Who may not know the namespace must not learn from a 404 what is in it.
    let job = names::job_of_coordinator(&target.coordinator).unwrap_or(&target.coordinator);
    let asked = (target.namespace.clone(), job.to_owned());
    let caller = authorize(state, source, Action::Change(&asked)).await?;
    Ok((key(&target.namespace, &target.coordinator)?, caller))
}

/// Why the job has no replicas now, if that is so.
fn halted(job: &DIJob) -> Option<&'static str> {
    if job.metadata.deletion_timestamp.is_some() {
        return Some("is being deleted");
    }
    let ended = job.status.as_ref().is_some_and(|status| {
        status.phase.is_some_and(Phase::is_terminal)
            || is_true(&status.conditions, ConditionType::Succeeded)
            || is_true(&status.conditions, ConditionType::Failed)
    });
    if ended {
        return Some("has ended");
    }
    job.spec.suspend.then_some("is suspended")
}

/// Replicas of a job that is halted cannot be changed.
fn check_live(job: &DIJob) -> Result<()> {
    match halted(job) {
        Some(why) => Err(Error::Conflict(format!("DIJob {} {why}", job.name_any()))),
        None => Ok(()),
    }
}

/// The URLs of replicas that the plan knows, by role.
fn urls<'a>(
    state: &Shared,
    key: &Key,
    job: &DIJob,
    replicas: impl IntoIterator<Item = (Role, &'a str)>,
) -> Replicas {
    let mut found = Listing::default();
    state.pods.read(key, |pods| {
        for (role, name) in replicas {
            let port = match pods.get(name) {
                Some(pod) if owns(job, pod) => pod.port,
                _ => di_plan::port(job, role),
            };
            let list = match role {
                Role::Collector => &mut found.collectors,
                _ => &mut found.learners,
            };
            list.push(names::url(name, &key.0, port));
        }
    });
    Replicas::new(key, found)
}

fn owns(job: &DIJob, pod: &PodView) -> bool {
    job.uid().is_some_and(|uid| pod.belongs_to(&uid))
}
