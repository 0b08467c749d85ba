use serde_json::{Value, json};

use super::*;

fn view(status: &Value) -> PodView {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "labels": {"dijob-name": "j"}},
        "status": status,
    }));
    PodView::new(&pod.unwrap()).unwrap()
}

fn running(ready: &Value, containers: &str) -> Value {
    json!({"phase": "Running", "conditions": [ready, {"type": "ContainersReady", "status": containers}]})
}

#[test]
fn a_pod_whose_node_does_not_answer_is_unknown() {
    let left = json!({"type": "Ready", "status": "False"});
    for status in [
        running(&left, "True"),
        json!({"phase": "Running", "reason": "NodeLost"}),
        json!({"phase": "Unknown"}),
    ] {
        let view = view(&status);
        assert_eq!(view.phase, PodPhase::Unknown, "{status}");
        assert_eq!(view.stage(), Stage::Active, "{status}");
        assert!(view.uses_cluster(), "{status}");
    }
}

#[test]
fn a_pod_that_its_kubelet_finds_not_ready_runs() {
    let unready = |reason: &str| json!({"type": "Ready", "status": "False", "reason": reason});
    for status in [
        running(&json!({"type": "Ready", "status": "True"}), "True"),
        running(&unready("ContainersNotReady"), "False"),
        running(&unready("ReadinessGatesNotReady"), "True"),
    ] {
        assert_eq!(view(&status).phase, PodPhase::Running, "{status}");
    }
}

#[test]
fn what_has_ended_stays_so_on_a_lost_node() {
    let status = json!({"phase": "Failed", "reason": "NodeLost"});
    assert_eq!(view(&status).phase, PodPhase::Failed);
}
