use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

/// What kubectl shows as a pod's status: the phase, or the reason that says more.
pub(crate) fn of(pod: &Pod) -> String {
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
    let init = initializing(pod, inits);
    // What goes on beside the others may fail later on.
    let is_initialized = condition(pod, "Initialized").is_some_and(|c| c.status == "True");
    let initializes = init.is_some() && !is_initialized;
    if let Some(init) = init {
        shown = init;
    }
    if !initializes {
        // The first container at fault speaks for the pod, as in kubectl.
        for reason in containers.iter().rev().filter_map(reason) {
            shown = reason;
        }
        let any_ready = containers.iter().any(|c| c.ready && is_running(c));
        if shown == "Completed" && any_ready {
            "Running".clone_into(&mut shown);
        }
        if shown == "Pending"
            && let Some(why) = unscheduled(pod)
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

fn initializing(pod: &Pod, inits: &[ContainerStatus]) -> Option<String> {
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
            let why = reason(init).filter(|reason| reason != "PodInitializing");
            let progress = format!("{i}/{}", specs.len());
            return Some(format!("Init:{}", why.unwrap_or(progress)));
        }
    }
    None
}

fn reason(container: &ContainerStatus) -> Option<String> {
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

fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Why the scheduler has found no node.
fn unscheduled(pod: &Pod) -> Option<&str> {
    let reason = condition(pod, "PodScheduled")?.reason.as_deref()?;
    ["SchedulingGated", "Unschedulable"]
        .contains(&reason)
        .then_some(reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_reason_that_says_most_is_shown() {
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
            (beside_a_sidecar("True"), "Completed"),
            (beside_a_sidecar("False"), "Init:Error"),
            (
                json!({"status": {"phase": "Failed", "reason": "Evicted"}}),
                "Evicted",
            ),
            (container(&json!({"running": {}}), true), "Running"),
            (
                container(&json!({"waiting": {"reason": "ImagePullBackOff"}}), false),
                "ImagePullBackOff",
            ),
            (
                container(
                    &json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
                    false,
                ),
                "OOMKilled",
            ),
            (
                container(&json!({"terminated": {"exitCode": 3}}), false),
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
                        {"name": "i", "ready": true, "restartCount": 0, "image": "", "imageID": "", "state": {"terminated": {"exitCode": 0}}},
                        {"name": "j", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": {"running": {}}},
                    ]},
                }),
                "Init:1/2",
            ),
        ];
        for (pod, expected) in table {
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(of(&pod), expected);
        }
    }

    /// One that has ended well, after which its sidecar was stopped.
    fn beside_a_sidecar(initialized: &str) -> serde_json::Value {
        let ended = |name: &str, code: i32, reason: &str| {
            json!({
                "name": name, "ready": false, "restartCount": 0, "image": "", "imageID": "",
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

    fn container(state: &serde_json::Value, ready: bool) -> serde_json::Value {
        json!({"status": {"phase": "Running", "containerStatuses": [
            {"name": "c", "ready": ready, "restartCount": 0, "image": "", "imageID": "", "state": state},
        ]}})
    }
}
