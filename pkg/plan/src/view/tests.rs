mod crash_loop;
mod gang;

use std::net::IpAddr;

use serde_json::{Value, json};

use super::*;

fn pod_view(spec: &Value, status: &Value) -> PodView {
    let pod = di_fixtures::Pod::test("p", "collector");
    PodView::new(&pod.spec(spec.clone()).status(status.clone()).build()).unwrap()
}

fn pod_with_status(status: &Value) -> PodView {
    pod_view(&json!({}), status)
}

fn running_status(ready: &Value, containers: &str) -> Value {
    json!({"phase": "Running", "conditions": [ready, {"type": "ContainersReady", "status": containers}]})
}

#[test]
fn pod_on_unresponsive_node_is_unknown() {
    let left = json!({"type": "Ready", "status": "False"});
    for status in [
        running_status(&left, "True"),
        json!({"phase": "Running", "reason": "NodeLost"}),
        json!({"phase": "Unknown"}),
    ] {
        let view = pod_with_status(&status);
        assert_eq!(view.phase, PodPhase::Unknown, "{status}");
        assert_eq!(view.stage(), Stage::Active, "{status}");
        assert!(view.is_active(), "{status}");
    }
}

#[test]
fn unready_pod_is_running() {
    let unready = |reason: &str| json!({"type": "Ready", "status": "False", "reason": reason});
    for status in [
        running_status(&json!({"type": "Ready", "status": "True"}), "True"),
        running_status(&unready("ContainersNotReady"), "False"),
        running_status(&unready("ReadinessGatesNotReady"), "True"),
    ] {
        assert_eq!(
            pod_with_status(&status).phase,
            PodPhase::Running,
            "{status}"
        );
    }
}

#[test]
fn failed_pod_on_lost_node_stays_failed() {
    let status = json!({"phase": "Failed", "reason": "NodeLost"});
    assert_eq!(pod_with_status(&status).phase, PodPhase::Failed);
}

#[test]
fn pod_without_node_or_with_host_network_has_no_ips() {
    let status = json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]});
    let own: [IpAddr; 2] = ["10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap());
    for (spec, expected) in [
        (json!({"nodeName": "n"}), Some(&own[..])),
        (json!({}), None),
        (
            json!({"nodeName": "n", "hostNetwork": true}),
            Some(&own[..0]),
        ),
    ] {
        assert_eq!(pod_view(&spec, &status).ips.as_deref(), expected, "{spec}");
    }
}

fn terminated(reason: &str, code: i32) -> Value {
    json!({"terminated": {"reason": reason, "exitCode": code}})
}

