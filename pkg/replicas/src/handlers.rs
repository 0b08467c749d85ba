//! The requests, one file each.

pub(crate) mod add;
pub(crate) mod health;
pub(crate) mod list;
pub(crate) mod remove;
pub(crate) mod report_failed;

use axum::{
    Json,
    body::{Body, Bytes, HttpBody},
    response::{IntoResponse, Response},
};
use di_api::{Role, names};
use di_cache::{JobView, Key};
use di_plan::{Job, Listing, find_entry, port_of_entry};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::ResourceExt;
use serde::Serialize;
use tokio::time::timeout;

use crate::{
    authorize::{Action, Requester, Source, authorize, owns_pod},
    error::{Error, Result},
    state::{JobRef, SharedState},
    wire::{Replicas, Success, Target},
};

#[allow(clippy::unnecessary_wraps)] // what handlers return
fn success(message: &str, data: impl Serialize) -> Result<Response> {
    Ok(Json(Success::new(message, data)).into_response())
}

/// What is told of a request to add or remove: what was done, unless it asked for nothing.
fn told(is_empty: bool, done: &'static str) -> &'static str {
    if is_empty {
        "nothing was asked for"
    } else {
        done
    }
}

async fn read(state: &SharedState, body: Body) -> Result<Bytes> {
    let limit = state.settings.max_body;
    // Announced as such, it need not be waited for.
    if usize::try_from(body.size_hint().lower()).map_or(true, |least| least > limit) {
        return Err(Error::BodyTooLarge(limit));
    }
    let collected = Limited::new(body, limit).collect();
    match timeout(state.settings.body_timeout, collected).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Error::BodyTooLarge(limit)),
        Ok(Err(_)) => Err(Error::Invalid("the body broke off".to_owned())),
        Err(_) => Err(Error::Invalid("the body took too long to come".to_owned())),
    }
}

/// The job of the coordinator that a request names.
fn key(namespace: &str, coordinator: &str) -> Result<Key> {
    match names::job_of_coordinator(coordinator) {
        Some(job) => Ok((namespace.to_owned(), job.to_owned())),
        None => Err(coordinator_not_found(namespace, coordinator)),
    }
}

/// The job of an aggregator, and the aggregator's entry, for which the API server is asked where the cache has none.
async fn find_aggregator(
    state: &SharedState,
    namespace: &str,
    aggregator: &str,
) -> Result<(Key, JobRef)> {
    let unknown = || {
        Error::NotFound(format!(
            "there is no aggregator {aggregator} in namespace {namespace}"
        ))
    };
    let job = names::job_of_aggregator(aggregator).ok_or_else(unknown)?;
    let key = (namespace.to_owned(), job.to_owned());
    let knows = |job: &JobView| {
        find_entry(job.plan_entries(), aggregator).is_some_and(|entry| entry.role == Role::Aggregator)
    };
    let to_not_found = |error| match error {
        Error::NotFound(_) => unknown(),
        other => other,
    };
    let job = state.find_job(&key).await.map_err(to_not_found)?;
    if knows(&job) {
        return Ok((key, job));
    }
    // It may have been planned by the reconciler just now.
    let job = state.look_up_job(&key).await.map_err(to_not_found)?;
    if knows(&job) {
        return Ok((key, job));
    }
    Err(unknown())
}

fn coordinator_not_found(namespace: &str, coordinator: &str) -> Error {
    Error::NotFound(format!(
        "there is no coordinator {coordinator} in namespace {namespace}"
    ))
}

/// The job that a request may change, and who asks.
async fn authorize_change(
    state: &SharedState,
    source: &Source,
    target: &Target,
) -> Result<(Key, Requester)> {
    state.wait_for_cache_sync().await?;
    // Who may not know the namespace must not learn from a 404 what is in it.
    let job = names::job_of_coordinator(&target.coordinator)
        .or_else(|| names::job_of_aggregator(&target.coordinator))
        .unwrap_or(&target.coordinator);
    let asked = (target.namespace.clone(), job.to_owned());
    let requester = authorize(state, source, Action::Change(&asked)).await?;
    if names::job_of_coordinator(&target.coordinator).is_some() {
        return Ok((asked, requester));
    }
    if names::job_of_aggregator(&target.coordinator).is_some() {
        let (key, _) = find_aggregator(state, &target.namespace, &target.coordinator).await?;
        return Ok((key, requester));
    }
    Err(coordinator_not_found(
        &target.namespace,
        &target.coordinator,
    ))
}

/// Replicas of a job that is halted cannot be changed.
fn check_job_active(job: &JobView) -> Result<()> {
    match job.halted {
        Some(why) => Err(Error::Conflict(format!("DIJob {} {why}", job.name_any()))),
        None => Ok(()),
    }
}

/// The URLs of replicas that the plan knows, by role.
fn replica_urls<'a>(
    state: &SharedState,
    key: &Key,
    job: &JobView,
    replicas: impl IntoIterator<Item = (Role, &'a str)>,
) -> Replicas {
    let plan = job.plan_entries();
    let mut found = Listing::default();
    state.pods.read_objects(key, |pods| {
        for (role, name) in replicas {
            let port = match pods.get(name) {
                Some(pod) if owns_pod(job, pod) => pod.port,
                _ => find_entry(plan, name).map_or_else(|| job.role_port(role), |entry| port_of_entry(job, entry)),
            };
            let list = match role {
                Role::Collector => &mut found.collectors,
                _ => &mut found.learners,
            };
            list.push(names::replica_url(name, &key.0, port));
        }
    });
    Replicas::new(key, found)
}
