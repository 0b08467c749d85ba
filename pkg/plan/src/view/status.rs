//! What the status of a pod tells.

use di_api::{Reason, names, validation::cut};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerRestartRule, ContainerState, ContainerStateTerminated, ContainerStatus,
        PodSpec, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

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

/// Which containers of a pod are started again where they are when they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartPolicy {
    /// All of them, which is what [Kubernetes takes](https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy) where a
    /// pod says nothing.
    Always,
    /// Those that fail.
    OnFailure,
    /// None.
    Never,
}

impl RestartPolicy {
    /// That of the main container, which has ended with this code if it has, and may have [one of its own](https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-restart-rules).
    pub(super) fn of(spec: &PodSpec, exit_code: Option<i32>) -> Self {
        let is_main = |container: &&Container| container.name == names::MAIN_CONTAINER;
        let main = spec.containers.iter().find(is_main);
        // One that is empty says nothing.
        let own = main.and_then(|main| main.restart_policy.as_deref());
        let own = own.filter(|own| !own.is_empty());
        let policy = match own.or(spec.restart_policy.as_deref()) {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        };
        let rules = main.and_then(|main| main.restart_policy_rules.as_deref());
        match (rules.unwrap_or_default(), exit_code) {
            ([], _) => policy,
            (_, None) if policy == Self::Never => Self::OnFailure,
            (rules, Some(code)) if rules.iter().any(|rule| restarts(rule, code)) => Self::Always,
            _ => policy,
        }
    }

