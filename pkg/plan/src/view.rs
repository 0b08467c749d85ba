use std::net::IpAddr;

use di_api::{DIJob, Ddp, Role, names, quantity};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, Pod, PodSpec, PodStatus, Service};
use kube::{Resource, ResourceExt};

use crate::ports::named_port;

/// What the rules need to know of a pod: a small part of it, so that caches stay small.
#[derive(Clone, Debug, PartialEq)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Name of its job, by label.
    pub job: String,
    /// UID of the `DIJob` that controls it.
    pub owner: Option<String>,
    /// Its role, by label.
    pub role: Option<Role>,
    /// Its place in a logic learner, if it is a ddp learner.
    pub ddp: Option<Box<DdpView>>,
    /// Its phase.
    pub phase: PodPhase,
    /// How its main container ended, if it ended for good.
    pub end: Option<Box<End>>,
    /// Whether it is ready.
    pub ready: bool,
    /// How often its main container was restarted in place.
    pub restarts: i32,
    /// Whether the scheduler found a node, and if not, why.
    pub scheduled: Result<bool, String>,
    /// Why a container of it waits, such as `ImagePullBackOff`, and the kubelet's message.
    pub waiting: Option<Box<(String, String)>>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether its end is the cluster's doing: eviction, preemption, node drain.
    pub disrupted: bool,
    /// Its node.
    pub node: Option<String>,
    /// Its own addresses; none in its node's network.
    pub ips: Vec<IpAddr>,
    /// Port named `di-port`, or its role's default.
    pub port: i32,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When its main container started, if it runs or ended.
    pub started: Option<Timestamp>,
}

/// What a ddp learner's pod tells of its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdpView {
    /// Its place in its logic learner.
    pub place: Ddp,
    /// GPUs that it has, one for each process.
    pub gpus: i32,
}

impl DdpView {
    fn new(pod: &Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let containers = &pod.spec.as_ref()?.containers;
        let main = containers
            .iter()
            .find(|c| c.name == names::MAIN_CONTAINER)?;
        // Ours stand first; what users set over them changes nothing of the plan.
        let env = |name: &str| {
            let mut all = main.env.iter().flatten();
            all.find(|variable| variable.name == name)?.value.as_deref()
        };
        // Nobody makes larger ones; a pod that says otherwise must not make us list as many.
        let number =
            |name| quantity::whole(env(name)?).filter(|number| *number <= names::MAX_LEARNER_GPUS);
        Some(Self {
            place: Ddp {
                aggregator: labels.get(names::labels::AGGREGATOR)?.clone(),
                world_size: number(names::env::WORLD_SIZE)?,
                start_rank: number(names::env::START_RANK)?,
                master: env(names::env::MASTER_ADDR)
                    .filter(|address| *address != names::MASTER_ITSELF)
                    .map(str::to_owned),
            },
            gpus: number(names::env::LOCAL_WORLD_SIZE)?,
        })
    }
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodPhase {
    /// Not all of its containers were started.
    Pending,
    /// On a node, started.
    Running,
    /// All containers ended with success.
    Succeeded,
    /// All containers ended, one with failure.
    Failed,
    /// Its node does not answer.
    Unknown,
}

/// How a pod's main container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Its exit code; none where it never ran, as in an eviction.
    pub exit_code: Option<i32>,
    /// Why, as the kubelet says: `Completed`, `Error`, `OOMKilled`, `Evicted`, …
    pub reason: String,
    /// When.
    pub at: Option<Timestamp>,
}

impl End {
    /// Whether it ended well.
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }
}

/// State of a replica, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Not running yet.
    Pending,
    /// Running.
    Active,
    /// Ended with success.
    Succeeded,
    /// Ended with failure.
    Failed,
}

impl PodView {
    /// The view of a pod of one of our jobs; nothing for other pods.
    pub fn new(pod: &Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let job = labels.get(names::labels::JOB)?.clone();
        let role = labels
            .get(names::labels::ROLE)
            .and_then(|label| Role::from_label(label));
        let spec = pod.spec.as_ref();
        let empty = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&empty);
        let phase = phase(status);
        let main = status
            .container_statuses
            .iter()
            .flatten()
            .find(|container| container.name == names::MAIN_CONTAINER);
        let state = main.and_then(|container| container.state.as_ref());
        Some(Self {
            name: pod.name_any(),
            namespace: pod.namespace().unwrap_or_default(),
            uid: pod.uid().unwrap_or_default(),
            job,
            owner: controlling_job(pod),
            role,
            ddp: (role == Some(Role::DdpLearner))
                .then(|| DdpView::new(pod).map(Box::new))
                .flatten(),
            phase,
            end: end(spec, status, phase, state).map(Box::new),
            ready: condition(status, "Ready").is_some_and(|(status, _)| status == "True"),
            restarts: main.map_or(0, |container| container.restart_count),
            scheduled: match condition(status, "PodScheduled") {
                Some(("False", message)) => Err(message.to_owned()),
                Some(("True", _)) => Ok(true),
                _ => Ok(spec.is_some_and(|spec| spec.node_name.is_some())),
            },
            waiting: waiting(status).map(Box::new),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            disrupted: condition(status, "DisruptionTarget")
                .is_some_and(|(status, _)| status == "True")
                || matches!(
                    status.reason.as_deref(),
                    Some("Evicted" | "Preempting" | "Shutdown" | "NodeShutdown" | "NodeLost")
                ),
            node: spec.and_then(|spec| spec.node_name.clone()),
            ips: addresses(spec, status),
            port: spec
                .and_then(named_port)
                .unwrap_or_else(|| role.map_or(0, Role::default_port)),
            created: pod.creation_timestamp().map(|time| time.0),
            started: state.and_then(started),
        })
    }

    /// Whether the job of this UID controls it.
    pub fn belongs_to(&self, job_uid: &str) -> bool {
        self.owner.as_deref() == Some(job_uid)
    }

    /// State as it is counted.
    pub fn stage(&self) -> Stage {
        match (&self.end, self.phase) {
            (Some(end), _) if end.succeeded() => Stage::Succeeded,
            (Some(_), _) => Stage::Failed,
            (None, PodPhase::Running | PodPhase::Unknown) => Stage::Active,
            (None, _) => Stage::Pending,
        }
    }

    /// Whether it could still use the cluster: not all of its containers have ended.
    pub fn uses_cluster(&self) -> bool {
        !matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Why it does not run, in Kubernetes' word, if Kubernetes says that it cannot.
    pub fn stuck(&self) -> Option<(&str, &str)> {
        if let Some((reason, message)) = self.waiting.as_deref()
            && STUCK.contains(&reason.as_str())
        {
            return Some((reason, message));
        }
        match &self.scheduled {
            Err(message) => Some(("Unschedulable", message)),
            Ok(_) => None,
        }
    }
}

