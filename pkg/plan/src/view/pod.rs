use std::net::IpAddr;

use di_api::{Reason, Role, UnitPlace, names};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodSpec, PodStatus},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::ResourceExt;

use super::{
    crash_loop::{CrashLoop, find_crash_loop},
    ddp::DdpView,
    env::env_value,
    owner::controlling_job,
    status::{
        End, PodPhase, RestartPolicy, exceeded_disk_limit, find_condition, is_disrupted, is_true,
        main_container_end, pod_phase, scheduled_time, start_time, stuck_reason, waiting_reason,
    },
    unit::unit_place,
};
use crate::named_port::named_port;

/// The part of a pod that this crate needs.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // independent facts from the pod status
pub struct PodView {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Name of the job, from the job label.
    pub job: String,
    /// UID of the `DIJob` that is its controller.
    pub owner: Option<String>,
    /// Role, from the role label.
    pub role: Option<Role>,
    /// Index within the role, if the orchestrator created the pod.
    pub index: Option<i32>,
    /// The declared replica group that the pod was created for.
    pub group: Option<Box<str>>,
    /// Whether the pod belongs to a gang.
    pub in_gang: bool,
    /// Place in the learner group, if the pod is a ddp learner.
    pub ddp: Option<Box<DdpView>>,
    /// Place in the unit, if the pod belongs to one.
    pub unit: Option<Box<UnitPlace>>,
    /// Phase.
    pub phase: PodPhase,
    /// Exit of the main container, if it is not restarted.
    pub end: Option<Box<End>>,
    /// Whether the pod is ready.
    pub ready: bool,
    /// Restart count of the main container.
    pub restarts: i32,
    /// Restart policy of the main container.
    pub restart_policy: RestartPolicy,
    /// Whether the pod has a node; the scheduler's message if no node fits.
    pub scheduled: Result<bool, String>,
    /// Time when the scheduler assigned a node.
    pub scheduled_at: Option<Timestamp>,
    /// Reason and message of a waiting container, for example `ImagePullBackOff`.
    pub waiting: Option<Box<(String, String)>>,
    /// A container that the kubelet restarts with a backoff.
    pub crash_loop: Option<Box<CrashLoop>>,
    /// Whether the pod is being deleted.
    pub deleting: bool,
    /// Finalizers that remain although the containers of the deleted pod have ended.
    pub finalizers: Option<Box<str>>,
    /// Whether `activeDeadlineSeconds` was set to stop the pod but keep the object.
    pub deadline_requested: bool,
    /// Whether the cluster ended the pod: eviction, preemption, node drain, rejection by the
    /// kubelet or node failure. See docs/decisions/0025.
    pub disrupted: bool,
    /// Whether the pod was evicted because it exceeded a disk limit of the pod. Counts as a failure
    /// although it is an eviction.
    pub exceeded_disk_limit: bool,
    /// Name of the node.
    pub node: Option<String>,
    /// Memory limit of the main container, or else its request.
    pub memory: Option<Quantity>,
    /// IP addresses of the pod; empty with `hostNetwork`, `None` until the kubelet reports them.
    pub ips: Option<Box<[IpAddr]>>,
    /// Port `di-port`, or else the default of the role.
    pub port: i32,
    /// Creation time.
    pub created: Option<Timestamp>,
    /// Start time of the main container, if it is running or has ended.
    pub started: Option<Timestamp>,
}

/// The smallest valid `activeDeadlineSeconds`. Set on a running pod, it makes the kubelet stop the
/// pod but keeps the object, its status and logs. See docs/decisions/0017 and
/// [pod update](https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement).
pub const IMMEDIATE_DEADLINE_SECONDS: i64 = 1;

/// A busy kubelet reports the address of a new pod within this time.
const ADDRESS_TIMEOUT_SECONDS: i64 = 60;

/// State of a replica in the counts of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Not running.
    Pending,
    /// Running.
    Active,
    /// Ended with success.
    Succeeded,
    /// Ended with failure.
    Failed,
}

