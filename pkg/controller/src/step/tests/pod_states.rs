//! Pods in every state that a kubelet, the scheduler or the loss of a node causes, as the API
//! server shows them.

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::{Value, json};

use super::fake_cluster::World;

/// State of the main container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Main {
    Unscheduled,
    Creating,
    NoImage,
    /// An init container crashes repeatedly, and the kubelet waits before the next try.
    InitCrashLoop,
    /// An init container has failed, and is not restarted.
    InitFailed,
    Running,
    /// It crashes repeatedly, under a restart policy other than `Never`.
    CrashLoop,
    /// It ended with this exit code; under this policy the kubelet is about to restart it.
    Restarting(&'static str, i32),
    Exited(i32),
    OomKilled,
    /// Its exit code is unknown, because its node went down. This is the reason and the code that
    /// the kubelet reports.
    Lost(&'static str, i32),
}

/// State of the sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sidecar {
    None,
    Running,
    Exited(i32),
    /// A restartable init container: the kubelet stops it once the others have ended.
    Native,
}

/// A disruption of the pod by the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disruption {
    None,
    /// As kubelets up to 1.21 report it: without container statuses.
    Evicted,
    /// As newer kubelets report it: with the exit codes of the containers, even 0.
    EvictedWithStatus,
    /// Graceful shutdown of the node.
    Shutdown,
    /// The kubelet rejects the pod, perhaps after a restart, and removes its status.
    Rejected,
    NodeLost,
    /// A lost node, as older API servers report it.
    Unknown,
}

/// State of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub main: Main,
    pub sidecar: Sidecar,
    pub disruption: Disruption,
    pub deleting: bool,
}

pub(super) const RUNNING: State = State::of(Main::Running, Sidecar::None);

const WHEN: &str = "2027-01-15T08:00:00Z";

impl State {
    pub const fn of(main: Main, sidecar: Sidecar) -> Self {
        Self {
            main,
            sidecar,
            disruption: Disruption::None,
            deleting: false,
        }
    }

    pub const fn disrupted(self, disruption: Disruption) -> Self {
        Self { disruption, ..self }
    }

    pub const fn deleting(self) -> Self {
        Self {
            deleting: true,
            ..self
        }
    }

    /// Returns all states.
    pub fn all() -> Vec<Self> {
        let sidecars = [
            Sidecar::None,
            Sidecar::Running,
            Sidecar::Exited(0),
            Sidecar::Exited(1),
            Sidecar::Native,
        ];
        let started = [
            Main::Running,
            Main::CrashLoop,
            Main::Exited(0),
            Main::Exited(1),
            Main::OomKilled,
        ];
        let others = [
            (Main::Restarting("Always", 0), Disruption::None),
            (Main::Restarting("Always", 1), Disruption::None),
            (Main::Restarting("OnFailure", 1), Disruption::None),
            (Main::Running, Disruption::Evicted),
            (Main::Exited(0), Disruption::Shutdown),
            (Main::Exited(143), Disruption::Shutdown),
            (Main::Exited(0), Disruption::EvictedWithStatus),
            (Main::Exited(137), Disruption::EvictedWithStatus),
            (
                Main::Lost("ContainerStatusUnknown", 137),
                Disruption::EvictedWithStatus,
            ),
            (Main::Lost("ContainerStatusUnknown", 137), Disruption::None),
            (Main::Lost("Unknown", 255), Disruption::None),
            (Main::Creating, Disruption::Rejected),
            (Main::Running, Disruption::Rejected),
            (Main::Running, Disruption::NodeLost),
            (Main::Exited(0), Disruption::NodeLost),
            (Main::Exited(1), Disruption::NodeLost),
            (Main::Running, Disruption::Unknown),
            (Main::Exited(0), Disruption::Unknown),
            (Main::Exited(1), Disruption::Unknown),
        ];
        let mut all = vec![
            Self::of(Main::Unscheduled, Sidecar::None),
            Self::of(Main::Creating, Sidecar::None),
            Self::of(Main::NoImage, Sidecar::None),
            Self::of(Main::NoImage, Sidecar::Running),
            Self::of(Main::InitCrashLoop, Sidecar::None),
            Self::of(Main::InitFailed, Sidecar::None),
        ];
        let with_sidecar = |main| move |sidecar| Self::of(main, sidecar);
        all.extend(
            started
                .into_iter()
                .flat_map(|main| sidecars.map(with_sidecar(main))),
        );
        // The exit code of a sidecar does not matter for these.
        let sidecars = [Sidecar::None, Sidecar::Running, Sidecar::Native];
        let disrupted = others.into_iter();
        all.extend(disrupted.flat_map(|(main, disruption)| {
            sidecars.map(|s| Self::of(main, s).disrupted(disruption))
        }));
        let deleting: Vec<_> = all.iter().map(|state| state.deleting()).collect();
        all.extend(deleting);
        all
    }

    /// Returns true if no container can run any more.
    pub fn is_over(self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Returns true if the cluster caused its end.
    pub fn is_disrupted(self) -> bool {
        let is_hit = matches!(
            self.disruption,
            Disruption::Evicted
                | Disruption::EvictedWithStatus
                | Disruption::Shutdown
                | Disruption::Rejected
        );
        is_hit || matches!(self.main, Main::Lost(..))
    }

    /// Returns true if its main container succeeded, false if it failed and the kubelet does not
    /// restart it, else `None`.
    pub fn has_succeeded(self) -> Option<bool> {
        match (self.disruption, self.main) {
            (Disruption::Evicted | Disruption::Rejected, _)
            | (_, Main::OomKilled | Main::InitFailed | Main::Lost(..)) => Some(false),
            (_, Main::Exited(code)) => Some(code == 0),
            _ => None,
        }
    }

    /// Returns the stage that it counts as.
    pub fn stage_name(self) -> &'static str {
        match (self.has_succeeded(), self.main) {
            (Some(true), _) => "succeeded",
            (Some(false), _) => "failed",
            (None, Main::Running | Main::CrashLoop | Main::Restarting(..)) => "active",
            (None, _) => "pending",
        }
    }