fn container_status(name: &str, state: &Value) -> Value {
    json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

/// A pod with `restartPolicy: Never`, a main container and a sidecar in these states.
fn with_sidecar(main: &Value, sidecar: &Value) -> PodView {
    let containers = [("sidecar", sidecar), ("di-container", main)]
        .map(|(name, state)| container_status(name, state));
    pod_view(
        &json!({"restartPolicy": "Never"}),
        &json!({"phase": "Running", "containerStatuses": containers}),
    )
}

#[test]
fn f5_exit_code_decides_stage_regardless_of_reason() {
    let runs = json!({"running": {}});
    for reason in [
        "Completed",
        "Error",
        "OOMKilled",
        "ContainerCannotRun",
        "ContainerStatusUnknown",
        "DeadlineExceeded",
        "Evicted",
        "StartError",
        "",
    ] {
        for (code, stage) in [
            (0, Stage::Succeeded),
            (1, Stage::Failed),
            (137, Stage::Failed),
        ] {
            let view = with_sidecar(&terminated(reason, code), &runs);
            assert_eq!(view.stage(), stage, "{reason} {code}");
        }
    }
}

#[test]
fn pod_that_ended_before_eviction_is_not_disrupted() {
    let (before, at, after) = (
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:01Z",
        "2026-01-01T00:00:02Z",
    );
    for (chosen, expected) in [
        (json!(before), true),
        (json!(at), true),
        (json!(after), false),
        (json!(null), true),
    ] {
        let end = json!({"terminated": {"reason": "Completed", "exitCode": 0, "finishedAt": at}});
        let status = json!({
            "phase": "Running", "containerStatuses": [container_status("di-container", &end)],
            "conditions": [{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": chosen}],
        });
        assert_eq!(pod_with_status(&status).disrupted, expected, "{chosen}");
    }
}

#[test]
fn pod_ended_by_cluster_is_disrupted() {
    let none = json!([]);
    let main = |reason: &str, code: i32| {
        json!([container_status("di-container", &terminated(reason, code))])
    };
    let initialized = json!([container_status("data", &terminated("Completed", 0))]);
    for (reason, containers, inits, expected) in [
        (json!(null), main("Error", 1), &none, false),
        (json!("Evicted"), main("Error", 137), &none, true),
        (json!("Evicted"), none.clone(), &none, true),
        // Rejected by the kubelet.
        (json!("UnexpectedAdmissionError"), none.clone(), &none, true),
        (json!("OutOfnvidia.com/gpu"), json!(null), &none, true),
        // Every kubelet rejects it.
        (json!("SysctlForbidden"), none.clone(), &none, false),
        // Its deadline passed before it ran.
        (json!("DeadlineExceeded"), none.clone(), &none, false),
        (json!(null), none.clone(), &none, false),
        (json!("Other"), none.clone(), &initialized, false),
        (json!("Other"), main("Error", 1), &none, false),
        // Its node failed.
        (json!(null), main("Unknown", 255), &none, true),
        (
            json!(null),
            main("ContainerStatusUnknown", 137),
            &none,
            true,
        ),
        (json!(null), main("Error", 255), &none, false),
        (json!(null), main("Unknown", 1), &none, false),
    ] {
        let status = json!({
            "phase": "Failed", "reason": reason, "containerStatuses": containers, "initContainerStatuses": inits,
        });
        assert_eq!(pod_with_status(&status).disrupted, expected, "{status}");
    }
}

#[test]
fn eviction_for_own_disk_limit_counts_as_failure() {
    for (message, expected) in [
        (
            "The node was low on resource: ephemeral-storage. Container di-container was using 9Gi, which exceeds its request of 0. ",
            false,
        ),
        ("The node had condition: [DiskPressure]. ", false),
        (
            "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
            true,
        ),
        (
            r#"Container di-container exceeded its local ephemeral storage limit "1Gi". "#,
            true,
        ),
        (
            r#"Usage of EmptyDir volume "replay" exceeds the limit "1Gi". "#,
            true,
        ),
    ] {
        let status = json!({
            "phase": "Failed", "reason": "Evicted", "message": message,
            "containerStatuses": [container_status("di-container", &terminated("Error", 137))],
        });
        let view = pod_with_status(&status);
        // An eviction is a disruption for any reason.
        assert!(view.disrupted, "{message}");
        assert_eq!(view.counts_as_failure(), expected, "{message}");
    }
}

#[test]
fn f6_main_container_decides_stage_despite_sidecars() {
    let runs = json!({"running": {}});
    for sidecar in [
        runs.clone(),
        terminated("Completed", 0),
        terminated("Error", 1),
    ] {
        let stage = |main: &Value| with_sidecar(main, &sidecar).stage();
        assert_eq!(stage(&runs), Stage::Active, "{sidecar}");
        assert_eq!(
            stage(&terminated("Completed", 0)),
            Stage::Succeeded,
            "{sidecar}"
        );
        assert_eq!(stage(&terminated("Error", 1)), Stage::Failed, "{sidecar}");
    }
}

#[test]
fn container_that_cannot_start_has_no_start_time() {
    let (zero, later) = ("1970-01-01T00:00:00Z", "2026-01-01T00:00:10Z");
    let runs = json!({"running": {}});
    let view = |started: &str| {
        let end = json!({"terminated": {
            "reason": "StartError", "exitCode": 128, "startedAt": started, "finishedAt": later,
        }});
        with_sidecar(&end, &runs)
    };
    let never = view(zero);
    assert_eq!((never.stage(), never.started), (Stage::Failed, None));
    assert_eq!(never.end.unwrap().at, later.parse().ok());
    let once = "2026-01-01T00:00:09Z";
    assert_eq!(view(once).started, once.parse().ok());
}

#[test]
fn restart_rules_of_main_container_override_policy() {
    let policy = |pod_policy: &str, own: Value, code: Option<i32>| {
        let mut main = own;
        main["name"] = json!("di-container");
        let state = code.map_or(json!({}), |code| terminated("Error", code));
        let containers = json!([{"name": "sidecar", "restartPolicy": "Always"}, main]);
        let statuses = json!([container_status("di-container", &state)]);
        pod_view(
            &json!({"restartPolicy": pod_policy, "containers": containers}),
            &json!({"phase": "Running", "containerStatuses": statuses}),
        )
        .restart_policy
    };
    let rules = |action: &str| {
        let rule = json!({"action": action, "exitCodes": {"operator": "In", "values": [42]}});
        json!({"restartPolicy": "Never", "restartPolicyRules": [rule]})
    };
    let own_rules = rules("Restart");
    let with_all = rules("RestartAllContainers");
    let on_failure = json!({"restartPolicy": "OnFailure"});
    for (pod_policy, own, code, expected) in [
        ("Never", json!({}), None, RestartPolicy::Never),
        (
            "Never",
            json!({"restartPolicy": ""}),
            None,
            RestartPolicy::Never,
        ),
        ("Never", on_failure, None, RestartPolicy::OnFailure),
        (
            "Always",
            json!({"restartPolicy": "Never"}),
            None,
            RestartPolicy::Never,
        ),
        ("Never", own_rules.clone(), None, RestartPolicy::OnFailure),
        ("Never", own_rules.clone(), Some(42), RestartPolicy::Always),
        ("Never", own_rules, Some(1), RestartPolicy::Never),
        ("Never", with_all, Some(42), RestartPolicy::Always),
    ] {
        let found = policy(pod_policy, own.clone(), code);
        assert_eq!(found, expected, "{pod_policy} {own} {code:?}");
    }
}

#[test]
fn restart_of_all_containers_is_not_an_end() {
    let main = terminated("RestartingAllContainers", 137);
    assert_eq!(
        with_sidecar(&main, &json!({"running": {}})).stage(),
        Stage::Active
    );
    let failed =
        json!({"phase": "Failed", "containerStatuses": [container_status("di-container", &main)]});
    assert_eq!(pod_with_status(&failed).stage(), Stage::Failed);
}

#[test]
fn end_has_kubelet_message_if_container_has_no_log() {
    let later = "2026-01-01T00:00:10Z";
    let low = "The node was low on resource: memory. ";
    let main = |reason: &str, started: Option<&str>, message: &str| {
        let ended = json!({
            "reason": reason, "exitCode": 128, "startedAt": started, "finishedAt": later, "message": message,
        });
        json!([container_status(
            "di-container",
            &json!({"terminated": ended})
        )])
    };
    let (zero, log) = (Some("1970-01-01T00:00:00Z"), "Traceback");
    for (reason, message, containers, expected) in [
        (
            "Evicted",
            low,
            json!([]),
            "Evicted: The node was low on resource: memory",
        ),
        (
            "Evicted",
            low,
            main("Error", Some(later), log),
            "Evicted (exit code 128): The node was low on resource: memory",
        ),
        (
            "",
            "",
            main("Error", Some(later), log),
            "Error (exit code 128)",
        ),
        (
            "",
            "",
            main("StartError", zero, "no such file"),
            "StartError (exit code 128): no such file",
        ),
        (
            "",
            "",
            main("ContainerStatusUnknown", None, "container not found"),
            "ContainerStatusUnknown (exit code 128): container not found",
        ),
        (
            "",
            low,
            json!([]),
            "PodFailed: The node was low on resource: memory",
        ),
    ] {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let status = json!({
            "phase": "Failed", "reason": some(reason), "message": some(message), "containerStatuses": containers,
        });
        let end = pod_with_status(&status).end.unwrap();
        assert_eq!(end.to_string(), expected, "{status}");
    }
    let verbose = json!({"phase": "Failed", "reason": "Evicted", "message": "é".repeat(1000)});
    let message = pod_with_status(&verbose).end.unwrap().message.unwrap();
    assert!(
        message.len() < 310 && message.ends_with("é..."),
        "{message}"
    );
}

#[test]
fn ended_pod_is_not_stuck() {
    let waits = json!({"waiting": {"reason": "ImagePullBackOff"}});
    let stuck = |phase: &str| {
        let inits = json!([container_status("data", &waits)]);
        let view = pod_with_status(&json!({"phase": phase, "initContainerStatuses": inits}));
        view.stuck_reason().map(|(reason, _)| reason)
    };
    assert_eq!(stuck("Pending"), Some(di_api::Reason::ImagePullBackOff));
    assert_eq!(stuck("Failed"), None);
    assert_eq!(stuck("Succeeded"), None);
}

#[test]
fn log_tail_is_end_of_log_without_control_characters() {
    let tail = |message: &str, started: Option<&str>| {
        let mut state = terminated("Error", 2);
        state["terminated"]["message"] = json!(message);
        state["terminated"]["startedAt"] = json!(started);
        let main = container_status("di-container", &state);
        let status = json!({"phase": "Failed", "containerStatuses": [main]});
        pod_with_status(&status).end.unwrap().log_tail
    };
    let started = Some("2026-01-01T00:00:00Z");
    let log = "\u{1b}[31musage: train\n\terror: \r\u{7}--pcae\n\n";
    let tail_of_log = tail(log, started);
    assert_eq!(
        tail_of_log.as_deref(),
        Some("[31musage: train\n\terror: --pcae")
    );
    assert_eq!(tail(log, None), None, "a message of the kubelet");
    assert_eq!(tail("\n", started), None);
    let shortened = tail(&format!("{}end", "é".repeat(3000)), started).unwrap();
    assert!(
        shortened.len() <= 2048 && shortened.ends_with("éend"),
        "{shortened}"
    );
}

#[test]
fn finalizers_count_after_end_of_containers() {
    for (deleted, grace, expected) in [
        (true, Some(0), Some("example.com/a, example.com/b")),
        (true, Some(30), None),
        (false, None, None),
    ] {
        let pod = di_fixtures::Pod::test("p", "collector").metadata(json!({
            "finalizers": ["example.com/a", "example.com/b"],
            "deletionTimestamp": deleted.then_some("2026-01-01T00:00:00Z"),
            "deletionGracePeriodSeconds": grace,
        }));
        let pod = PodView::new(&pod.build()).unwrap();
        assert_eq!(pod.finalizers.as_deref(), expected, "{deleted} {grace:?}");
    }
}

#[test]
fn failed_init_container_is_named_as_reason() {
    let init = |name: &str, code: i32| container_status(name, &terminated("Error", code));
    // A sidecar ends by a signal, which is not a failure.
    let spec = json!({"initContainers": [
        {"name": "proxy", "restartPolicy": "Always"}, {"name": "data"}, {"name": "check"},
    ]});
    let statuses = [init("proxy", 143), init("data", 0), init("check", 3)];
    let status = json!({"phase": "Failed", "initContainerStatuses": statuses});
    let end = pod_view(&spec, &status).end.unwrap();
    assert_eq!(
        end.to_string(),
        "init container check ended with exit code 3"
    );
    assert!(!end.has_succeeded());
}
