//! Reads the status of a pod.

use di_api::{Reason, validation::truncate_text};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerRestartRule, ContainerState, ContainerStateTerminated, PodSpec,
        PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodPhase {
    /// Not all containers were started.
    Pending,
    /// On a node, started.
    Running,
    /// All containers ended with success.
    Succeeded,
    /// All containers ended, one with failure.
    Failed,
    /// The node does not respond.
    Unknown,
}

/// When the kubelet restarts a container that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartPolicy {
    /// Always; the [default of
    /// Kubernetes](https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy).
    Always,
    /// After a failure.
    OnFailure,
    /// Never.
    Never,
}

impl RestartPolicy {
    /// The policy of a container, which may have ended with this exit code.
    ///
    /// A container may have its own policy and [restart
    /// rules](https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-restart-rules).
    pub(super) fn of_container(spec: &PodSpec, name: &str, exit_code: Option<i32>) -> Self {
        let has_name = |container: &&Container| container.name == name;
        let init = spec.init_containers.iter().flatten().find(has_name);
        let container = spec.containers.iter().find(has_name).or(init);
        // Treat an empty policy as unset.
        let own = container.and_then(|container| container.restart_policy.as_deref());
        let own = own.filter(|own| !own.is_empty());
        let policy = match own.or(spec.restart_policy.as_deref()) {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            // The next container starts once an init container has succeeded.
            _ if init.is_some() && own.is_none() => Self::OnFailure,
            _ => Self::Always,
        };
        let rules = container.and_then(|container| container.restart_policy_rules.as_deref());
        match (rules.unwrap_or_default(), exit_code) {
            ([], _) => policy,
            (_, None) if policy == Self::Never => Self::OnFailure,
            (rules, Some(code)) if rules.iter().any(|rule| rule_restarts(rule, code)) => {
                Self::Always
            }
            _ => policy,
        }
    }

