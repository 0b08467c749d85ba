//! Pods in every state that a kubelet, a scheduler or the loss of a node leaves them in, as the API server shows them.

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::{Value, json};

use super::world::World;

/// What the main container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Main {
    Unscheduled,
    Creating,
    NoImage,
    /// An init container fails again and again, and the kubelet waits with the next try.
    InitCrashLoop,
    /// An init container has failed, and none is started again.
    InitFailed,
    Running,
    /// Under a policy by which the kubelet starts it again.
    CrashLoop,
    /// It ended so, and under this policy the kubelet is about to start it again.
    Again(&'static str, i32),
    Exited(i32),
    OomKilled,
    /// Nobody knows how it ended: its node went down under it. This reason and code stand for that.
    Lost(&'static str, i32),
}

/// What runs beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sidecar {
    None,
    Running,
    Exited(i32),
    /// An init container that goes on, which the kubelet stops once the others have ended.
    Native,
}

/// What the cluster did to the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    None,
    /// As kubelets up to 1.21 tell of it, which forget the containers.
    Evicted,
    /// As newer ones do: the containers say how the pod ended, also if that is well.
    ThrownOut,
    /// The node shut down in order.
    Shutdown,
    /// The kubelet did not take it, or not any more, and keeps nothing of what it was.
    Rejected,
    NodeLost,
    /// As older servers said of a node that is lost.
    Unknown,
}

/// State of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub main: Main,
    pub sidecar: Sidecar,
    pub blow: Blow,
    pub deleting: bool,
}

pub(super) const RUNNING: State = State::of(Main::Running, Sidecar::None);

const WHEN: &str = "2027-01-15T08:00:00Z";

impl State {
    pub const fn of(main: Main, sidecar: Sidecar) -> Self {
        Self {
            main,
            sidecar,
            blow: Blow::None,
            deleting: false,
        }
    }

    pub const fn struck(self, blow: Blow) -> Self {
        Self { blow, ..self }
    }

    pub const fn deleting(self) -> Self {
        Self {
            deleting: true,
            ..self
        }
    }