/// Waiting reasons from which a container does not come by itself.
const STUCK: [&str; 7] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
];

fn phase(status: &PodStatus) -> PodPhase {
    match status.phase.as_deref() {
        Some("Running" | "Pending") if is_lost(status) => PodPhase::Unknown,
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Unknown") => PodPhase::Unknown,
        _ => PodPhase::Pending,
    }
}

/// Kubernetes keeps the phase of a pod whose node does not answer. It takes the pod's readiness away, and nothing else: a kubelet that
/// does so gives a reason, and finds a container not ready.
fn is_lost(status: &PodStatus) -> bool {
    let ready = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    let taken_away = ready.is_some_and(|ready| {
        ready.status == "False" && ready.reason.as_deref().is_none_or(str::is_empty)
    });
    let containers_ready =
        || condition(status, "ContainersReady").is_some_and(|(containers, _)| containers == "True");
    status.reason.as_deref() == Some("NodeLost") || (taken_away && containers_ready())
}

fn addresses(spec: Option<&PodSpec>, status: &PodStatus) -> Vec<IpAddr> {
    if spec.is_some_and(|spec| spec.host_network == Some(true)) {
        return Vec::new();
    }
    let all = status.pod_ips.iter().flatten();
    all.filter_map(|ip| ip.ip.parse().ok()).collect()
}

fn controlling_job<K: Resource>(object: &K) -> Option<String> {
    object
        .meta()
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true) && owner.kind == "DIJob")
        .map(|owner| owner.uid.clone())
}

fn condition<'a>(status: &'a PodStatus, type_: &str) -> Option<(&'a str, &'a str)> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == type_)
        .map(|condition| {
            let message = condition.message.as_deref().unwrap_or_default();
            (condition.status.as_str(), message)
        })
}

fn waiting(status: &PodStatus) -> Option<(String, String)> {
    let all = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten();
    let waits = all.filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    waits
        .filter_map(|waiting| {
            let message = waiting.message.clone().unwrap_or_default();
            Some((waiting.reason.clone()?, message))
        })
        .max_by_key(|(reason, _)| STUCK.contains(&reason.as_str()))
}

fn started(state: &ContainerState) -> Option<Timestamp> {
    let running = state.running.as_ref().and_then(|s| s.started_at.as_ref());
    let ended = state
        .terminated
        .as_ref()
        .and_then(|s| s.started_at.as_ref());
    running.or(ended).map(|time| time.0)
}

/// The end of the main container, whatever its sidecars do; one that the kubelet starts again is not an end.
fn end(
    spec: Option<&PodSpec>,
    status: &PodStatus,
    phase: PodPhase,
    main: Option<&ContainerState>,
) -> Option<End> {
    let over = matches!(phase, PodPhase::Succeeded | PodPhase::Failed);
    if let Some(ended) = main.and_then(|state| state.terminated.as_ref()) {
        let policy = spec.and_then(|spec| spec.restart_policy.as_deref());
        let stays = match policy {
            Some("Never") => true,
            Some("OnFailure") => ended.exit_code == 0,
            _ => false,
        };
        return (over || stays).then(|| End {
            exit_code: Some(ended.exit_code),
            reason: ended.reason.clone().unwrap_or_else(|| "Error".to_owned()),
            at: ended.finished_at.as_ref().map(|time| time.0),
        });
    }
    let reason = || status.reason.clone();
    match phase {
        PodPhase::Succeeded => Some(End {
            exit_code: Some(0),
            reason: reason().unwrap_or_else(|| "Completed".to_owned()),
            at: None,
        }),
        PodPhase::Failed => Some(End {
            exit_code: None,
            reason: reason().unwrap_or_else(|| "PodFailed".to_owned()),
            at: None,
        }),
        _ => None,
    }
}

/// What the rules need to know of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceView {
    /// Its name, which is its pod's.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Name of its job, by label.
    pub job: String,
    /// UID of the `DIJob` that controls it.
    pub owner: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl ServiceView {
    /// The view of a service of one of our jobs; nothing for other services.
    pub fn new(service: &Service) -> Option<Self> {
        Some(Self {
            name: service.name_any(),
            namespace: service.namespace().unwrap_or_default(),
            uid: service.uid().unwrap_or_default(),
            job: service.labels().get(names::labels::JOB)?.clone(),
            owner: controlling_job(service),
            deleting: service.metadata.deletion_timestamp.is_some(),
        })
    }
}

/// UID of a job, empty before the server gave it one.
pub(crate) fn uid(job: &DIJob) -> &str {
    job.metadata.uid.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
