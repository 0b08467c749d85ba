//! Authorizes requests: a pod of the job by its source address, a bearer token by TokenReview and
//! SubjectAccessReview, or all requests if anonymous access is allowed.

pub(crate) mod access;
pub(crate) mod decision_cache;
pub(crate) mod identity;
pub(crate) mod source;
mod token_review;

use std::{net::IpAddr, sync::Arc};

use di_plan::PodView;
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use self::{
    access::Access,
    identity::{Identity, foreign_pod_error, owns_pod},
    source::Source,
};
use crate::{
    error::{Error, Result},
    state::{JobRef, SharedState},
};

/// Returns the identity of the sender, or an error if the request is not allowed.
pub(crate) async fn authorize(
    state: &SharedState,
    source: &Source,
    access: Access<'_>,
) -> Result<Identity> {
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
            Ok(job) => return Ok(Identity::Pod(pod, job)),
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
        return Ok(Identity::TokenOrAnonymous);
    }
    if state.settings.allow_anonymous {
        return Ok(Identity::TokenOrAnonymous);
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