impl PodView {
    /// The view of a pod; `None` if the pod has no job label.
    pub fn new(pod: &Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let job = labels.get(names::labels::JOB)?.clone();
        let role = labels
            .get(names::labels::ROLE)
            .and_then(|label| Role::from_label(label));
        let spec = pod.spec.as_ref();
        let empty = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&empty);
        let phase = pod_phase(status);
        let main = status
            .container_statuses
            .iter()
            .flatten()
            .find(|container| container.name == names::MAIN_CONTAINER);
        let state = main.and_then(|container| container.state.as_ref());
        let ended = state.and_then(|state| state.terminated.as_ref());
        let code = ended.map(|ended| ended.exit_code);
        let restart_policy = spec.map_or(RestartPolicy::Always, |spec| {
            RestartPolicy::of_container(spec, names::MAIN_CONTAINER, code)
        });
        let deadline_requested = spec
            .is_some_and(|spec| spec.active_deadline_seconds == Some(IMMEDIATE_DEADLINE_SECONDS));
        Some(Self {
            name: pod.name_any(),
            namespace: pod.namespace().unwrap_or_default(),
            uid: pod.uid().unwrap_or_default(),
            job,
            owner: controlling_job(pod),
            role,
            index: env_value(pod, names::env::REPLICA_INDEX).and_then(|index| index.parse().ok()),
            group: pod
                .annotations()
                .get(names::GROUP_ANNOTATION)
                .map(|group| group.as_str().into()),
            in_gang: is_in_gang(pod),
            ddp: (role == Some(Role::DdpLearner))
                .then(|| DdpView::new(pod).map(Box::new))
                .flatten(),
            unit: unit_place(pod).map(Box::new),
            phase,
            end: main_container_end(
                deadline_requested && role != Some(Role::Coordinator),
                restart_policy,
                spec,
                status,
                phase,
                state,
            )
            .map(Box::new),
            ready: is_true(status, "Ready"),
            restarts: main.map_or(0, |container| container.restart_count),
            restart_policy,
            scheduled: match find_condition(status, "PodScheduled") {
                Some(("False", message)) => Err(message.to_owned()),
                Some(("True", _)) => Ok(true),
                _ => Ok(spec.is_some_and(|spec| spec.node_name.is_some())),
            },
            scheduled_at: scheduled_time(status),
            waiting: waiting_reason(status).map(Box::new),
            crash_loop: spec
                .and_then(|spec| find_crash_loop(spec, status))
                .map(Box::new),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            finalizers: remaining_finalizers(pod),
            deadline_requested,
            disrupted: is_disrupted(status, ended),
            exceeded_disk_limit: exceeded_disk_limit(status),
            node: spec.and_then(|spec| spec.node_name.clone()),
            memory: spec.and_then(main_container_memory),
            ips: pod_addresses(spec, status),
            port: spec
                .and_then(named_port)
                .unwrap_or_else(|| role.map_or(0, Role::default_port)),
            created: pod.creation_timestamp().map(|time| time.0),
            started: state.and_then(start_time),
        })
    }

    /// Pod UID and restart count of a coordinator, as in `claimedBy` of
    /// [`PlanEntry`](di_api::PlanEntry).
    pub fn coordinator_instance(&self) -> String {
        format!("{}/{}", self.uid, self.restarts)
    }

    /// Whether the job with this UID is the controller of the pod.
    pub fn belongs_to(&self, job_uid: &str) -> bool {
        self.owner.as_deref() == Some(job_uid)
    }

    /// State of the replica in the counts of the status.
    pub fn stage(&self) -> Stage {
        match (&self.end, self.phase) {
            (Some(end), _) if end.has_succeeded() => Stage::Succeeded,
            (Some(_), _) => Stage::Failed,
            (None, PodPhase::Running | PodPhase::Unknown) => Stage::Active,
            (None, _) => Stage::Pending,
        }
    }

    /// Whether the pod has succeeded without being deleted or disrupted. A pod that is deleted or
    /// evicted can also exit with 0.
    pub fn has_completed(&self) -> bool {
        self.stage() == Stage::Succeeded && !self.deleting && !self.disrupted
    }

    /// Whether the exit of the pod counts as a failure of the job. Disruptions by the cluster do
    /// not count. See docs/decisions/0025.
    pub fn counts_as_failure(&self) -> bool {
        !self.disrupted || self.exceeded_disk_limit
    }

    /// Run time of the main container in seconds.
    ///
    /// It is measured by the clock of the kubelet, so it is limited to `max`, which the caller
    /// measured by its own clock.
    pub fn run_seconds(&self, now: Timestamp, max: Option<i64>) -> Option<i64> {
        let ended = self.end.as_ref().and_then(|end| end.at);
        let seconds = ended.unwrap_or(now).duration_since(self.started?).as_secs();
        Some(max.map_or(seconds, |max| seconds.min(max)))
    }

    /// Whether some containers of the pod have not ended.
    pub fn is_active(&self) -> bool {
        !matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether the pod is on a node, so that its kubelet must stop it.
    pub fn is_on_node(&self) -> bool {
        self.phase != PodPhase::Pending || self.scheduled == Ok(true)
    }

    /// Whether the kubelet is expected to report an address soon.
    ///
    /// That takes seconds. A pod that was scheduled long ago waits for something else.
    pub fn is_awaiting_address(&self, now: Timestamp) -> bool {
        let is_waiting = self.ips.is_none() && !self.deleting && self.is_active();
        let since = self.scheduled_at.map(|time| now.duration_since(time));
        is_waiting && since.is_some_and(|since| since.as_secs() < ADDRESS_TIMEOUT_SECONDS)
    }

    /// Reason and message if Kubernetes reports that the pod cannot start.
    pub fn stuck_reason(&self) -> Option<(Reason, &str)> {
        // An ended pod keeps the waiting reasons that its containers had before.
        if !self.is_active() {
            return None;
        }
        if let Some((reason, message)) = self.waiting.as_deref()
            && let Some(reason) = stuck_reason(reason)
        {
            return Some((reason, message));
        }
        match &self.scheduled {
            Err(message) => Some((Reason::Unschedulable, message)),
            Ok(_) => None,
        }
    }
}

