//! Authorizes requests: a pod of the job by its source address, a bearer token by TokenReview and
//! SubjectAccessReview, or all requests if anonymous access is allowed.

mod decision_cache;
mod token_review;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::{header, request::Parts},
};
use di_cache::{JobView, Key};
use di_plan::PodView;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

pub(crate) use decision_cache::DecisionCache;

use crate::{
    error::{Error, Result},
    state::{JobRef, SharedState},
};

/// Source address and token of a request. It has no `Debug`, so that tokens are never logged.
#[derive(Hash)]
pub(crate) struct Source {
    address: Option<IpAddr>,
    token: Option<String>,
}

/// The access that a request needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access<'a> {
    /// Read a job, the jobs of a namespace, or all jobs.
    Read {
        namespace: Option<&'a str>,
        job: Option<&'a str>,
    },
    /// Change a job.
    Change(&'a Key),
}

/// The authorized sender of a request.
#[derive(Clone, Debug)]
pub(crate) enum Requester {
    /// A pod of a job, and that job.
    Pod(Arc<PodView>, JobRef),
    /// The owner of a token, or an anonymous sender.
    TokenOrAnonymous,
}

impl Requester {
    /// Fails if the requesting pod belongs to another job, such as an older one of the same name.
    pub(crate) fn check_same_job(&self, job: &JobView) -> Result<()> {
        match self {
            Self::Pod(pod, _) if !owns_pod(job, pod) => Err(foreign_pod_error(pod)),
            Self::Pod(..) | Self::TokenOrAnonymous => Ok(()),
        }
    }
}

