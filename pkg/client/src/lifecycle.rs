pub(crate) mod response;

use std::time::Duration;

use di_api::{EntryState, Role, names};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, client::Body};
use serde::Serialize;
use tokio::time::sleep;

use crate::{
    Cluster, DryRun, Error, Job, Replica, ReplicaPod, Result,
    jobs::guarded_patch::refuse_ended,
    join_plan_with_pods,
    replicas::{
        list::{owned_pods, sample_pods},
        port_forward::find_port,
    },
};

use response::{CallResult, LifecycleStatus, parse_response};

/// Time after the start of a container in which its port may not be open yet.
const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Maximum number of concurrent calls: each costs the API server a connection to a pod.
const MAX_CONCURRENT_CALLS: usize = 16;

/// A call of the life-cycle API of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleRequest {
    /// Read the status.
    Status,
    /// Pause the replica.
    Pause,
    /// Start or resume the replica.
    Start,
}

/// The end of a replica, taken from its pod. An ended worker cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum EndState {
    /// The replica has completed.
    Completed,
    /// The replica has failed.
    Error,
}

impl EndState {
    /// `None` if the pod has not ended or does not exist yet.
    fn of_replica(replica: &Replica, pod: Option<&Pod>) -> Option<Self> {
        let phase = pod.and_then(pod_phase);
        if replica.done || phase == Some("Succeeded") {
            return Some(Self::Completed);
        }
        (phase == Some("Failed")).then_some(Self::Error)
    }

    /// The state as a worker would report it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Error => "error",
        }
    }
}

/// The reply of a replica.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaReply {
    /// Name of the pod.
    pub name: String,
    /// Role of the replica.
    pub role: Role,
    /// Index within the role.
    pub index: Option<i32>,
    /// The reported status. `None` if the replica was not called or did not report.
    #[serde(flatten)]
    pub lifecycle: Option<LifecycleStatus>,
    /// The end of the replica, for [`LifecycleRequest::Status`] only.
    #[serde(flatten)]
    pub ended: Option<EndState>,
    /// Why the replica did not report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Calls the life-cycle API of every active replica of a job through the pod proxy of the API
/// server.
///
/// `limit` is the timeout of each call. A client dry run calls no replica, a server dry run reads
/// the
/// status. Completed replicas are listed for [`LifecycleRequest::Status`] only.
///
/// # Errors
/// [`Error::JobEnded`] if the job has ended, [`Error::Refused`] if it is suspended or has no pods,
/// [`Error::Server`] if the user may not use the pod proxy.
pub async fn call_replicas(
    cluster: &Cluster,
    job: &Job,
    request: LifecycleRequest,
    dry_run: DryRun,
    limit: Duration,
) -> Result<Vec<ReplicaReply>> {
    refuse_inactive(job)?;
    let is_status = request == LifecycleRequest::Status;
    let request = match dry_run {
        DryRun::None => Some(request),
        DryRun::Client => None,
        DryRun::Server => Some(LifecycleRequest::Status),
    };
    let pods = owned_pods(cluster, job).await?;
    let replicas = wanted_replicas(job, &pods)?;
    call_all(cluster, &pods, replicas, is_status, request, limit).await
}

/// The status of some replicas of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledStatus {
    /// The coordinator, the learners, and the first collectors.
    pub replies: Vec<ReplicaReply>,
    /// Number of all replicas with the coordinator.
    pub total: usize,
}

/// Reads the status of the coordinator, the learners and the first collectors, of about `max`
/// replicas together. This does not become slower with the number of collectors.
///
/// `limit` is the timeout of each call.
///
/// # Errors
/// As [`call_replicas`].
pub async fn sample_status(
    cluster: &Cluster,
    job: &Job,
    max: u32,
    limit: Duration,
) -> Result<SampledStatus> {
    refuse_inactive(job)?;
    let pods = sample_pods(cluster, job, max).await?;
    let mut replicas = wanted_replicas(job, &pods)?;
    let total = replicas.len();
    replicas.retain(|replica| replica.pod.is_some());
    let request = Some(LifecycleRequest::Status);
    let replies = call_all(cluster, &pods, replicas, true, request, limit).await?;
    Ok(SampledStatus { replies, total })
}

fn refuse_inactive(job: &Job) -> Result<()> {
    refuse_ended(job, "")?;
    if job.is_suspended() {
        return Err(Error::Refused(format!(
            "job {:?} is suspended and has no pods; to start it: kubectl di resume {0}",
            job.name()
        )));
    }
    Ok(())
}

fn wanted_replicas(job: &Job, pods: &[Pod]) -> Result<Vec<Replica>> {
    let mut replicas = join_plan_with_pods(job, pods);
    replicas.retain(|replica| replica.state == EntryState::Wanted);
    if replicas.iter().all(|replica| replica.pod.is_none()) {
        let phase = job
            .status
            .phase
            .map(|phase| format!(" ({})", phase.as_str()));
        return Err(Error::Refused(format!(
            "job {:?} has no pods{}",
            job.name(),
            phase.unwrap_or_default()
        )));
    }
    Ok(replicas)
}

