use std::net::IpAddr;

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

#[test]
fn a_pod_has_the_addresses_that_a_kubelet_told_of_it() {
    let addresses = |spec: &Value| {
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {"dijob-name": "j"}},
            "spec": spec,
            "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        }));
        PodView::new(&pod.unwrap()).unwrap().ips
    };
    let own: [IpAddr; 2] = ["10.0.0.1", "fd00::1"].map(|ip| ip.parse().unwrap());
    for (spec, expected) in [
        (json!({"nodeName": "n", "containers": []}), Some(&own[..])),
        (json!({"containers": []}), None),
        (
            json!({"nodeName": "n", "hostNetwork": true, "containers": []}),
            Some(&own[..0]),
        ),
    ] {
        assert_eq!(addresses(&spec).as_deref(), expected, "{spec}");
    }
}

fn ended(reason: &str, code: i32) -> Value {
    json!({"terminated": {"reason": reason, "exitCode": code}})
}

fn container(name: &str, state: &Value) -> Value {
    json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

/// A pod that is not started again, whose sidecar is in this state too.
fn with_sidecar(main: &Value, sidecar: &Value) -> PodView {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "labels": {"dijob-name": "j"}},
        "spec": {"restartPolicy": "Never", "containers": []},
        "status": {"phase": "Running", "containerStatuses": [
            container("sidecar", sidecar), container("di-container", main),
        ]},
    }));
    PodView::new(&pod.unwrap()).unwrap()
}

#[test]
fn f5_how_a_container_ended_is_told_by_its_exit_code_whatever_the_reason() {
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
            let view = with_sidecar(&ended(reason, code), &runs);
            assert_eq!(view.stage(), stage, "{reason} {code}");
        }
    }
}

#[test]
fn one_that_had_ended_before_was_not_the_clusters_to_end() {
    let (before, at, after) = (
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:01Z",
        "2026-01-01T00:00:02Z",
    );
    for (chosen, is_so) in [
        (json!(before), true),
        (json!(at), true),
        (json!(after), false),
        (json!(null), true),
    ] {
        let end = json!({"terminated": {"reason": "Completed", "exitCode": 0, "finishedAt": at}});
        let status = json!({
            "phase": "Running", "containerStatuses": [container("di-container", &end)],
            "conditions": [{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": chosen}],
        });
        assert_eq!(view(&status).disrupted, is_so, "{chosen}");
    }
}

#[test]
fn what_nobody_in_a_pod_brought_about_is_the_clusters_doing() {
    let none = json!([]);
    let main = |reason: &str, code: i32| json!([container("di-container", &ended(reason, code))]);
    let initialized = json!([container("data", &ended("Completed", 0))]);
    for (reason, containers, inits, is_so) in [
        (json!(null), main("Error", 1), &none, false),
        (json!("Evicted"), main("Error", 137), &none, true),
        (json!("Evicted"), none.clone(), &none, true),
        // Its kubelet did not take it.
        (json!("UnexpectedAdmissionError"), none.clone(), &none, true),
        (json!("OutOfnvidia.com/gpu"), json!(null), &none, true),
        // Any other would not either.
        (json!("SysctlForbidden"), none.clone(), &none, false),
        // Its own time was over before it ran.
        (json!("DeadlineExceeded"), none.clone(), &none, false),
        (json!(null), none.clone(), &none, false),
        (json!("Other"), none.clone(), &initialized, false),
        (json!("Other"), main("Error", 1), &none, false),
        // Its node went down.
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
        assert_eq!(view(&status).disrupted, is_so, "{status}");
    }
}

#[test]
fn who_is_evicted_for_its_own_limit_is_to_blame() {
    for (message, is_so) in [
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
            "containerStatuses": [container("di-container", &ended("Error", 137))],
        });
        let view = view(&status);
        // It was told to go, whatever for.
        assert!(view.disrupted, "{message}");
        assert_eq!(view.is_to_blame(), is_so, "{message}");
    }
}

#[test]
fn f6_the_end_of_the_main_container_is_the_end_whatever_its_sidecars_do() {
    let runs = json!({"running": {}});
    for sidecar in [runs.clone(), ended("Completed", 0), ended("Error", 1)] {
        let of = |main: &Value| with_sidecar(main, &sidecar).stage();
        assert_eq!(of(&runs), Stage::Active, "{sidecar}");
        assert_eq!(of(&ended("Completed", 0)), Stage::Succeeded, "{sidecar}");
        assert_eq!(of(&ended("Error", 1)), Stage::Failed, "{sidecar}");
    }
}

#[test]
fn one_that_could_not_be_started_has_not_run() {
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
fn the_main_container_may_be_started_again_where_others_are_not() {
    let policy = |of_the_pod: &str, own: Value, code: Option<i32>| {
        let mut main = own;
        main["name"] = json!("di-container");
        let state = code.map_or(json!({}), |code| ended("Error", code));
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {"dijob-name": "j"}},
            "spec": {"restartPolicy": of_the_pod, "containers": [{"name": "sidecar", "restartPolicy": "Always"}, main]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "di-container", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state},
            ]},
        }));
        PodView::new(&pod.unwrap()).unwrap().restart_policy
    };
    let rules = |action: &str| {
        let rule = json!({"action": action, "exitCodes": {"operator": "In", "values": [42]}});
        json!({"restartPolicy": "Never", "restartPolicyRules": [rule]})
    };
    let own_rules = rules("Restart");
    let with_all = rules("RestartAllContainers");
    let on_failure = json!({"restartPolicy": "OnFailure"});
    for (of_the_pod, own, code, expected) in [
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
        let found = policy(of_the_pod, own.clone(), code);
        assert_eq!(found, expected, "{of_the_pod} {own} {code:?}");
    }
}

