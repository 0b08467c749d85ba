//! Failures that are stored in the job.

use di_apiserver_tests::Job;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::plugin::Plugin;

fn failure(pod: &str, role: &str, code: i32, count: i32, action: &str) -> Value {
    json!({
        "pod": pod, "role": role, "uid": "u", "node": "node-1", "exitCode": code,
        "reason": "Error", "at": "2026-01-01T00:00:00Z", "count": count, "action": action,
        "tail": format!("usage: train\nerror: code {code}"),
    })
}

/// Creates a failed job without pods.
async fn failed_job() -> Plugin {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("j", 1)).await;
    let status = json!({"status": {"phase": "Failed", "reason": "CoordinatorFailed", "failures": [
        failure("j-coordinator", "Coordinator", 2, 1, "Count"),
        failure("j-collector-x7k2p", "Collector", 137, 3, "Count"),
    ]}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(status));
    let jobs = plugin.space.jobs();
    jobs.patch_status("j", &params, &patch).await.unwrap();
    plugin
}

#[tokio::test]
async fn failures_are_printed_newest_first() {
    let plugin = failed_job().await;
    let shown = plugin.run(&["failures", "j"]).await;
    assert_eq!(shown.code, Some(0), "{shown}");
    let lines: Vec<_> = shown.stdout.lines().collect();
    let starts = |line: usize, text: &str| assert!(lines[line].starts_with(text), "{shown}");
    starts(0, "j-coordinator on node-1: Error (exit code 2), ");
    assert_eq!(lines[1..3], ["    usage: train", "    error: code 2"]);
    starts(
        3,
        "j-collector-x7k2p on node-1: Error (exit code 137), 3 times, last ",
    );
    let json = plugin.run(&["failures", "j", "-o", "json"]).await;
    let failures: Vec<Value> = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(failures[1]["count"], 3);

    plugin.space.create(&Job::new("new", 1)).await;
    let none = plugin.run(&["failures", "new"]).await;
    assert_eq!(none.stderr, "No failures of dijobs/new are recorded.\n");
}

#[tokio::test]
async fn logs_and_wait_print_stored_lines() {
    let plugin = failed_job().await;
    for (words, code) in [
        (&["logs", "j"][..], 2),
        (&["logs", "j/collector-x7k2p"], 137),
    ] {
        let shown = plugin.run(words).await;
        assert_eq!(
            shown.stdout,
            format!("usage: train\nerror: code {code}\n"),
            "{shown}"
        );
        assert!(shown.stderr.contains("is deleted"), "{shown}");
    }
    for words in [["--role", "learner"], ["--container", "sidecar"]] {
        let none = plugin.run(&[&["logs", "j"][..], &words].concat()).await;
        assert_eq!((none.code, none.stdout.as_str()), (Some(1), ""), "{none}");
    }
    let ended = plugin.run(&["wait", "j", "--for=phase=Succeeded"]).await;
    assert_eq!(ended.code, Some(1), "{ended}");
    assert!(
        ended.stderr.ends_with("usage: train\nerror: code 2\n"),
        "{ended}"
    );
    // The failure that a rule has named, which is not the last one.
    let rule = json!({"status": {"reason": "FailureRule", "failures": [
        failure("j-coordinator", "Coordinator", 1, 1, "Count"),
        failure("j-collector-x7k2p", "Collector", 2, 1, "FailJob"),
    ]}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(rule));
    let jobs = plugin.space.jobs();
    jobs.patch_status("j", &params, &patch).await.unwrap();
    let ended = plugin.run(&["wait", "j", "--for=phase=Succeeded"]).await;
    let lines = "pod j-collector-x7k2p:\nusage: train\nerror: code 2\n";
    assert!(ended.stderr.ends_with(lines), "{ended}");
}
