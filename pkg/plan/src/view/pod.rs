use std::net::IpAddr;

use di_api::{Reason, Role, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use kube::ResourceExt;

use super::{
    DdpView, End, PodPhase, RestartPolicy, controlling_job,
    status::{
        condition, end, ended_again, is_disrupted, is_over_its_limit, is_true, phase, placed,
        started, stuck, waiting,
    },
    told,
};
use crate::ports::named_port;

/// What the rules need to know of a pod.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::struct_excessive_bools)] // what Kubernetes says, each by itself
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
    /// Its number within its role, if it was made by us.
    pub index: Option<i32>,
    /// The declared group that it was made for.
    pub group: Option<Box<str>>,
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
    /// Whether its kubelet starts its main container again when that ends.
    pub restart_policy: RestartPolicy,
    /// Whether the scheduler found a node, and if not, why.
    pub scheduled: Result<bool, String>,
    /// When it got its node.
    pub placed: Option<Timestamp>,
    /// Why a container of it waits, such as `ImagePullBackOff`, and the kubelet's message.
    pub waiting: Option<Box<(String, String)>>,
    /// How its main container ended that its kubelet has started again before, and is to start again after a while.
    pub ended_again: Option<Box<End>>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether its kubelet was told to end it where it is.
    pub told_to_end: bool,
    /// Whether its end is the cluster's doing: eviction, preemption, node drain, a kubelet that does not take it, a node that went down.
    pub disrupted: bool,
    /// Whether it was evicted for using more disk than it may itself: told to go, and yet its own doing.
    pub over_its_limit: bool,
    /// Its node.
    pub node: Option<String>,
    /// Its own addresses, of which there are none in its node's network; nothing until its kubelet tells.
    pub ips: Option<Box<[IpAddr]>>,
    /// Port named `di-port`, or its role's default.
    pub port: i32,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When its main container started, if it runs or ended.
    pub started: Option<Timestamp>,
}

/// The least `activeDeadlineSeconds` that a pod may have. A running pod may be given it, and is ended by its kubelet then, but stays to be read:
/// the [one way](https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement) to do that.
pub const END_NOW: i64 = 1;

/// A kubelet with much to tell tells of an address within this time.
const ADDRESS_TOLD_WITHIN_SECONDS: i64 = 60;

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
        let ended = state.and_then(|state| state.terminated.as_ref());
        let code = ended.map(|ended| ended.exit_code);
        let restart_policy =
            spec.map_or(RestartPolicy::Always, |spec| RestartPolicy::of(spec, code));
        Some(Self {
            name: pod.name_any(),
            namespace: pod.namespace().unwrap_or_default(),
            uid: pod.uid().unwrap_or_default(),
            job,
            owner: controlling_job(pod),
            role,
            index: told(pod, names::env::REPLICA_INDEX).and_then(|index| index.parse().ok()),
            group: pod
                .annotations()
                .get(names::GROUP_ANNOTATION)
                .map(|group| group.as_str().into()),
            ddp: (role == Some(Role::DdpLearner))
                .then(|| DdpView::new(pod).map(Box::new))
                .flatten(),
            phase,
            end: end(restart_policy, spec, status, phase, state).map(Box::new),
            ready: is_true(status, "Ready"),
            restarts: main.map_or(0, |container| container.restart_count),
            restart_policy,
            scheduled: match condition(status, "PodScheduled") {
                Some(("False", message)) => Err(message.to_owned()),
                Some(("True", _)) => Ok(true),
                _ => Ok(spec.is_some_and(|spec| spec.node_name.is_some())),
            },
            placed: placed(status),
            waiting: waiting(status).map(Box::new),
            ended_again: main
                .and_then(|main| ended_again(main, restart_policy))
                .map(Box::new),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            told_to_end: spec.is_some_and(|spec| spec.active_deadline_seconds == Some(END_NOW)),
            disrupted: is_disrupted(status, ended),
            over_its_limit: is_over_its_limit(status),
            node: spec.and_then(|spec| spec.node_name.clone()),
            ips: addresses(spec, status),
            port: spec
                .and_then(named_port)
                .unwrap_or_else(|| role.map_or(0, Role::default_port)),
            created: pod.creation_timestamp().map(|time| time.0),
            started: state.and_then(started),
        })
    }

    /// Which of the starts of a coordinator this is, as [`PlanEntry`](di_api::PlanEntry) has it.
    pub fn incarnation(&self) -> String {
        format!("{}/{}", self.uid, self.restarts)
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

    /// Whether it has ended with success, and by itself: one that was told to go may well exit with 0.
    pub fn has_done_its_work(&self) -> bool {
        self.stage() == Stage::Succeeded && !self.deleting && !self.disrupted
    }

    /// Whether it, and not the cluster, is to blame for its end.
    pub fn is_to_blame(&self) -> bool {
        !self.disrupted || self.over_its_limit
    }

    /// How long its main container has run, in seconds. What is told of that by its kubelet's clock is not taken to be longer than `most`, which
    /// ours knows of.
    pub fn ran(&self, now: Timestamp, most: Option<i64>) -> Option<i64> {
        let ended = self.end.as_ref().and_then(|end| end.at);
        let ran = ended.unwrap_or(now).duration_since(self.started?).as_secs();
        Some(most.map_or(ran, |most| ran.min(most)))
    }

    /// Whether it could still use the cluster: not all of its containers have ended.
    pub fn uses_cluster(&self) -> bool {
        !matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether a kubelet has it: nobody else ends it where it is.
    pub fn is_placed(&self) -> bool {
        self.phase != PodPhase::Pending || self.scheduled == Ok(true)
    }

    /// Whether it may have an address that its kubelet has not told yet. That takes seconds; a pod that got its node long ago waits for
    /// something else, and has none.
    pub fn may_have_address(&self, now: Timestamp) -> bool {
        let waits = self.ips.is_none() && !self.deleting && self.uses_cluster();
        let since = self.placed.map(|placed| now.duration_since(placed));
        waits && since.is_some_and(|since| since.as_secs() < ADDRESS_TOLD_WITHIN_SECONDS)
    }

    /// Why it does not run, in Kubernetes' word, if Kubernetes says that it cannot.
    pub fn stuck(&self) -> Option<(Reason, &str)> {
        // What its containers waited for when it ended stays as it was.
        if !self.uses_cluster() {
            return None;
        }
        if let Some((reason, message)) = self.waiting.as_deref()
            && let Some(reason) = stuck(reason)
        {
            return Some((reason, message));
        }
        match &self.scheduled {
            Err(message) => Some((Reason::Unschedulable, message)),
            Ok(_) => None,
        }
    }
}

/// Those of a pod without a node no kubelet has told: who may write its status says what it likes.
fn addresses(spec: Option<&PodSpec>, status: &PodStatus) -> Option<Box<[IpAddr]>> {
    let spec = spec?;
    if spec.host_network == Some(true) {
        return Some(Box::default());
    }
    spec.node_name.as_ref()?;
    let all = status.pod_ips.as_ref()?.iter();
    Some(all.filter_map(|ip| ip.ip.parse().ok()).collect())
}