    /// Whether the kubelet restarts a container that has ended with this exit code.
    pub(super) fn should_restart(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// Whether a rule restarts a container with this exit code.
fn rule_restarts(rule: &ContainerRestartRule, code: i32) -> bool {
    let matches_code = rule.exit_codes.as_ref().is_some_and(|codes| {
        let is_listed = codes.values.iter().flatten().any(|value| *value == code);
        is_listed == (codes.operator == "In")
    });
    ["Restart", "RestartAllContainers"].contains(&rule.action.as_str()) && matches_code
}

/// The exit of the main container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Exit code; `None` if the container never ran, for example after an eviction.
    pub exit_code: Option<i32>,
    /// Reason from the kubelet: `Completed`, `Error`, `OOMKilled`, `Evicted`, …
    pub reason: String,
    /// Message from the kubelet, if the container has no log that explains the exit: the pod was
    /// evicted, or the container could not start.
    pub message: Option<String>,
    /// Time of the exit.
    pub at: Option<Timestamp>,
    /// The last lines of the log, if the template has no other `terminationMessagePolicy`.
    pub log_tail: Option<Box<str>>,
}

impl End {
    /// Whether the exit code is 0.
    pub fn has_succeeded(&self) -> bool {
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

pub(super) fn pod_phase(status: &PodStatus) -> PodPhase {
    match status.phase.as_deref() {
        Some("Running" | "Pending") if is_lost(status) => PodPhase::Unknown,
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Unknown") => PodPhase::Unknown,
        _ => PodPhase::Pending,
    }
}

/// Whether the node of the pod does not respond.
///
/// The node lifecycle controller keeps the phase and sets only `Ready` to `False`, without a
/// reason. A kubelet that sets it gives a reason and also sets `ContainersReady`.
fn is_lost(status: &PodStatus) -> bool {
    let ready = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Ready");
    let is_reset = ready.is_some_and(|ready| {
        ready.status == "False" && ready.reason.as_deref().is_none_or(str::is_empty)
    });
    status.reason.as_deref() == Some("NodeLost") || (is_reset && is_true(status, "ContainersReady"))
}

/// Whether the cluster ended the pod; `ended` is the state of its main container.
/// See docs/decisions/0025.
pub(super) fn is_disrupted(status: &PodStatus, ended: Option<&ContainerStateTerminated>) -> bool {
    is_disruption_target(status, ended)
        || is_rejected_by_kubelet(status)
        || ended.is_some_and(is_exit_unknown)
        || matches!(
            status.reason.as_deref(),
            // The last three come from a graceful node shutdown: before Kubernetes 1.22, since
            // 1.22, and for pods that arrive during the shutdown.
            Some(
                "Evicted" | "Preempting" | "NodeLost" | "Shutdown" | "Terminated" | "NodeShutdown"
            )
        )
}

/// Whether a pod was evicted because it exceeded its own disk limit, as it would on any node.
///
/// Only the message of the kubelet distinguishes this from node pressure. Since Kubernetes 1.26
/// such a pod has no condition `DisruptionTarget`.
pub(super) fn exceeded_disk_limit(status: &PodStatus) -> bool {
    const PHRASES: [&str; 3] = [
        "exceeded its local ephemeral storage limit",
        "exceeds the total limit of containers",
        "Usage of EmptyDir volume",
    ];
    let message = status.message.as_deref().unwrap_or_default();
    status.reason.as_deref() == Some("Evicted")
        && PHRASES.iter().any(|phrase| message.contains(phrase))
}

/// Whether the cluster selected the pod for disruption before its main container ended.
fn is_disruption_target(status: &PodStatus, ended: Option<&ContainerStateTerminated>) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    let target = conditions.find(|c| c.type_ == "DisruptionTarget" && c.status == "True");
    let ended = ended.and_then(|ended| ended.finished_at.as_ref());
    let since = target.map(|target| target.last_transition_time.as_ref());
    since.is_some_and(|since| match (since, ended.and_then(real_time)) {
        (Some(since), Some(ended)) => since.0 <= ended,
        _ => true,
    })
}

/// Whether the kubelet rejected the pod.
///
/// A restarted kubelet may reject a pod that has run for days; only the reason is left then.
fn is_rejected_by_kubelet(status: &PodStatus) -> bool {
    let inits = status.init_container_statuses.iter();
    let mut containers = inits.chain(&status.container_statuses).flatten();
    let reason = status.reason.as_deref().unwrap_or_default();
    // These reasons are the pod's own fault. Every kubelet rejects the last three.
    let own_reasons = [
        "",
        "DeadlineExceeded",
        "AppArmor",
        "PodOSNotSupported",
        "SysctlForbidden",
    ];
    status.phase.as_deref() == Some("Failed")
        && !own_reasons.contains(&reason)
        && containers.next().is_none()
}

/// Whether the exit of a container is unknown because its node failed.
fn is_exit_unknown(ended: &ContainerStateTerminated) -> bool {
    match ended.reason.as_deref() {
        // Set by the kubelet if the runtime has no record of the container.
        Some("ContainerStatusUnknown") => true,
        // Set by the container runtime.
        Some("Unknown") => ended.exit_code == 255,
        _ => false,
    }
}

/// Status and message of a condition.
pub(super) fn find_condition<'a>(status: &'a PodStatus, type_: &str) -> Option<(&'a str, &'a str)> {
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

/// Time when the scheduler assigned a node.
pub(super) fn scheduled_time(status: &PodStatus) -> Option<Timestamp> {
    let mut conditions = status.conditions.iter().flatten();
    let scheduled = conditions.find(|c| c.type_ == "PodScheduled" && c.status == "True")?;
    Some(scheduled.last_transition_time.as_ref()?.0)
}

pub(super) fn is_true(status: &PodStatus, type_: &str) -> bool {
    find_condition(status, type_).is_some_and(|(status, _)| status == "True")
}

/// The reason, if a container that waits with it cannot start without a change.
pub(super) fn stuck_reason(reason: &str) -> Option<Reason> {
    Reason::find_in(&Reason::STUCK_CONTAINER, reason)
}

/// Reason and message of a waiting container, preferably of one that cannot start without a change.
pub(super) fn waiting_reason(status: &PodStatus) -> Option<(String, String)> {
    let containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten();
    let waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    waiting
        .filter_map(|waiting| {
            let message = waiting.message.clone().unwrap_or_default();
            Some((waiting.reason.clone()?, message))
        })
        .max_by_key(|(reason, _)| stuck_reason(reason).is_some())
}

pub(super) fn start_time(state: &ContainerState) -> Option<Timestamp> {
    let running = state.running.as_ref().and_then(|s| s.started_at.as_ref());
    let ended = state.terminated.as_ref();
    running
        .or_else(|| ended.and_then(|s| s.started_at.as_ref()))
        .and_then(real_time)
}

/// The time, unless it is the Unix epoch. A kubelet writes the epoch as the start of a container
/// that could not start.
pub(super) fn real_time(time: &Time) -> Option<Timestamp> {
    (time.0 > Timestamp::UNIX_EPOCH).then_some(time.0)
}

/// Whether an init container is a
/// [sidecar](https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/).
pub(super) fn is_sidecar(spec: &PodSpec, name: &str) -> bool {
    let mut inits = spec.init_containers.iter().flatten();
    inits.any(|init| init.name == name && init.restart_policy.as_deref() == Some("Always"))
}

/// The failure of an init container, which keeps the main container from running.
fn init_failure(spec: Option<&PodSpec>, status: &PodStatus) -> Option<String> {
    let statuses = status.init_container_statuses.iter().flatten();
    // A sidecar ends after the main container, by a signal.
    let is_sidecar = |name: &str| spec.is_some_and(|spec| is_sidecar(spec, name));
    let mut statuses = statuses.filter(|container| !is_sidecar(&container.name));
    statuses.find_map(|container| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        let (name, code) = (&container.name, ended.exit_code);
        (code != 0).then(|| format!("init container {name} ended with exit code {code}"))
    })
}

/// Maximum length of a kubelet message in bytes; longer ones are cut.
const MAX_MESSAGE_BYTES: usize = 300;

/// Trims and cuts a kubelet message; `None` if it is empty.
fn trim_message(message: Option<&str>) -> Option<String> {
    let message = message?.trim().trim_end_matches('.');
    (!message.is_empty()).then(|| truncate_text(message, MAX_MESSAGE_BYTES))
}

/// Reason of a container that ended because all containers of its pod restart.
pub(super) const RESTARTING: &str = "RestartingAllContainers";

/// The exit of the main container, regardless of sidecars; `None` if the kubelet restarts it.
///
/// With `keeps_own_reason`, the reason of the pod does not replace that of the container.
pub(super) fn main_container_end(
    keeps_own_reason: bool,
    restart_policy: RestartPolicy,
    spec: Option<&PodSpec>,
    status: &PodStatus,
    phase: PodPhase,
    main: Option<&ContainerState>,
) -> Option<End> {
    let has_pod_ended = matches!(phase, PodPhase::Succeeded | PodPhase::Failed);
    if let Some(ended) = main.and_then(|state| state.terminated.as_ref()) {
        let is_restarted = ended.reason.as_deref() == Some(RESTARTING)
            || restart_policy.should_restart(ended.exit_code);
        let pod = Some(status).filter(|_| has_pod_ended && !keeps_own_reason);
        return (has_pod_ended || !is_restarted).then(|| container_end(ended, pod));
    }
    let reason = || status.reason.clone();
    let message = trim_message(status.message.as_deref());
    match phase {
        PodPhase::Succeeded => Some(End {
            exit_code: Some(0),
            reason: reason().unwrap_or_else(|| "Completed".to_owned()),
            message,
            at: None,
            log_tail: None,
        }),
        PodPhase::Failed => Some(End {
            exit_code: None,
            reason: reason()
                .or_else(|| init_failure(spec, status))
                .unwrap_or_else(|| "PodFailed".to_owned()),
            message,
            at: None,
            log_tail: None,
        }),
        _ => None,
    }
}

/// The exit of a container; `pod` is the status of its pod if the pod has ended.
///
/// The reason of the pod takes precedence: the container only reports the signal that it received.
pub(super) fn container_end(ended: &ContainerStateTerminated, pod: Option<&PodStatus>) -> End {
    let pod = pod.filter(|status| status.reason.is_some());
    let has_started = ended.started_at.as_ref().and_then(real_time).is_some();
    let message = match pod {
        Some(status) => status.message.as_deref(),
        // The message of a container that has run may be a part of its log.
        None if has_started => None,
        None => ended.message.as_deref(),
    };
    let reason = pod.map_or(&ended.reason, |status| &status.reason);
    End {
        exit_code: Some(ended.exit_code),
        reason: reason.clone().unwrap_or_else(|| "Error".to_owned()),
        message: trim_message(message),
        at: ended.finished_at.as_ref().and_then(real_time),
        log_tail: ended
            .message
            .as_deref()
            .filter(|_| has_started)
            .and_then(last_lines),
    }
}

/// Maximum length of the last log lines in bytes, as that of the kubelet.
const MAX_TAIL_BYTES: usize = 2048;

/// The end of a log without control characters; `None` if it is empty.
fn last_lines(log: &str) -> Option<Box<str>> {
    let is_shown = |c: &char| !c.is_control() || matches!(c, '\n' | '\t');
    let log: String = log.chars().filter(is_shown).collect();
    let log = log.trim_end();
    let mut start = log.len().saturating_sub(MAX_TAIL_BYTES);
    while !log.is_char_boundary(start) {
        start += 1;
    }
    (!log.is_empty()).then(|| log[start..].into())
}
