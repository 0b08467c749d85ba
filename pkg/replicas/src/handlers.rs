//! The request handlers, one file each, and their shared helpers.

pub(crate) mod add;
pub(crate) mod health;
pub(crate) mod list;
pub(crate) mod remove;
pub(crate) mod report_failed;

use axum::{
    Json,
    body::{Body, Bytes},
    http::Uri,
    response::{IntoResponse, Response},
};
use di_api::{PlanEntry, QueueState, Role, names};
use di_cache::{JobView, Key};
use di_plan::{Job, Listing, find_entry, leader_of, port_of_entry};
use di_serve::BodyError;
use http_body_util::{BodyExt, Collected};
use kube::ResourceExt;
use serde::Serialize;

use crate::{
    authorize::{
        access::Access,
        authorize,
        identity::{Identity, owns_pod},
        source::Source,
    },
    error::{Error, Result},
    state::{JobRef, SharedState},
    versions::is_legacy_path,
    wire::{Replicas, Requester, Success},
};

#[allow(clippy::unnecessary_wraps)] // handlers return a Result
fn success_response(message: &str, data: impl Serialize) -> Result<Response> {
    Ok(Json(Success::new(message, data)).into_response())
}

/// Returns the message of a response to add or remove.
fn result_message(is_empty: bool, done: &'static str) -> &'static str {
    if is_empty {
        "no replicas were requested"
    } else {
        done
    }
}

/// Rejects unknown fields, except those of clients of the older version, which may send any.
fn reject_unknown_fields(uri: &Uri, unknown: Option<&String>) -> Result<()> {
    match unknown {
        Some(unknown) if !is_legacy_path(uri.path()) => Err(Error::Invalid(unknown.clone())),
        _ => Ok(()),
    }
}

/// Adds the unknown fields of a request to the message of its response.
fn message_with_ignored(message: &str, unknown: Option<&String>) -> String {
    match unknown {
        Some(unknown) => format!("{message}; ignored: {unknown}"),
        None => message.to_owned(),
    }
}

async fn read_body(state: &SharedState, body: Body) -> Result<Bytes> {
    let (most, limit) = (state.settings.max_body, state.settings.body_timeout);
    let body = di_serve::read_body(body, most, limit, BodyExt::collect).await;
    body.map(Collected::to_bytes).map_err(|error| match error {
        BodyError::TooLarge(most) => Error::BodyTooLarge(most),
        error => Error::Invalid(error.to_string()),
    })
}

/// Finds the job that has this aggregator in its plan. Reads the job live if the cache has no such
/// plan entry.
async fn find_aggregator(state: &SharedState, key: &Key, aggregator: &str) -> Result<JobRef> {
    let unknown = || aggregator_not_found(&key.0, aggregator);
    let has_aggregator = |job: &JobView| {
        find_entry(job.plan_entries(), aggregator)
            .is_some_and(|entry| entry.role == Role::Aggregator)
    };
    let to_not_found = |error| match error {
        Error::NotFound(_) => unknown(),
        other => other,
    };
    let job = state.find_job(key).await.map_err(to_not_found)?;
    if has_aggregator(&job) {
        return Ok(job);
    }
    // The reconciler may have planned the aggregator a moment ago.
    let job = state.look_up_job(key).await.map_err(to_not_found)?;
    if has_aggregator(&job) {
        return Ok(job);
    }
    Err(unknown())
}

fn aggregator_not_found(namespace: &str, aggregator: &str) -> Error {
    Error::NotFound(format!(
        "there is no aggregator {aggregator} in namespace {namespace}"
    ))
}

fn coordinator_not_found(namespace: &str, coordinator: &str) -> Error {
    Error::NotFound(format!(
        "there is no coordinator {coordinator} in namespace {namespace}"
    ))
}

/// Authorizes a request that changes the job of this requester.
async fn authorize_change(
    state: &SharedState,
    source: &Source,
    requester: &Requester,
) -> Result<Identity> {
    state.wait_for_cache_sync().await?;
    // Authorize before the lookup: a 404 must not reveal what exists in other namespaces.
    let identity = authorize(state, source, Access::Change(requester.job_key())).await?;
    match requester {
        Requester::Coordinator(_) => {}
        Requester::Aggregator(key, name) => {
            find_aggregator(state, key, name).await?;
        }
        Requester::Unknown((namespace, name)) => {
            return Err(coordinator_not_found(namespace, name));
        }
    }
    Ok(identity)
}

/// Fails for a job that has ended, is suspended, waits in its queue or is being deleted.
fn check_job_active(job: &JobView) -> Result<()> {
    match job.halted {
        Some(reason) => Err(Error::Conflict(format!(
            "DIJob {} {reason}",
            job.name_any()
        ))),
        None => Ok(()),
    }
}

/// Whether a replica, or the unit or learner group that a pod belongs to, waits for quota. It has no
/// pod, or one that Kueue has preempted.
fn waits_for_quota(plan: &[PlanEntry], name: &str) -> bool {
    let Some(entry) = find_entry(plan, name) else {
        return false;
    };
    let leader = leader_of(entry).and_then(|leader| find_entry(plan, leader));
    leader.unwrap_or(entry).queue == Some(QueueState::Waiting)
}

/// Returns the URLs of replicas by role.
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
                _ => find_entry(plan, name)
                    .map_or_else(|| job.role_port(role), |entry| port_of_entry(job, entry)),
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
