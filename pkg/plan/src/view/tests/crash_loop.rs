//! Pods whose containers end again and again.

use super::*;

#[test]
fn repeated_short_exit_is_crash_loop() {
    let crash_loop = |policy: &str, restarts: i32, ended: &Value| {
        let mut main = container_status("di-container", ended);
        main["restartCount"] = json!(restarts);
        let pod = pod_view(
            &json!({"restartPolicy": policy}),
            &json!({"phase": "Running", "containerStatuses": [main]}),
        );
        assert_eq!(pod.stuck_reason(), None, "not reported by the kubelet");
        pod.crash_loop.map(|crash_loop| crash_loop.end.to_string())
    };
    let failed = terminated("Error", 2);
    let expected = Some("Error (exit code 2)".to_owned());
    assert_eq!(crash_loop("Always", 1, &failed), expected);
    assert_eq!(crash_loop("OnFailure", 7, &failed), expected);
    let done = terminated("Completed", 0);
    assert!(crash_loop("Always", 1, &done).is_some());
    assert_eq!(crash_loop("Always", 0, &failed), None);
    assert_eq!(crash_loop("OnFailure", 1, &done), None);
    assert_eq!(crash_loop("Never", 1, &failed), None);
    let with_others = terminated("RestartingAllContainers", 2);
    assert_eq!(crash_loop("Always", 1, &with_others), None);
    for (finished, expected) in [
        ("2026-01-01T00:09:59Z", true),
        ("2026-01-01T00:10:00Z", false),
    ] {
        let mut ran = failed.clone();
        ran["terminated"]["startedAt"] = json!("2026-01-01T00:00:00Z");
        ran["terminated"]["finishedAt"] = json!(finished);
        assert_eq!(
            crash_loop("Always", 1, &ran).is_some(),
            expected,
            "{finished}"
        );
    }
}

#[test]
fn crash_loop_of_other_container_is_found() {
    let again = |name: &str, state: &Value, last: &Value| {
        let mut container = container_status(name, state);
        container["restartCount"] = json!(1);
        container["lastState"] = last.clone();
        container
    };
    let (runs, failed) = (json!({"running": {}}), terminated("Error", 3));
    let waiting = again(
        "di-container",
        &json!({"waiting": {"reason": "PodInitializing"}}),
        &json!({}),
    );
    let running = again("di-container", &runs, &failed);
    let spec = json!({
        "restartPolicy": "OnFailure",
        "initContainers": [{"name": "data"}, {"name": "proxy", "restartPolicy": "Always"}],
        "containers": [{"name": "di-container"}, {"name": "board"}],
    });
    for (inits, containers, expected) in [
        (
            vec![again("data", &failed, &json!({}))],
            vec![&waiting],
            Some("data"),
        ),
        // It runs again, and the pod has not started.
        (
            vec![again("data", &runs, &failed)],
            vec![&waiting],
            Some("data"),
        ),
        (
            vec![again("data", &terminated("Completed", 0), &failed)],
            vec![&running],
            None,
        ),
        (
            vec![again("proxy", &failed, &json!({}))],
            vec![&running],
            Some("proxy"),
        ),
        (vec![again("proxy", &runs, &failed)], vec![&running], None),
        (
            vec![],
            vec![&running, &again("board", &failed, &json!({}))],
            Some("board"),
        ),
        (vec![], vec![&running], None),
    ] {
        let status = json!({
            "phase": "Pending", "initContainerStatuses": inits, "containerStatuses": containers,
        });
        let crash_loop = pod_view(&spec, &status).crash_loop;
        let container = crash_loop.map(|crash_loop| crash_loop.container);
        assert_eq!(container.as_deref(), expected, "{status}");
    }
}
