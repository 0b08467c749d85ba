mod judge;

use std::{collections::BTreeMap, time::Duration};

use di_api::{EntryState, Role, names};
use futures::{StreamExt, TryStreamExt, stream};
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, client::Body};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use crate::{
    Cluster, DryRun, Error, Job, Replica, ReplicaPod, Result, guarded_patch::refuse_ended,
    port_forward::find_port, replicas::pods, join_plan_with_pods,
};

use judge::judge;

/// So long after its start a container may not listen yet.
const STARTS_WITHIN: SignedDuration = SignedDuration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Replicas that are called at a time: each costs the API server a connection to a pod.
const AT_A_TIME: usize = 16;

/// A handle of a replica's life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifecycleRequest {
    /// Ask how it is.
    Status,
    /// Have it stop working, and stay.
    Pause,
    /// Have it work.
    Start,
}

/// What a worker tells of its life cycle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LifecycleStatus {
    /// How it is, in a word.
    pub status: String,
    /// Whether it works.
    #[serde(default)]
    pub running: bool,
    /// Whether it ends.
    #[serde(default)]
    pub exiting: bool,
    /// Steps that did something.
    #[serde(default)]
    pub polls: u64,
    /// Samples of all steps.
    #[serde(default)]
    pub samples: u64,
    /// Batches of all steps.
    #[serde(default)]
    pub batches: u64,
    /// The error that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What else it tells.
    #[serde(default)]
    pub stats: BTreeMap<String, f64>,
}

/// How a replica has ended, as its pod tells: it itself is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Ended {
    /// Its work is done.
    Completed,
    /// It has failed.
    Error,
}

impl Ended {
    /// None of one whose pod has not ended, or is still to come.
    fn of(replica: &Replica, pod: Option<&Pod>) -> Option<Self> {
        let phase = pod.and_then(phase);
        if replica.done || phase == Some("Succeeded") {
            return Some(Self::Completed);
        }
        (phase == Some("Failed")).then_some(Self::Error)
    }

    /// The word that a worker has for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Error => "error",
        }
    }
}

/// A replica, and what it tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaReply {
    /// Name of its pod.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Number within its role.
    pub index: Option<i32>,
    /// What it tells; nothing where it could not be told anything, or was not asked.
    #[serde(flatten)]
    pub life: Option<LifecycleStatus>,
    /// How it has ended, where that was asked.
    #[serde(flatten)]
    pub ended: Option<Ended>,
    /// Why it could not be told anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Calls a handle of every replica of a job that is wanted, by the API server's proxy to its pod, and waits for each answer so long. In a dry
/// run of the client none is called, in one of the server each is asked how it is. Those whose work is done are told of
/// where all are asked how they are, and left out else: they cannot be told anything.
///
/// # Errors
/// [`Error::JobEnded`] when the job has ended, [`Error::Replica`] when it is suspended or has no pods; [`Error::Server`] when the user may not call
/// its pods.
pub async fn call_replicas(
    cluster: &Cluster,
    job: &Job,
    handle: LifecycleRequest,
    dry_run: DryRun,
    limit: Duration,
) -> Result<Vec<ReplicaReply>> {
    refuse_ended(job, "")?;
    if job.is_suspended() {
        return Err(Error::Replica(format!(
            "job {:?} is suspended, which frees its pods: see resume",
            job.name()
        )));
    }
    let is_look = handle == LifecycleRequest::Status;
    let handle = match dry_run {
        DryRun::None => Some(handle),
        DryRun::Client => None,
        DryRun::Server => Some(LifecycleRequest::Status),
    };
    let pods = pods(cluster, job).await?;
    let mut replicas = join_plan_with_pods(job, &pods);
    replicas.retain(|replica| replica.state == EntryState::Wanted);
    if replicas.iter().all(|replica| replica.pod.is_none()) {
        let phase = job
            .status
            .phase
            .map(|phase| format!(" ({})", phase.as_str()));
        return Err(Error::Replica(format!(
            "job {:?} has no pods{}",
            job.name(),
            phase.unwrap_or_default()
        )));
    }
    let called = replicas.into_iter().filter_map(|replica| {
        let pod = pods.iter().find(|pod| pod.name_any() == replica.name);
        let ended = Ended::of(&replica, pod);
        (is_look || ended != Some(Ended::Completed)).then_some((replica, pod, ended))
    });
    // A coordinator may lead the others itself. What they are told before it would look to it like somebody else's word to one of them alone.
    let (leaders, others): (Vec<_>, Vec<_>) =
        called.partition(|(replica, ..)| replica.role == Role::Coordinator);
    let mut all = Vec::new();
    for some in [leaders, others] {
        let called = some.into_iter().map(|(replica, pod, ended)| async move {
            let told = if ended == Some(Ended::Completed) {
                CallResult::Nothing
            } else {
                let asked = tokio::time::timeout(limit, ask(cluster, pod, handle));
                let late = || CallResult::Silent(format!("did not answer within {limit:?}"));
                asked.await.unwrap_or_else(|_| Ok(late()))?
            };
            Ok(told.of(replica, ended.filter(|_| is_look)))
        });
        let called = stream::iter(called).buffered(AT_A_TIME);
        all.extend(called.try_collect::<Vec<_>>().await?);
    }
    Ok(all)
}