fn is_in_gang(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let has_label = |key: &&str| pod.labels().contains_key(*key);
    let has_annotation = |key: &&str| pod.annotations().contains_key(*key);
    let (labels, annotations) = (
        [
            names::gang::COSCHEDULING_GROUP,
            names::gang::YUNIKORN_APPLICATION,
        ],
        [names::gang::VOLCANO_GROUP, names::gang::KAI_GROUP],
    );
    labels.iter().any(has_label)
        || annotations.iter().any(has_annotation)
        || spec.is_some_and(|spec| spec.scheduling_group.is_some())
}

fn main_container_memory(spec: &PodSpec) -> Option<Quantity> {
    let mut containers = spec.containers.iter();
    let main = containers.find(|container| container.name == names::MAIN_CONTAINER)?;
    let resources = main.resources.as_ref()?;
    let mut lists = [&resources.limits, &resources.requests]
        .into_iter()
        .flatten();
    lists.find_map(|list| list.get("memory")).cloned()
}

/// The finalizers that keep a deleted pod. The kubelet sets the grace period to 0 once all
/// containers have ended.
fn remaining_finalizers(pod: &Pod) -> Option<Box<str>> {
    let finalizers = pod.metadata.finalizers.as_ref()?;
    let has_ended = pod.metadata.deletion_timestamp.is_some()
        && pod.metadata.deletion_grace_period_seconds == Some(0);
    (has_ended && !finalizers.is_empty()).then(|| finalizers.join(", ").into())
}

/// The addresses of a pod. Those of a pod without a node are ignored: no kubelet reported them, but
/// a user with permission to write the pod status.
fn pod_addresses(spec: Option<&PodSpec>, status: &PodStatus) -> Option<Box<[IpAddr]>> {
    let spec = spec?;
    if spec.host_network == Some(true) {
        return Some(Box::default());
    }
    spec.node_name.as_ref()?;
    let ips = status.pod_ips.as_ref()?.iter();
    Some(ips.filter_map(|ip| ip.ip.parse().ok()).collect())
}