    /// Whether a container is started again that has ended with this code.
    fn starts_again(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// Whether a container is started again by a rule after it has exited so.
fn restarts(rule: &ContainerRestartRule, code: i32) -> bool {
    let of_code = rule.exit_codes.as_ref().is_some_and(|of| {
        let is_among = of.values.iter().flatten().any(|value| *value == code);
        is_among == (of.operator == "In")
    });
    ["Restart", "RestartAllContainers"].contains(&rule.action.as_str()) && of_code
}

/// How a pod's main container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Its exit code; none where it never ran, as in an eviction.
    pub exit_code: Option<i32>,
    /// Why, as the kubelet says: `Completed`, `Error`, `OOMKilled`, `Evicted`, …
    pub reason: String,
    /// What the kubelet says of that, where there is no log that could: of what it did to the pod, or of a container that it could not start.
    pub message: Option<String>,
    /// When.
    pub at: Option<Timestamp>,
}

impl End {
    /// Whether it ended well.
    pub fn succeeded(&self) -> bool {
        self.exit_code == Some(0)
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.exit_code {
            Some(code) => write!(f, "{} (exit code {code})", self.reason)?,
            None => f.write_str(&self.reason)?,
        }
        match &self.message {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

pub(super) fn phase(status: &PodStatus) -> PodPhase {
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
    status.reason.as_deref() == Some("NodeLost")
        || (taken_away && is_true(status, "ContainersReady"))
}

/// Whether the pod's end is the cluster's doing; `ended` is how its main container did.
pub(super) fn is_disrupted(status: &PodStatus, ended: Option<&ContainerStateTerminated>) -> bool {
    is_target(status, ended)
        || is_rejected(status)
        || ended.is_some_and(is_unknown)
        || matches!(
            status.reason.as_deref(),
            // The last three are of a node that shuts down in order: before 1.22, since then, and of pods that come too late.
            Some(
                "Evicted" | "Preempting" | "NodeLost" | "Shutdown" | "Terminated" | "NodeShutdown"
            )
        )
}

/// Whether a pod was evicted because it used more disk than it may itself, as it would on any node. Nothing but the kubelet's words
/// tells that from a node that was short of something; since 1.26 it gives such a pod no condition DisruptionTarget either.
pub(super) fn is_over_its_limit(status: &PodStatus) -> bool {
    const WORDS: [&str; 3] = [
        "exceeded its local ephemeral storage limit",
        "exceeds the total limit of containers",
        "Usage of EmptyDir volume",
    ];
    let message = status.message.as_deref().unwrap_or_default();
    status.reason.as_deref() == Some("Evicted") && WORDS.iter().any(|words| message.contains(words))
}

/// Whether the cluster has chosen the pod to go, before its main container ended.
fn is_target(status: &PodStatus, ended: Option<&ContainerStateTerminated>) -> bool {
    let mut all = status.conditions.iter().flatten();
    let target = all.find(|one| one.type_ == "DisruptionTarget" && one.status == "True");
    let ended = ended.and_then(|ended| ended.finished_at.as_ref());
    let since = target.map(|target| target.last_transition_time.as_ref());
    since.is_some_and(|since| match (since, ended.and_then(happened)) {
        (Some(since), Some(ended)) => since.0 <= ended,
        _ => true,
    })
}

/// Whether its kubelet did not take it. One that starts anew may refuse what it ran for days, and its word for why is then all that is left.
fn is_rejected(status: &PodStatus) -> bool {
    let inits = status.init_container_statuses.iter();
    let mut containers = inits.chain(&status.container_statuses).flatten();
    let reason = status.reason.as_deref().unwrap_or_default();
    // Of the last three, any other kubelet would refuse the same.
    let own = [
        "",
        "DeadlineExceeded",
        "AppArmor",
        "PodOSNotSupported",
        "SysctlForbidden",
    ];
    status.phase.as_deref() == Some("Failed")
        && !own.contains(&reason)
        && containers.next().is_none()
}

/// Whether nobody knows how a container ended, as its node went down under it.
fn is_unknown(ended: &ContainerStateTerminated) -> bool {
    match ended.reason.as_deref() {
        // The kubelet's word, where the runtime has forgotten it.
        Some("ContainerStatusUnknown") => true,
        // The runtime's.
        Some("Unknown") => ended.exit_code == 255,
        _ => false,
    }
}

/// Status and message of a condition.
pub(super) fn condition<'a>(status: &'a PodStatus, type_: &str) -> Option<(&'a str, &'a str)> {
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

/// When the scheduler found a node.
pub(super) fn placed(status: &PodStatus) -> Option<Timestamp> {
    let mut all = status.conditions.iter().flatten();
    let scheduled = all.find(|one| one.type_ == "PodScheduled" && one.status == "True")?;
    Some(scheduled.last_transition_time.as_ref()?.0)
}

pub(super) fn is_true(status: &PodStatus, type_: &str) -> bool {
    condition(status, type_).is_some_and(|(status, _)| status == "True")
}

/// The reason, if a container that waits for it does not come by itself.
pub(super) fn stuck(reason: &str) -> Option<Reason> {
    Reason::among(&Reason::STUCK, reason)
}

/// Why a container waits; of several, one that does not come by itself.
pub(super) fn waiting(status: &PodStatus) -> Option<(String, String)> {
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
        .max_by_key(|(reason, _)| stuck(reason).is_some())
}

/// A kubelet starts a container [at once](https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-restarts) that ran this
/// long, in seconds.
const RESTARTED_AT_ONCE_SECONDS: i64 = 600;

/// How the main container has ended again, and too soon for its kubelet to start it at once: for some time that leaves it as it lies, and says only
/// then that it backs off.
pub(super) fn ended_again(main: &ContainerStatus, restart_policy: RestartPolicy) -> Option<End> {
    let ended = main.state.as_ref()?.terminated.as_ref()?;
    let time = |at: &Option<Time>| at.as_ref().and_then(happened);
    let ran = time(&ended.started_at).zip(time(&ended.finished_at));
    let is_soon = ran.is_none_or(|(started, finished)| {
        finished.duration_since(started).as_secs() < RESTARTED_AT_ONCE_SECONDS
    });
    let is_restarted = restart_policy.starts_again(ended.exit_code);
    let is_again = main.restart_count > 0 && ended.reason.as_deref() != Some(RESTARTING);
    (is_soon && is_restarted && is_again).then(|| ended_by(ended, None))
}

pub(super) fn started(state: &ContainerState) -> Option<Timestamp> {
    let running = state.running.as_ref().and_then(|s| s.started_at.as_ref());
    let ended = state.terminated.as_ref();
    running
        .or_else(|| ended.and_then(|s| s.started_at.as_ref()))
        .and_then(happened)
}

/// When something happened, if it did: a kubelet writes its runtime's zero, 1970, for the start of a container that could not be started.
fn happened(time: &Time) -> Option<Timestamp> {
    (time.0 > Timestamp::UNIX_EPOCH).then_some(time.0)
}

/// How an init container failed, without which the main one never runs.
fn initialization(spec: Option<&PodSpec>, status: &PodStatus) -> Option<String> {
    let inits = spec.and_then(|spec| spec.init_containers.as_deref());
    // It ends after the others, and only because it is told to.
    let is_sidecar = |name: &str| {
        let mut inits = inits.unwrap_or_default().iter();
        inits.any(|one| one.name == name && one.restart_policy.as_deref() == Some("Always"))
    };
    let all = status.init_container_statuses.iter().flatten();
    let mut all = all.filter(|container| !is_sidecar(&container.name));
    all.find_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        let (name, code) = (&container.name, ended.exit_code);
        (code != 0).then(|| format!("init container {name} ended with exit code {code}"))
    })
}

/// Messages of kubelets are passed on up to this length, in bytes.
const LONGEST_MESSAGE: usize = 300;

/// What is passed on of a kubelet's message.
fn said(message: Option<&str>) -> Option<String> {
    let message = message?.trim().trim_end_matches('.');
    (!message.is_empty()).then(|| cut(message, LONGEST_MESSAGE))
}

/// What a container that is started again with all others of its pod has ended by.
const RESTARTING: &str = "RestartingAllContainers";

/// The end of the main container, whatever its sidecars do; one that the kubelet starts again is not an end.
pub(super) fn end(
    restart_policy: RestartPolicy,
    spec: Option<&PodSpec>,
    status: &PodStatus,
    phase: PodPhase,
    main: Option<&ContainerState>,
) -> Option<End> {
    let over = matches!(phase, PodPhase::Succeeded | PodPhase::Failed);
    if let Some(ended) = main.and_then(|state| state.terminated.as_ref()) {
        let is_again = ended.reason.as_deref() == Some(RESTARTING)
            || restart_policy.starts_again(ended.exit_code);
        return (over || !is_again).then(|| ended_by(ended, over.then_some(status)));
    }
    let reason = || status.reason.clone();
    let message = said(status.message.as_deref());
    match phase {
        PodPhase::Succeeded => Some(End {
            exit_code: Some(0),
            reason: reason().unwrap_or_else(|| "Completed".to_owned()),
            message,
            at: None,
        }),
        PodPhase::Failed => Some(End {
            exit_code: None,
            reason: reason()
                .or_else(|| initialization(spec, status))
                .unwrap_or_else(|| "PodFailed".to_owned()),
            message,
            at: None,
        }),
        _ => None,
    }
}

/// The end of a container; `over` is what is said of its pod, if that is over. Where that says why, it says more than the container's end does,
/// which is of the signal that it got.
fn ended_by(ended: &ContainerStateTerminated, over: Option<&PodStatus>) -> End {
    let pod = over.filter(|status| status.reason.is_some());
    let has_started = ended.started_at.as_ref().and_then(happened).is_some();
    let message = match pod {
        Some(status) => status.message.as_deref(),
        // It may be a piece of its log.
        None if has_started => None,
        None => ended.message.as_deref(),
    };
    let reason = pod.map_or(&ended.reason, |status| &status.reason);
    End {
        exit_code: Some(ended.exit_code),
        reason: reason.clone().unwrap_or_else(|| "Error".to_owned()),
        message: said(message),
        at: ended.finished_at.as_ref().and_then(happened),
    }
}