    /// All that there are.
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
            (Main::Again("Always", 0), Blow::None),
            (Main::Again("Always", 1), Blow::None),
            (Main::Again("OnFailure", 1), Blow::None),
            (Main::Running, Blow::Evicted),
            (Main::Exited(0), Blow::Shutdown),
            (Main::Exited(143), Blow::Shutdown),
            (Main::Exited(0), Blow::ThrownOut),
            (Main::Exited(137), Blow::ThrownOut),
            (Main::Lost("ContainerStatusUnknown", 137), Blow::ThrownOut),
            (Main::Lost("ContainerStatusUnknown", 137), Blow::None),
            (Main::Lost("Unknown", 255), Blow::None),
            (Main::Creating, Blow::Rejected),
            (Main::Running, Blow::Rejected),
            (Main::Running, Blow::NodeLost),
            (Main::Exited(0), Blow::NodeLost),
            (Main::Exited(1), Blow::NodeLost),
            (Main::Running, Blow::Unknown),
            (Main::Exited(0), Blow::Unknown),
            (Main::Exited(1), Blow::Unknown),
        ];
        let mut all = vec![
            Self::of(Main::Unscheduled, Sidecar::None),
            Self::of(Main::Creating, Sidecar::None),
            Self::of(Main::NoImage, Sidecar::None),
            Self::of(Main::NoImage, Sidecar::Running),
            Self::of(Main::InitCrashLoop, Sidecar::None),
            Self::of(Main::InitFailed, Sidecar::None),
        ];
        let beside = |main| move |sidecar| Self::of(main, sidecar);
        all.extend(
            started
                .into_iter()
                .flat_map(|main| sidecars.map(beside(main))),
        );
        // How a sidecar ended makes no difference to these.
        let sidecars = [Sidecar::None, Sidecar::Running, Sidecar::Native];
        let struck = others.into_iter();
        all.extend(
            struck.flat_map(|(main, blow)| sidecars.map(|s| Self::of(main, s).struck(blow))),
        );
        let deleting: Vec<_> = all.iter().map(|state| state.deleting()).collect();
        all.extend(deleting);
        all
    }

    /// Whether none of its containers can do anything any more.
    pub fn is_over(self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// Whether its end is the cluster's doing.
    pub fn is_disrupted(self) -> bool {
        let struck = matches!(
            self.blow,
            Blow::Evicted | Blow::ThrownOut | Blow::Shutdown | Blow::Rejected
        );
        struck || matches!(self.main, Main::Lost(..))
    }

    /// Whether its main container has done its work, or has failed and is not started again by the kubelet.
    pub fn ended_well(self) -> Option<bool> {
        match (self.blow, self.main) {
            (Blow::Evicted | Blow::Rejected, _)
            | (_, Main::OomKilled | Main::InitFailed | Main::Lost(..)) => Some(false),
            (_, Main::Exited(code)) => Some(code == 0),
            _ => None,
        }
    }

    /// As what it is counted.
    pub fn counted(self) -> &'static str {
        match (self.ended_well(), self.main) {
            (Some(true), _) => "succeeded",
            (Some(false), _) => "failed",
            (None, Main::Running | Main::CrashLoop | Main::Again(..)) => "active",
            (None, _) => "pending",
        }
    }

    /// As a kubelet concludes it from the containers, unless it is told otherwise.
    fn phase(self) -> &'static str {
        let sidecar_runs = matches!(self.sidecar, Sidecar::Running | Sidecar::Native);
        match (self.blow, self.main) {
            (Blow::ThrownOut, Main::Exited(0)) => "Succeeded",
            (Blow::Evicted | Blow::ThrownOut | Blow::Shutdown | Blow::Rejected, _) => "Failed",
            (Blow::Unknown, _) => "Unknown",
            (_, Main::Unscheduled | Main::Creating | Main::NoImage | Main::InitCrashLoop) => {
                "Pending"
            }
            (_, Main::InitFailed) => "Failed",
            (_, Main::Running | Main::CrashLoop | Main::Again(..)) => "Running",
            _ if sidecar_runs => "Running",
            (_, Main::Exited(0)) if self.sidecar != Sidecar::Exited(1) => "Succeeded",
            _ => "Failed",
        }
    }

    fn main(self) -> Value {
        let waits = |reason: &str| json!({"waiting": {"reason": reason}});
        match self.main {
            Main::Unscheduled | Main::Creating => waits("ContainerCreating"),
            Main::NoImage => waits("ImagePullBackOff"),
            Main::InitCrashLoop | Main::InitFailed => waits("PodInitializing"),
            Main::CrashLoop => waits("CrashLoopBackOff"),
            Main::Running => json!({"running": {"startedAt": WHEN}}),
            Main::Exited(0) | Main::Again(_, 0) => exited(0, "Completed"),
            Main::Exited(code) | Main::Again(_, code) => exited(code, "Error"),
            Main::OomKilled => exited(137, "OOMKilled"),
            Main::Lost(reason, code) => {
                json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": null, "finishedAt": null}})
            }
        }
    }

    fn containers(self) -> Vec<Value> {
        // One that never ran there, or was thrown out by an older kubelet, has none.
        if self.main == Main::Unscheduled || matches!(self.blow, Blow::Evicted | Blow::Rejected) {
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
        let is = |holds: bool| if holds { "True" } else { "False" };
        let runs = self.main == Main::Running && !self.is_over();
        let lost = self.blow == Blow::NodeLost;
        let ready = if lost {
            json!({"type": "Ready", "status": "False"})
        } else {
            json!({"type": "Ready", "status": is(runs), "reason": if runs { "" } else { "ContainersNotReady" }})
        };
        let mut all = vec![
            json!({"type": "PodScheduled", "status": is(self.main != Main::Unscheduled), "message": "0/3 nodes"}),
            json!({"type": "ContainersReady", "status": is(runs || lost)}),
            ready,
        ];
        if matches!(self.blow, Blow::Evicted | Blow::ThrownOut) {
            all.push(json!({"type": "DisruptionTarget", "status": "True"}));
        }
        all.into()
    }

    fn status(self) -> Value {
        let reason = match self.blow {
            Blow::Evicted => Some("Evicted"),
            Blow::ThrownOut => (self.phase() == "Failed").then_some("Evicted"),
            Blow::Shutdown => Some("Terminated"),
            Blow::Rejected => Some("OutOfcpu"),
            Blow::None | Blow::NodeLost | Blow::Unknown => None,
        };
        let init = match self.main {
            _ if self.blow == Blow::Rejected => None,
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
    /// Brings a pod into a state.
    pub fn bring(&mut self, name: &str, state: State) {
        let now = Time(self.now);
        self.change(name, |pod: &mut Pod| {
            pod.status = serde_json::from_value(state.status()).unwrap();
            let policy = match state.main {
                Main::CrashLoop | Main::InitCrashLoop => "OnFailure",
                Main::Again(policy, _) => policy,
                _ => "Never",
            };
            pod.spec.as_mut().unwrap().restart_policy = Some(policy.to_owned());
            if state.deleting {
                pod.metadata.deletion_timestamp = Some(now);
            }
        });
    }
}