#[cfg(test)]
impl Source {
    /// A source without a token.
    pub(crate) fn from_address(address: &str) -> Self {
        Self {
            address: address.parse().ok(),
            token: None,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Source {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let address = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let header = parts.headers.get(header::AUTHORIZATION);
        Ok(Self {
            address: address.map(|ConnectInfo(address)| address.ip().to_canonical()),
            token: header
                .and_then(|value| parse_bearer_token(value.to_str().ok()?))
                .map(str::to_owned),
        })
    }
}

fn parse_bearer_token(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

impl Access<'_> {
    fn verb(self) -> &'static str {
        match self {
            Self::Read { .. } => "get",
            Self::Change(_) => "update",
        }
    }

    fn namespace(&self) -> Option<&str> {
        match self {
            Self::Read { namespace, .. } => *namespace,
            Self::Change(job) => Some(&job.0),
        }
    }

    fn job(&self) -> Option<&str> {
        match self {
            Self::Read { job, .. } => *job,
            Self::Change(job) => Some(&job.1),
        }
    }

    /// Pods change only their own job and read only their own namespace. A read of all namespaces is
    /// allowed and returns their own.
    fn is_allowed_for(&self, pod: &PodView) -> bool {
        match self {
            Self::Read { namespace, .. } => {
                namespace.is_none_or(|namespace| namespace == pod.namespace)
            }
            Self::Change(job) => job.0 == pod.namespace && job.1 == pod.job,
        }
    }
}

/// Returns the requester, or an error if the request is not allowed.
pub(crate) async fn authorize(
    state: &SharedState,
    source: &Source,
    access: Access<'_>,
) -> Result<Requester> {
    let mut pod = source
        .address
        .and_then(|ip| find_pod_by_ip(state, ip, access));
    let has_other_access = source.token.is_some() || state.settings.allow_anonymous;
    if pod.is_none() && !has_other_access {
        pod = Box::pin(wait_for_pod(state, source.address, access)).await;
    }
    let rejection = match pod {
        Some(pod) if !access.is_allowed_for(&pod) => Error::Forbidden(format!(
            "pod {} may only change its own job and read its own namespace; for other access, send a bearer token",
            pod.name
        )),
        Some(pod) => match check_pod_owner(state, &pod).await {
            Ok(job) => return Ok(Requester::Pod(pod, job)),
            Err(error) => error,
        },
        None if has_pod_without_address(state, access) => Error::Unavailable(
            "the source address belongs to no known pod, and a pod of the job is scheduled but has no IP yet"
                .to_owned(),
        ),
        None => unknown_source_error(source),
    };
    if let Some(token) = &source.token {
        Box::pin(token_review::check_token(state, token, access)).await?;
        return Ok(Requester::TokenOrAnonymous);
    }
    if state.settings.allow_anonymous {
        return Ok(Requester::TokenOrAnonymous);
    }
    Err(rejection)
}

/// Returns the pod that owns this pod IP. The IP of a terminating pod may already belong to another
/// pod, so it counts only for its own job.
fn find_pod_by_ip(
    state: &SharedState,
    address: IpAddr,
    access: Access<'_>,
) -> Option<Arc<PodView>> {
    let pod = state.pods.find_by_pod_ip(address);
    pod.filter(|pod| !pod.deleting || access.is_allowed_for(pod))
}

/// Waits for the pod with this pod IP: the cache may not have the IP yet.
async fn wait_for_pod(
    state: &SharedState,
    address: Option<IpAddr>,
    access: Access<'_>,
) -> Option<Arc<PodView>> {
    let address = address?;
    let deadline = Instant::now() + state.settings.kubelet_wait;
    let mut changes = state.pods.subscribe_changes();
    loop {
        changes.mark_unchanged();
        if let Some(pod) = find_pod_by_ip(state, address, access) {
            return Some(pod);
        }
        timeout_at(deadline, changes.changed()).await.ok()?.ok()?;
    }
}

/// Whether a pod of the job runs without a reported IP: a busy kubelet reports it seconds later.
fn has_pod_without_address(state: &SharedState, access: Access<'_>) -> bool {
    let (Some(namespace), Some(job)) = (access.namespace(), access.job()) else {
        return false;
    };
    let (key, now) = ((namespace.to_owned(), job.to_owned()), Timestamp::now());
    state.pods.read_objects(&key, |pods| {
        pods.iter().any(|pod| pod.is_awaiting_address(now))
    })
}

/// Returns the job that owns the pod by owner reference. Labels can be set by any author of a pod.
async fn check_pod_owner(state: &SharedState, pod: &PodView) -> Result<JobRef> {
    let key = (pod.namespace.clone(), pod.job.clone());
    let to_foreign_pod = |error| match error {
        Error::NotFound(_) => foreign_pod_error(pod),
        other => other,
    };
    let job = state.find_job(&key).await.map_err(to_foreign_pod)?;
    if owns_pod(&job, pod) {
        return Ok(job);
    }
    // The job may be recreated, and the watch of pods may be ahead of the watch of jobs.
    let job = Box::pin(state.look_up_job(&key))
        .await
        .map_err(to_foreign_pod)?;
    if owns_pod(&job, pod) {
        return Ok(job);
    }
    Err(foreign_pod_error(pod))
}

/// Whether the pod has this job as its owner.
pub(crate) fn owns_pod(job: &JobView, pod: &PodView) -> bool {
    let uid = job.metadata.uid.as_deref();
    uid.is_some_and(|uid| pod.belongs_to(uid))
}

fn foreign_pod_error(pod: &PodView) -> Error {
    Error::Forbidden(format!(
        "pod {} does not belong to the current DIJob {}: it has another owner",
        pod.name, pod.job
    ))
}

fn unknown_source_error(source: &Source) -> Error {
    let address = source
        .address
        .map_or_else(|| "unknown".to_owned(), |address| address.to_string());
    Error::Unauthenticated(format!(
        "unknown requester: source address {address} belongs to no pod of a DIJob. Send the request from a pod of the job (without hostNetwork and \
         without address translation), or send a bearer token (kubectl create token --audience {}), or run the server \
         with --allow-anonymous",
        token_review::AUDIENCE
    ))
}
