//! `get` works like `kubectl get`.

use std::process::Stdio;

use di_apiserver_tests::Job;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::plugin::{Plugin, mask_ages};

/// Creates three jobs without a controller, so that they do not change.
async fn plugin() -> Plugin {
    let plugin = Plugin::new().await;
    for (name, team, phase) in [
        ("job-10", "rl", "Running"),
        ("job-9", "rl", "Failed"),
        ("other", "vision", "Succeeded"),
    ] {
        let labels = json!({"team": team, "example.com/tier": "test"});
        let job = Job::new(name, 1).metadata(json!({"labels": labels}));
        plugin.space.create(&job).await;
        set_phase(&plugin, name, phase).await;
    }
    plugin
}

async fn set_phase(plugin: &Plugin, name: &str, phase: &str) {
    let status = json!({"status": {"phase": phase, "collectorsReady": "0/1", "learnersReady": "0/0", "reason": null}});
    let jobs = plugin.space.jobs();
    jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

#[tokio::test]
async fn get_prints_tables_and_names() {
    let plugin = plugin().await;
    let shown = plugin
        .session(&[
            &["get"][..],
            &["get", "-o", "wide"],
            &["get", "-l", "team=rl"],
            &["get", "-o", "name"],
            &["get", "job-9", "dijob.diengine.opendilab.org/other"],
        ])
        .await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&shown)));
}

#[tokio::test]
async fn json_and_yaml_omit_only_managed_fields() {
    let plugin = plugin().await;
    let one = plugin.run(&["get", "job-9", "-o", "json"]).await;
    let one: Value = serde_json::from_str(&one.stdout).unwrap();
    assert_eq!(one["metadata"]["name"], "job-9");
    assert_eq!(one["metadata"].get("managedFields"), None);
    let all = plugin.run(&["get", "-o", "json"]).await;
    let all: Value = serde_json::from_str(&all.stdout).unwrap();
    assert_eq!(
        (&all["kind"], all["items"].as_array().unwrap().len()),
        (&json!("List"), 3)
    );
    assert!(all["items"].as_array().unwrap().contains(&one));
    let yaml = plugin.run(&["get", "job-9", "-o", "yaml"]).await;
    assert!(yaml.stdout.contains("\n  name: job-9\n"), "{yaml}");
}

#[tokio::test]
async fn get_errors_name_the_job() {
    let plugin = plugin().await;
    let shown = plugin
        .session(&[
            &["get", "nope"][..],
            &["get", "nope", "other", "-o", "name"],
            &["get", "-l", "team=none"],
            &["get", "-o", "jsonpath={.items}"],
            &["get", "a", "b", "-w"],
        ])
        .await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&shown)));
}

#[tokio::test]
async fn watch_prints_changed_jobs() {
    let plugin = plugin().await;
    let mut watch = plugin
        .command(&["get", "-w", "-l", "team=rl"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut whole = plugin
        .command(&["get", "job-9", "-w"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    // Skip the headers and the two jobs of the list.
    for _ in 0..3 {
        lines.next_line().await.unwrap().unwrap();
    }
    let mut rows = BufReader::new(whole.stdout.take().unwrap()).lines();
    let mut phase = async || {
        let row = rows.next_line().await.unwrap().unwrap();
        row.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(phase().await, "PHASE");
    assert_eq!(phase().await, "Failed");
    // Change another job first: it must not be printed. The watch may start between the changes.
    let jobs = plugin.space.jobs();
    set_phase(&plugin, "other", "Failed").await;
    set_phase(&plugin, "job-9", "Running").await;
    assert_eq!(phase().await, "Running");
    let line = first_line(&plugin, &mut lines).await;
    assert!(line.starts_with("job-"), "only of the team: {line}");
    jobs.delete("job-9", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(phase().await, "Running", "as it was last");
}

/// The first line of a watch; changes a job until the watch prints it.
async fn first_line(
    plugin: &Plugin,
    lines: &mut tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
) -> String {
    let phases = ["Unknown", "Running"];
    for phase in phases.iter().cycle() {
        set_phase(plugin, "job-10", phase).await;
        let next = tokio::time::timeout(std::time::Duration::from_millis(100), lines.next_line());
        if let Ok(line) = next.await {
            return line.unwrap().unwrap();
        }
    }
    String::new()
}

#[tokio::test]
async fn describe_prints_the_jobs_that_exist() {
    let plugin = plugin().await;
    let result = plugin.run(&["describe", "nope", "other"]).await;
    assert_eq!(result.code, Some(1), "{result}");
    assert!(result.stdout.starts_with("Name: "), "{result}");
}

#[tokio::test]
async fn changed_objects_are_printed_in_the_output_format() {
    let plugin = Plugin::new().await;
    let shown = plugin
        .session(&[
            &["create", "j", "--image=i", "--collectors=1", "-o=name"][..],
            &["suspend", "j", "-o=name"],
            &["resume", "--all", "-o=name"],
            &["create", "k", "--image=i", "-o", "wide"],
            &["restart", "-l", "no=such"],
            &["restart"],
        ])
        .await;
    insta::assert_snapshot!(plugin.normalize(&shown));
    let scaled = ["replicas", "set", "j", "--collectors=2", "-o=json"];
    let scaled = plugin.run(&scaled).await;
    let job: Value = serde_json::from_str(&scaled.stdout).unwrap();
    assert_eq!(job["spec"]["collector"]["replicas"], 2);
    assert_eq!(job["metadata"].get("managedFields"), None);
    let install = plugin
        .run(&["install", "--dry-run=client", "-o=yaml"])
        .await;
    assert_eq!(install.stdout.matches("\n---\n").count(), 19, "{install}");
}

#[tokio::test]
async fn readable_jobs_are_shown_next_to_forbidden_ones() {
    let plugin = plugin().await;
    let permissions = json!([
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "one"},
            "rules": [
                {"apiGroups": ["diengine.opendilab.org"], "resources": ["dijobs"], "verbs": ["get"], "resourceNames": ["job-9"]},
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "one"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
        },
    ]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": permissions});
    plugin.file("permissions.json", list);
    let result = plugin.run(&["create", "-f", "permissions.json"]).await;
    assert_eq!(result.code, Some(0), "{result}");
    plugin
        .run_until_allowed(&["get", "job-9", "--as=alice"])
        .await;
    for (verb, seen) in [("get", "job-9 "), ("describe", "Name: ")] {
        let result = plugin.run(&[verb, "other", "job-9", "--as=alice"]).await;
        assert_eq!(result.code, Some(1), "{result}");
        assert!(result.stderr.contains("\"other\" is forbidden"), "{result}");
        assert!(result.stdout.contains(seen), "{result}");
    }
}
