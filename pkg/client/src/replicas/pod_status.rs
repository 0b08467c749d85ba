use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

/// The STATUS column of kubectl: the phase, or a more specific reason.
///
/// Follows `printPod` in kubernetes/pkg/printers/internalversion/printers.go.
pub(crate) fn display_status(pod: &Pod) -> String {
    let Some(status) = &pod.status else {
        return "Unknown".to_owned();
    };
    let phase = status.phase.as_deref().unwrap_or("Unknown");
    let mut shown = status.reason.as_deref().unwrap_or(phase).to_owned();
    let inits = status
        .init_container_statuses
        .as_deref()
        .unwrap_or_default();
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let init = init_progress(pod, inits);
    // A failed sidecar does not matter once the pod is initialized.
    let is_initialized = find_condition(pod, "Initialized").is_some_and(|c| c.status == "True");
    let initializes = init.is_some() && !is_initialized;
    if let Some(init) = init {
        shown = init;
    }
    if !initializes {
        // As in kubectl, the first container with a reason wins.
        for reason in containers.iter().rev().filter_map(container_reason) {
            shown = reason;
        }
        let any_ready = containers.iter().any(|c| c.ready && is_running(c));
        if shown == "Completed" && any_ready {
            "Running".clone_into(&mut shown);
        }
        if shown == "Pending"
            && let Some(why) = unscheduled_reason(pod)
        {
            why.clone_into(&mut shown);
        }
    }
    if pod.metadata.deletion_timestamp.is_some() {
        let lost = status.reason.as_deref() == Some("NodeLost");
        return if lost { "Unknown" } else { "Terminating" }.to_owned();
    }
    shown
}

fn init_progress(pod: &Pod, inits: &[ContainerStatus]) -> Option<String> {
    let specs = pod.spec.as_ref()?.init_containers.as_deref()?;
    for (i, init) in inits.iter().enumerate() {
        let is_sidecar = specs
            .iter()
            .any(|c| c.name == init.name && c.restart_policy.as_deref() == Some("Always"));
        let done = match init.state.as_ref().and_then(|s| s.terminated.as_ref()) {
            Some(end) => end.exit_code == 0,
            None => is_sidecar && init.started == Some(true),
        };
        if !done {
            let why = container_reason(init).filter(|reason| reason != "PodInitializing");
            let progress = format!("{i}/{}", specs.len());
            return Some(format!("Init:{}", why.unwrap_or(progress)));
        }
    }
    None
}

fn container_reason(container: &ContainerStatus) -> Option<String> {
    let state = container.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        return waiting.reason.clone().filter(|reason| !reason.is_empty());
    }
    let end = state.terminated.as_ref()?;
    match (&end.reason, end.signal) {
        (Some(reason), _) if !reason.is_empty() => Some(reason.clone()),
        (_, Some(signal)) if signal != 0 => Some(format!("Signal:{signal}")),
        _ => Some(format!("ExitCode:{}", end.exit_code)),
    }
}

fn is_running(container: &ContainerStatus) -> bool {
    container
        .state
        .as_ref()
        .is_some_and(|s| s.running.is_some())
}

fn find_condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// The reason of the scheduler for a pod without node.
fn unscheduled_reason(pod: &Pod) -> Option<&str> {
    let reason = find_condition(pod, "PodScheduled")?.reason.as_deref()?;
    ["SchedulingGated", "Unschedulable"]
        .contains(&reason)
        .then_some(reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn display_status_prefers_specific_reason() {
        let table = [
            (json!({}), "Unknown"),
            (json!({"status": {"phase": "Pending"}}), "Pending"),
            (
                json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}),
                "Unschedulable",
            ),
            (
                json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}}),
                "SchedulingGated",
            ),
            (pod_with_stopped_sidecar("True"), "Completed"),
            (pod_with_stopped_sidecar("False"), "Init:Error"),
            (
                json!({"status": {"phase": "Failed", "reason": "Evicted"}}),
                "Evicted",
            ),
            (pod_with_container(&json!({"running": {}}), true), "Running"),
            (
                pod_with_container(&json!({"waiting": {"reason": "ImagePullBackOff"}}), false),
                "ImagePullBackOff",
            ),
            (
                pod_with_container(
                    &json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
                    false,
                ),
                "OOMKilled",
            ),
            (
                pod_with_container(&json!({"terminated": {"exitCode": 3}}), false),
                "ExitCode:3",
            ),
            (
                json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}}),
                "Terminating",
            ),
            (
                json!({
                    "spec": {"containers": [], "initContainers": [{"name": "i"}, {"name": "j"}]},
                    "status": {"phase": "Pending", "initContainerStatuses": [
                        {"name": "i", "ready": true, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
                        {"name": "j", "ready": false, "restartCount": 0, "state": {"running": {}}},
                    ]},
                }),
                "Init:1/2",
            ),
        ];
        for (pod, expected) in table {
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(display_status(&pod), expected);
        }
    }

    /// A succeeded pod with a sidecar that was stopped afterwards.
    fn pod_with_stopped_sidecar(initialized: &str) -> serde_json::Value {
        let ended = |name: &str, code: i32, reason: &str| {
            json!({
                "name": name, "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "reason": reason}},
            })
        };
        json!({
            "spec": {"containers": [], "initContainers": [{"name": "i", "restartPolicy": "Always"}]},
            "status": {
                "phase": "Succeeded", "conditions": [{"type": "Initialized", "status": initialized}],
                "initContainerStatuses": [ended("i", 143, "Error")],
                "containerStatuses": [ended("c", 0, "Completed")],
            },
        })
    }

    fn pod_with_container(state: &serde_json::Value, ready: bool) -> serde_json::Value {
        json!({"status": {"phase": "Running", "containerStatuses": [
            {"name": "c", "ready": ready, "restartCount": 0, "state": state},
        ]}})
    }
}