/// Calls replicas. `is_status` includes completed ones, without a call.
async fn call_all(
    cluster: &Cluster,
    pods: &[Pod],
    replicas: Vec<Replica>,
    is_status: bool,
    request: Option<LifecycleRequest>,
    limit: Duration,
) -> Result<Vec<ReplicaReply>> {
    let called = replicas.into_iter().filter_map(|replica| {
        let pod = pods.iter().find(|pod| pod.name_any() == replica.name);
        let ended = EndState::of_replica(&replica, pod);
        (is_status || ended != Some(EndState::Completed)).then_some((replica, pod, ended))
    });
    // Call the coordinator first: it may pause or start the other replicas itself, and would take
    // an earlier call as a manual change of one replica. See docs/decisions/0024.
    let (coordinator, others): (Vec<_>, Vec<_>) =
        called.partition(|(replica, ..)| replica.role == Role::Coordinator);
    let mut all = Vec::new();
    for replicas in [coordinator, others] {
        let called = replicas
            .into_iter()
            .map(|(replica, pod, ended)| async move {
                let result = if ended == Some(EndState::Completed) {
                    CallResult::NotCalled
                } else {
                    let call = tokio::time::timeout(limit, call_replica(cluster, pod, request));
                    let timeout_message =
                        || CallResult::NoReport(format!("did not answer within {limit:?}"));
                    call.await.unwrap_or_else(|_| Ok(timeout_message()))?
                };
                Ok(ReplicaReply::new(
                    replica,
                    ended.filter(|_| is_status),
                    result,
                ))
            });
        let called = stream::iter(called.collect::<Vec<_>>()).buffered(MAX_CONCURRENT_CALLS);
        all.extend(called.try_collect::<Vec<_>>().await?);
    }
    Ok(all)
}

impl ReplicaReply {
    fn new(replica: Replica, ended: Option<EndState>, result: CallResult) -> Self {
        let (lifecycle, message) = match result {
            CallResult::Status(lifecycle) => (Some(lifecycle), None),
            CallResult::NotCalled => (None, None),
            CallResult::Unreachable(reason) | CallResult::NoReport(reason) => (None, Some(reason)),
        };
        Self {
            name: replica.name,
            role: replica.role,
            index: replica.index,
            lifecycle,
            ended,
            message,
        }
    }
}

fn pod_phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

async fn call_replica(
    cluster: &Cluster,
    pod: Option<&Pod>,
    request: Option<LifecycleRequest>,
) -> Result<CallResult> {
    let no_report = |reason: String| Ok(CallResult::NoReport(reason));
    let Some(pod) = pod else {
        return no_report("has no pod yet".to_owned());
    };
    if pod.metadata.deletion_timestamp.is_some() {
        return no_report("is terminating".to_owned());
    }
    match pod_phase(pod) {
        Some("Running") => {}
        Some("Failed") => return no_report(failure_message(pod)),
        phase => return no_report(format!("does not run yet ({})", phase.unwrap_or("Pending"))),
    }
    let Some(port) = find_port(pod, names::PORT_NAME) else {
        return no_report(format!("has no container port named {}", names::PORT_NAME));
    };
    let Some(request) = request else {
        return Ok(CallResult::NotCalled);
    };
    loop {
        let result = send_request(cluster, pod, port, request).await?;
        if !matches!(result, CallResult::Unreachable(_)) || !has_just_started(pod, Timestamp::now())
        {
            return Ok(result);
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Describes the failure of a pod: exit code, or else a reason such as `Evicted`.
fn failure_message(pod: &Pod) -> String {
    let pod = ReplicaPod::from(pod);
    let exit = pod.last_exit.filter(|exit| exit.exit_code != 0);
    let cause = exit.map_or(pod.status, |exit| {
        let reason = exit.reason.filter(|reason| reason != "Error");
        let reason = reason.map(|reason| format!(", {reason}"));
        format!("exit code {}{}", exit.exit_code, reason.unwrap_or_default())
    });
    format!("has failed ({cause})")
}

/// Whether a container of the pod started within [`STARTUP_GRACE`].
fn has_just_started(pod: &Pod, now: Timestamp) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let mut starts = containers.into_iter().flatten().filter_map(|container| {
        let running = container.state.as_ref()?.running.as_ref()?;
        Some(running.started_at.as_ref()?.0)
    });
    starts.any(|start| now.duration_since(start) < STARTUP_GRACE)
}

async fn send_request(
    cluster: &Cluster,
    pod: &Pod,
    port: u16,
    request: LifecycleRequest,
) -> Result<CallResult> {
    let namespace = pod.namespace().unwrap_or_default();
    let (method, action) = match request {
        LifecycleRequest::Status => (Method::GET, ""),
        LifecycleRequest::Pause => (Method::POST, "/pause"),
        LifecycleRequest::Start => (Method::POST, "/start"),
    };
    let path = format!(
        "/api/v1/namespaces/{namespace}/pods/{}:{port}/proxy/lifecycle{action}",
        pod.name_any()
    );
    let http_request = Request::builder().method(method).uri(path);
    let http_request = http_request.body(Body::empty());
    let http_request = http_request.map_err(|error| Error::InvalidName(error.to_string()))?;
    let failed = |error| cluster.convert_error(error);
    let response = cluster.client.send(http_request).await.map_err(failed)?;
    let status = response.status();
    let body = response.into_body().collect_bytes().await.map_err(failed)?;
    parse_response(status, &body, port)
}

#[cfg(test)]
mod tests;