/// What came of calling one.
#[derive(Debug, PartialEq)]
enum CallResult {
    LifecycleStatus(LifecycleStatus),
    /// Nothing was to be sent.
    Nothing,
    /// Nothing listens at its port.
    Unreached(String),
    Silent(String),
}

impl CallResult {
    fn of(self, replica: Replica, ended: Option<Ended>) -> ReplicaReply {
        let (life, message) = match self {
            Self::LifecycleStatus(life) => (Some(life), None),
            Self::Nothing => (None, None),
            Self::Unreached(why) | Self::Silent(why) => (None, Some(why)),
        };
        ReplicaReply {
            name: replica.name,
            role: replica.role,
            index: replica.index,
            life,
            ended,
            message,
        }
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

async fn ask(cluster: &Cluster, pod: Option<&Pod>, handle: Option<LifecycleRequest>) -> Result<CallResult> {
    let silent = |why: String| Ok(CallResult::Silent(why));
    let Some(pod) = pod else {
        return silent("has no pod yet".to_owned());
    };
    if pod.metadata.deletion_timestamp.is_some() {
        return silent("is terminating".to_owned());
    }
    match phase(pod) {
        Some("Running") => {}
        Some("Failed") => return silent(failure(pod)),
        phase => return silent(format!("does not run yet ({})", phase.unwrap_or("Pending"))),
    }
    let Some(port) = find_port(pod, names::PORT_NAME) else {
        return silent(format!("names no port {}", names::PORT_NAME));
    };
    let Some(handle) = handle else {
        return Ok(CallResult::Nothing);
    };
    loop {
        let told = send(cluster, pod, port, handle).await?;
        if !matches!(told, CallResult::Unreached(_)) || !is_new(pod, Timestamp::now()) {
            return Ok(told);
        }
        sleep(LOOK_EVERY).await;
    }
}

/// How a pod has failed; a reason where it has no exit code, as one that was evicted.
fn failure(pod: &Pod) -> String {
    let pod = ReplicaPod::from(pod);
    let exit = pod.last_exit.filter(|exit| exit.exit_code != 0);
    let how = exit.map_or(pod.status, |exit| {
        let reason = exit.reason.filter(|reason| reason != "Error");
        let reason = reason.map(|reason| format!(", {reason}"));
        format!("exit code {}{}", exit.exit_code, reason.unwrap_or_default())
    });
    format!("has failed ({how})")
}

/// Whether a container of it started a moment ago.
fn is_new(pod: &Pod, now: Timestamp) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let mut starts = containers.into_iter().flatten().filter_map(|container| {
        let running = container.state.as_ref()?.running.as_ref()?;
        Some(running.started_at.as_ref()?.0)
    });
    starts.any(|start| now.duration_since(start) < STARTS_WITHIN)
}

async fn send(cluster: &Cluster, pod: &Pod, port: u16, handle: LifecycleRequest) -> Result<CallResult> {
    let namespace = pod.namespace().unwrap_or_default();
    let (method, handle) = match handle {
        LifecycleRequest::Status => (Method::GET, ""),
        LifecycleRequest::Pause => (Method::POST, "/pause"),
        LifecycleRequest::Start => (Method::POST, "/start"),
    };
    let path = format!(
        "/api/v1/namespaces/{namespace}/pods/{}:{port}/proxy/lifecycle{handle}",
        pod.name_any()
    );
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::empty());
    let request = request.map_err(|error| Error::InvalidName(error.to_string()))?;
    let failed = |error| cluster.convert_error(error);
    let response = cluster.client.send(request).await.map_err(failed)?;
    let status = response.status();
    let body = response.into_body().collect_bytes().await.map_err(failed)?;
    judge(status, &body, port)
}

#[cfg(test)]
mod tests;