    /// Returns the phase that a kubelet derives from the containers.
    fn phase(self) -> &'static str {
        let sidecar_runs = matches!(self.sidecar, Sidecar::Running | Sidecar::Native);
        match (self.disruption, self.main) {
            (Disruption::EvictedWithStatus, Main::Exited(0)) => "Succeeded",
            (
                Disruption::Evicted
                | Disruption::EvictedWithStatus
                | Disruption::Shutdown
                | Disruption::Rejected,
                _,
            ) => "Failed",
            (Disruption::Unknown, _) => "Unknown",
            (_, Main::Unscheduled | Main::Creating | Main::NoImage | Main::InitCrashLoop) => {
                "Pending"
            }
            (_, Main::InitFailed) => "Failed",
            (_, Main::Running | Main::CrashLoop | Main::Restarting(..)) => "Running",
            _ if sidecar_runs => "Running",
            (_, Main::Exited(0)) if self.sidecar != Sidecar::Exited(1) => "Succeeded",
            _ => "Failed",
        }
    }

    fn main(self) -> Value {
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        match self.main {
            Main::Unscheduled | Main::Creating => waiting("ContainerCreating"),
            Main::NoImage => waiting("ImagePullBackOff"),
            Main::InitCrashLoop | Main::InitFailed => waiting("PodInitializing"),
            Main::CrashLoop => waiting("CrashLoopBackOff"),
            Main::Running => json!({"running": {"startedAt": WHEN}}),
            Main::Exited(0) | Main::Restarting(_, 0) => exited(0, "Completed"),
            Main::Exited(code) | Main::Restarting(_, code) => exited(code, "Error"),
            Main::OomKilled => exited(137, "OOMKilled"),
            Main::Lost(reason, code) => {
                json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": null, "finishedAt": null}})
            }
        }
    }

    fn containers(self) -> Vec<Value> {
        // A pod that never ran, or was evicted by an old kubelet, has no container statuses.
        if self.main == Main::Unscheduled
            || matches!(self.disruption, Disruption::Evicted | Disruption::Rejected)
        {
            return Vec::new();
        }
        let mut all = vec![container("di-container", &self.main())];
        match self.sidecar {
            Sidecar::Running => all.push(container("side", &json!({"running": {}}))),
            Sidecar::Exited(code) => all.push(container("side", &exited(code, "Exited"))),
            Sidecar::None | Sidecar::Native => {}
        }
        all
    }

    fn conditions(self) -> Value {
        let status = |is_true: bool| if is_true { "True" } else { "False" };
        let runs = self.main == Main::Running && !self.is_over();
        let lost = self.disruption == Disruption::NodeLost;
        let ready = if lost {
            json!({"type": "Ready", "status": "False"})
        } else {
            json!({"type": "Ready", "status": status(runs), "reason": if runs { "" } else { "ContainersNotReady" }})
        };
        let mut all = vec![
            json!({"type": "PodScheduled", "status": status(self.main != Main::Unscheduled), "message": "0/3 nodes"}),
            json!({"type": "ContainersReady", "status": status(runs || lost)}),
            ready,
        ];
        if matches!(
            self.disruption,
            Disruption::Evicted | Disruption::EvictedWithStatus
        ) {
            all.push(json!({"type": "DisruptionTarget", "status": "True"}));
        }
        all.into()
    }

    fn status(self) -> Value {
        let reason = match self.disruption {
            Disruption::Evicted => Some("Evicted"),
            Disruption::EvictedWithStatus => (self.phase() == "Failed").then_some("Evicted"),
            Disruption::Shutdown => Some("Terminated"),
            Disruption::Rejected => Some("OutOfcpu"),
            Disruption::None | Disruption::NodeLost | Disruption::Unknown => None,
        };
        let init = match self.main {
            _ if self.disruption == Disruption::Rejected => None,
            Main::InitCrashLoop => Some(json!({"waiting": {"reason": "CrashLoopBackOff"}})),
            Main::InitFailed => Some(exited(1, "Error")),
            _ if self.sidecar == Sidecar::Native => Some(json!({"running": {}})),
            _ => None,
        };
        let init = init.map(|state| vec![container("first", &state)]);
        json!({
            "phase": self.phase(), "reason": reason, "conditions": self.conditions(),
            "containerStatuses": self.containers(), "initContainerStatuses": init,
        })
    }
}

fn exited(code: i32, reason: &str) -> Value {
    json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": WHEN, "finishedAt": WHEN}})
}

fn container(name: &str, state: &Value) -> Value {
    let ready = state["running"].is_object();
    json!({"name": name, "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "state": state})
}

impl World {
    /// Sets the state of a pod.
    pub fn set_state(&mut self, name: &str, state: State) {
        let now = Time(self.now);
        self.change(name, |pod: &mut Pod| {
            pod.status = serde_json::from_value(state.status()).unwrap();
            let policy = match state.main {
                Main::CrashLoop | Main::InitCrashLoop => "OnFailure",
                Main::Restarting(policy, _) => policy,
                _ => "Never",
            };
            pod.spec.as_mut().unwrap().restart_policy = Some(policy.to_owned());
            if state.deleting {
                pod.metadata.deletion_timestamp = Some(now);
            }
        });
    }
}
