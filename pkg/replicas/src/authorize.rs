//! Who may call: a pod of the job by its source address, a bearer token by review, or everybody where that is allowed.

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

/// Where a request comes from, and the token that it brings. Has no `Debug`: tokens are not for logs.
#[derive(Hash)]
pub(crate) struct Source {
    address: Option<IpAddr>,
    token: Option<String>,
}

/// What a request is about to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action<'a> {
    /// Read a job, the jobs of a namespace, or all.
    Read {
        namespace: Option<&'a str>,
        job: Option<&'a str>,
    },
    /// Change a job.
    Change(&'a Key),
}

/// Who was let in.
#[derive(Clone, Debug)]
pub(crate) enum Requester {
    /// A pod of a job, and that job.
    Pod(Arc<PodView>, JobRef),
    /// The owner of a token, or anybody.
    Other,
}

impl Requester {
    /// Whether this is the job whose pod calls, and not another that was made under its name since.
    pub(crate) fn check(&self, job: &JobView) -> Result<()> {
        match self {
            Self::Pod(pod, _) if !owns_pod(job, pod) => Err(foreign_pod_error(pod)),
            Self::Pod(..) | Self::Other => Ok(()),
        }
    }
}

#[cfg(test)]
impl Source {
    /// Without a token.
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

impl Action<'_> {
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

    /// Pods act on their own job only, and read their own namespace; of all namespaces they see their own.
    fn is_allowed_for(&self, pod: &PodView) -> bool {
        match self {
            Self::Read { namespace, .. } => namespace.is_none_or(|of| of == pod.namespace),
            Self::Change(job) => job.0 == pod.namespace && job.1 == pod.job,
        }
    }
}

/// Lets a request in, or says why not.
pub(crate) async fn authorize(
    state: &SharedState,
    source: &Source,
    action: Action<'_>,
) -> Result<Requester> {
    let mut pod = source.address.and_then(|ip| pod_of(state, ip, action));
    let knows_otherwise = source.token.is_some() || state.settings.allow_anonymous;
    if pod.is_none() && !knows_otherwise {
        pod = Box::pin(wait_for_pod(state, source.address, action)).await;
    }
    let refusal = match pod {
        Some(pod) if !action.is_allowed_for(&pod) => Error::Forbidden(format!(
            "pod {} may change its own job only, and read its own namespace; for more, send a bearer token",
            pod.name
        )),
        Some(pod) => match check_pod_owner(state, &pod).await {
            Ok(job) => return Ok(Requester::Pod(pod, job)),
            Err(error) => error,
        },
        None if has_pod_without_address(state, action) => Error::Unavailable(
            "the source address is that of no pod that is known, and one of the job has got a node whose kubelet has not told its address yet"
                .to_owned(),
        ),
        None => unknown(source),
    };
    if let Some(token) = &source.token {
        Box::pin(token_review::check_token(state, token, action)).await?;
        return Ok(Requester::Other);
    }
    if state.settings.allow_anonymous {
        return Ok(Requester::Other);
    }
    Err(refusal)
}

/// The pod that has this address. What one has that is about to go may be another's by now, of which nobody knows yet.
fn pod_of(state: &SharedState, address: IpAddr, action: Action<'_>) -> Option<Arc<PodView>> {
    let pod = state.pods.find_by_address(address);
    pod.filter(|pod| !pod.deleting || action.is_allowed_for(pod))
}

/// The same; one that has just got it may be on its way to the cache.
async fn wait_for_pod(
    state: &SharedState,
    address: Option<IpAddr>,
    action: Action<'_>,
) -> Option<Arc<PodView>> {
    let address = address?;
    let deadline = Instant::now() + state.settings.kubelet_wait;
    let mut changes = state.pods.subscribe_changes();
    loop {
        changes.mark_unchanged();
        if let Some(pod) = pod_of(state, address, action) {
            return Some(pod);
        }
        timeout_at(deadline, changes.changed()).await.ok()?.ok()?;
    }
}

/// Whether a pod of the job in question may be who calls: a kubelet that has much to tell takes seconds to tell an address.
fn has_pod_without_address(state: &SharedState, action: Action<'_>) -> bool {
    let (Some(namespace), Some(job)) = (action.namespace(), action.job()) else {
        return false;
    };
    let (key, now) = ((namespace.to_owned(), job.to_owned()), Timestamp::now());
    state.pods.read_objects(&key, |pods| {
        pods.iter().any(|pod| pod.is_awaiting_address(now))
    })
}

/// The labels of a pod only claim a job; its owner is what counts.
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
    // The job may have been made anew, and the pod's watch be ahead of the job's.
    let job = Box::pin(state.look_up_job(&key))
        .await
        .map_err(to_foreign_pod)?;
    if owns_pod(&job, pod) {
        return Ok(job);
    }
    Err(foreign_pod_error(pod))
}

/// Whether a pod is one of this job.
pub(crate) fn owns_pod(job: &JobView, pod: &PodView) -> bool {
    let uid = job.metadata.uid.as_deref();
    uid.is_some_and(|uid| pod.belongs_to(uid))
}

fn foreign_pod_error(pod: &PodView) -> Error {
    Error::Forbidden(format!(
        "pod {} does not belong to the present DIJob {}",
        pod.name, pod.job
    ))
}

fn unknown(source: &Source) -> Error {
    let address = source
        .address
        .map_or_else(|| "unknown".to_owned(), |address| address.to_string());
    Error::Unauthenticated(format!(
        "nobody known calls: source address {address} is that of no pod of a DIJob. Call from a pod of the job (not in the network of its \
         node, and without address translation in between), or send a bearer token (kubectl create token --audience {}), or run the server \
         with --allow-anonymous",
        token_review::AUDIENCE
    ))
}
