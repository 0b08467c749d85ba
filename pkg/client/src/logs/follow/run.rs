//! Runs of containers, which have one log each.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod};
use kube::{Api, ResourceExt};

/// One run of a container: UID of its pod, its name and restart count.
pub(super) type Run = (String, String, i32);

/// State of a run whose log stream has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    /// The container still runs.
    Running,
    /// The container still runs, but its pod is being deleted. The kubelet deletes the container
    /// and its log before it reports its end.
    Terminating,
    /// The run has ended.
    Ended,
    /// The run has ended with its pod.
    PodEnded,
    /// A later run of the container has started. The log has the lines of that run.
    Restarted,
    /// The pod is deleted.
    Gone,
}

/// Reads the state of a run. Counts as running if the API server does not answer, so the log is
/// retried.
pub(super) async fn read_run_state(api: &Api<Pod>, pod: &str, run: &Run) -> RunState {
    match api.get_opt(pod).await {
        Ok(pod) => run_state(pod.as_ref(), run),
        Err(_) => RunState::Running,
    }
}

fn run_state(pod: Option<&Pod>, run: &Run) -> RunState {
    let (uid, container, _) = run;
    let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_ref() == Some(uid)) else {
        return RunState::Gone;
    };
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    let current = run_of(pod, container);
    if current.is_some_and(|current| current != *run) {
        RunState::Restarted
    } else if matches!(phase, Some("Succeeded" | "Failed")) {
        RunState::PodEnded
    } else if !is_running(pod, container) {
        RunState::Ended
    } else if pod.metadata.deletion_timestamp.is_some() {
        RunState::Terminating
    } else {
        RunState::Running
    }
}

pub(super) fn has_container(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let first = spec.init_containers.iter().flatten();
    first.chain(&spec.containers).any(|one| one.name == name)
}

fn status_of<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let first = status.init_container_statuses.iter().flatten();
    let mut all = first.chain(status.container_statuses.iter().flatten());
    all.find(|status| status.name == container)
}

fn is_running(pod: &Pod, container: &str) -> bool {
    let state = status_of(pod, container).and_then(|status| status.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

/// The current run of a container. `None` before its start, when there is no log.
pub(super) fn run_of(pod: &Pod, container: &str) -> Option<Run> {
    let status = status_of(pod, container)?;
    let state = status.state.as_ref()?;
    let last = status.last_state.as_ref();
    // A container that waits for a restart has a previous run with a readable log.
    let has_run = |state: &ContainerState| {
        let ended = state.terminated.as_ref();
        // Without a container ID the API server has no log of the run.
        ended.is_some_and(|ended| ended.container_id.as_ref().is_some_and(|id| !id.is_empty()))
    };
    let started = state.running.is_some() || has_run(state) || last.is_some_and(has_run);
    started.then(|| {
        let uid = pod.uid().unwrap_or_default();
        (uid, container.to_owned(), status.restart_count)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(uid: &str, state: &Value, restarts: i32) -> Pod {
        let statuses = json!([
            {"name": "sidecar", "ready": true, "restartCount": 9, "state": {"running": {}}},
            {"name": "di-container", "ready": true, "restartCount": restarts, "state": state},
        ]);
        di_fixtures::Pod::test("j-coordinator", "coordinator")
            .metadata(json!({"uid": uid}))
            .status(json!({"containerStatuses": statuses}))
            .build()
    }

    #[test]
    fn run_state_follows_pod_status_and_deletion() {
        let run = ("a".to_owned(), "di-container".to_owned(), 0);
        let running = pod("a", &json!({"running": {}}), 0);
        let mut deleted = running.clone();
        deleted.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-31T12:00:00Z")).unwrap();
        let mut failed = running.clone();
        failed.status.as_mut().unwrap().phase = Some("Failed".to_owned());
        let replaced = pod("b", &json!({"running": {}}), 0);
        for (pod, state) in [
            (Some(&running), RunState::Running),
            (Some(&deleted), RunState::Terminating),
            (
                Some(&pod("a", &json!({"terminated": {"exitCode": 0}}), 0)),
                RunState::Ended,
            ),
            (
                Some(&pod("a", &json!({"running": {}}), 1)),
                RunState::Restarted,
            ),
            (Some(&failed), RunState::PodEnded),
            (Some(&replaced), RunState::Gone),
            (None, RunState::Gone),
        ] {
            assert_eq!(run_state(pod, &run), state, "{pod:?}");
        }
    }

    #[test]
    fn run_is_identified_by_pod_and_restart_count() {
        let run_of_pod = |pod: &Pod| run_of(pod, "di-container");
        assert_eq!(run_of_pod(&pod("a", &json!({"waiting": {}}), 0)), None);
        let first = run_of_pod(&pod("a", &json!({"running": {}}), 0));
        let expected = ("a".to_owned(), "di-container".to_owned(), 0);
        assert_eq!(first, Some(expected));
        // The same run after its end.
        let ended = json!({"terminated": {"exitCode": 0, "containerID": "containerd://1"}});
        assert_eq!(run_of_pod(&pod("a", &ended, 0)), first);
        let unknown = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}});
        assert_eq!(run_of_pod(&pod("a", &unknown, 0)), None);
        assert_ne!(run_of_pod(&pod("a", &json!({"running": {}}), 1)), first);
        let mut waiting = pod("a", &json!({"waiting": {}}), 0);
        let status = waiting.status.as_mut().unwrap();
        let containers = status.container_statuses.as_mut().unwrap();
        let last = json!({"terminated": {"exitCode": 1, "containerID": "containerd://1"}});
        containers[1].last_state = serde_json::from_value(last).unwrap();
        assert_eq!(run_of_pod(&waiting), first, "its previous run");
        assert_ne!(run_of_pod(&pod("b", &json!({"running": {}}), 0)), first);
        assert_eq!(run_of(&Pod::default(), "di-container"), None);
    }
}