#[test]
fn one_that_is_started_again_with_all_others_of_its_pod_has_not_ended() {
    let main = ended("RestartingAllContainers", 137);
    assert_eq!(
        with_sidecar(&main, &json!({"running": {}})).stage(),
        Stage::Active
    );
    let over = json!({"phase": "Failed", "containerStatuses": [container("di-container", &main)]});
    assert_eq!(view(&over).stage(), Stage::Failed);
}

#[test]
fn an_end_tells_what_its_kubelet_says_where_no_log_can() {
    let later = "2026-01-01T00:00:10Z";
    let low = "The node was low on resource: memory. ";
    let main = |reason: &str, started: Option<&str>, message: &str| {
        let ended = json!({
            "reason": reason, "exitCode": 128, "startedAt": started, "finishedAt": later, "message": message,
        });
        json!([container("di-container", &json!({"terminated": ended}))])
    };
    let (zero, log) = (Some("1970-01-01T00:00:00Z"), "Traceback");
    for (reason, message, containers, told) in [
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
            main("ContainerStatusUnknown", None, "it is not there"),
            "ContainerStatusUnknown (exit code 128): it is not there",
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
        let end = view(&status).end.unwrap();
        assert_eq!(end.to_string(), told, "{status}");
    }
    let wordy = json!({"phase": "Failed", "reason": "Evicted", "message": "é".repeat(1000)});
    let message = view(&wordy).end.unwrap().message.unwrap();
    assert!(
        message.len() < 310 && message.ends_with("é..."),
        "{message}"
    );
}

#[test]
fn one_that_has_ended_is_not_stuck_whatever_its_containers_waited_for() {
    let waits = json!({"waiting": {"reason": "ImagePullBackOff"}});
    let stuck = |phase: &str| {
        let inits = json!([container("data", &waits)]);
        let view = view(&json!({"phase": phase, "initContainerStatuses": inits}));
        view.stuck().map(|(reason, _)| reason)
    };
    assert_eq!(stuck("Pending"), Some(di_api::Reason::ImagePullBackOff));
    assert_eq!(stuck("Failed"), None);
    assert_eq!(stuck("Succeeded"), None);
}

#[test]
fn one_that_has_ended_again_is_told_from_one_that_is_started_at_once() {
    let again = |policy: &str, restarts: i32, ended: &Value| {
        let mut main = container("di-container", ended);
        main["restartCount"] = json!(restarts);
        let pod = json!({
            "metadata": {"name": "p", "labels": {"dijob-name": "j"}},
            "spec": {"containers": [{"name": "di-container"}], "restartPolicy": policy},
            "status": {"phase": "Running", "containerStatuses": [main]},
        });
        let pod = PodView::new(&serde_json::from_value(pod).unwrap()).unwrap();
        assert_eq!(pod.stuck(), None, "its kubelet has not said so");
        pod.ended_again.map(|end| end.to_string())
    };
    let failed = ended("Error", 2);
    let told = Some("Error (exit code 2)".to_owned());
    assert_eq!(again("Always", 1, &failed), told);
    assert_eq!(again("OnFailure", 7, &failed), told);
    let done = ended("Completed", 0);
    assert!(again("Always", 1, &done).is_some());
    assert_eq!(again("Always", 0, &failed), None);
    assert_eq!(again("OnFailure", 1, &done), None);
    assert_eq!(again("Never", 1, &failed), None);
    let with_others = ended("RestartingAllContainers", 2);
    assert_eq!(again("Always", 1, &with_others), None);
    for (finished, is_told) in [
        ("2026-01-01T00:09:59Z", true),
        ("2026-01-01T00:10:00Z", false),
    ] {
        let mut ran = failed.clone();
        ran["terminated"]["startedAt"] = json!("2026-01-01T00:00:00Z");
        ran["terminated"]["finishedAt"] = json!(finished);
        assert_eq!(again("Always", 1, &ran).is_some(), is_told, "{finished}");
    }
}

#[test]
fn a_failed_init_container_is_named() {
    let init = |name: &str, code: i32| container(name, &ended("Error", code));
    // One that goes on beside the others ends by a signal, and is not to blame.
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "labels": {"dijob-name": "j"}},
        "spec": {"containers": [], "initContainers": [
            {"name": "proxy", "restartPolicy": "Always"}, {"name": "data"}, {"name": "check"},
        ]},
        "status": {"phase": "Failed", "initContainerStatuses": [
            init("proxy", 143), init("data", 0), init("check", 3),
        ]},
    }));
    let end = PodView::new(&pod.unwrap()).unwrap().end.unwrap();
    assert_eq!(
        end.to_string(),
        "init container check ended with exit code 3"
    );
    assert!(!end.succeeded());
}
