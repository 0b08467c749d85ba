//! Containers that exit repeatedly.

use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateTerminated, ContainerStatus, PodSpec, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::status::{End, RESTARTING, RestartPolicy, container_end, is_sidecar, real_time};

/// A kubelet restarts a container without a delay if it ran at least this long. See [container
/// restarts](https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-restarts).
const BACKOFF_RESET_SECONDS: i64 = 600;

/// A container that exits repeatedly, and that its kubelet restarts with a backoff.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashLoop {
    /// Name of the container.
    pub container: String,
    /// Its last exit.
    pub end: End,
}

/// The first container of a pod that exits repeatedly.
///
/// The kubelet reports `CrashLoopBackOff` only some time after an exit.
pub(super) fn find_crash_loop(spec: &PodSpec, status: &PodStatus) -> Option<CrashLoop> {
    let ended = |state: Option<&ContainerState>| state?.terminated.clone();
    let inits = status.init_container_statuses.iter().flatten();
    let inits = inits.map(|init| {
        let end = ended(init.state.as_ref());
        // The pod has not started while an init container runs again.
        let previous = || ended(init.last_state.as_ref()).filter(|_| !is_sidecar(spec, &init.name));
        (init, end.or_else(previous))
    });
    let containers = status.container_statuses.iter().flatten();
    let containers = containers.map(|container| (container, ended(container.state.as_ref())));
    inits.chain(containers).find_map(|(container, ended)| {
        let end = crash_loop_end(spec, container, &ended?)?;
        let container = container.name.clone();
        Some(CrashLoop { container, end })
    })
}

/// The exit of a container that was restarted before and now ended too soon to be restarted
/// without a delay.
fn crash_loop_end(
    spec: &PodSpec,
    container: &ContainerStatus,
    ended: &ContainerStateTerminated,
) -> Option<End> {
    let time = |at: &Option<Time>| at.as_ref().and_then(real_time);
    let run = time(&ended.started_at).zip(time(&ended.finished_at));
    let is_short = run.is_none_or(|(started, finished)| {
        finished.duration_since(started).as_secs() < BACKOFF_RESET_SECONDS
    });
    let code = ended.exit_code;
    let policy = RestartPolicy::of_container(spec, &container.name, Some(code));
    let is_restarted = policy.should_restart(code);
    let is_repeated = container.restart_count > 0 && ended.reason.as_deref() != Some(RESTARTING);
    (is_short && is_restarted && is_repeated).then(|| container_end(ended, None))
}
