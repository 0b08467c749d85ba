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
async fn get_supports_the_output_formats_of_kubectl() {
    let plugin = plugin().await;
    let shown = plugin.session(&[
        &["get"][..],
        &["get", "-o", "wide"],
        &["get", "--no-headers"],
        &["get", "-l", "team=rl", "--show-labels"],
        &["get", "-L", "team,example.com/tier"],
        &["get", "--sort-by=.metadata.name"],
        &["get", "--sort-by={.status.phase}", "-o", "name"],
        &[
            "get",
            "--field-selector=metadata.name!=other",
            "--chunk-size=1",
        ],
        &["get", "job-9", "dijob.diengine.opendilab.org/other"],
        &["get", "job-9", "-o", "jsonpath={.status.phase}"],
        &["get", "-o", "jsonpath={.items[*].metadata.name}"],
        &[
            "get",
            "-o",
            r#"jsonpath={range .items[*]}{.metadata.name}{"\t"}{.status.phase}{"\n"}{end}"#,
        ],
        &[
            "get",
            "-o",
            "custom-columns=NAME:.metadata.name,TIER:.metadata.labels.example\\.com/tier,NO:.nothing",
        ],
    ]).await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&shown)));
}

#[tokio::test]
async fn templates_and_columns_are_read_from_files() {
    let plugin = plugin().await;
    plugin.file(
        "columns",
        "NAME            PHASE\n.metadata.name  .status.phase\n",
    );
    plugin.file("template", "{.items[0].metadata.name}\n");
    let columns = [
        "get",
        "-l",
        "team=vision",
        "-o",
        "custom-columns-file=columns",
    ];
    let result = plugin.run(&columns).await;
    assert_eq!(
        result.stdout, "NAME    PHASE\nother   Succeeded\n",
        "{result}"
    );
    let result = plugin.run(&["get", "-o", "jsonpath-file=template"]).await;
    assert_eq!(result.stdout, "job-10\n", "{result}");
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
async fn get_errors_equal_those_of_kubectl() {
    let plugin = plugin().await;
    let shown = plugin
        .session(&[
            &["get", "nope"][..],
            &["get", "nope", "--ignore-not-found"],
            &["get", "nope", "other", "-o", "name"],
            &["get", "-l", "team=none"],
            &["get", "-l", "team=none", "--ignore-not-found"],
            &[
                "get",
                "-l",
                "team=none",
                "-o",
                "jsonpath={.items[0].metadata.name}",
            ],
            &["get", "-o", "toml"],
            &["get", "-o", "jsonpath={.items[*}"],
            &["get", "-o", "custom-columns=NAME"],
            &["get", "--sort-by=.spec.nothing"],
            &["get", "--field-selector=spec.nothing=1"],
            &["get", "a", "b", "-w"],
        ])
        .await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&shown)));
}

#[tokio::test]
async fn watch_prints_changed_jobs() {
    let plugin = plugin().await;
    let mut watch = plugin
        .command(&["get", "--watch-only", "--no-headers", "-l", "team=rl"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut whole = plugin
        .command(&["get", "job-9", "-w", "-o", "jsonpath={.status.phase} "])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut words = BufReader::new(whole.stdout.take().unwrap()).split(b' ');
    let mut word =
        async || String::from_utf8(words.next_segment().await.unwrap().unwrap()).unwrap();
    assert_eq!(word().await, "Failed");
    // Change another job first: it must not be printed. The watch may start between the changes.
    let jobs = plugin.space.jobs();
    set_phase(&plugin, "other", "Failed").await;
    set_phase(&plugin, "job-9", "Running").await;
    assert_eq!(word().await, "Running");
    let line = first_line(&plugin, &mut lines).await;
    assert!(line.starts_with("job-"), "only of the team: {line}");
    jobs.delete("job-9", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(word().await, "Running", "as it was last");
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
async fn jobs_are_selected_by_name_kind_and_manifest() {
    let plugin = plugin().await;
    for name in ["job-9", "other"] {
        plugin.file(&format!("{name}.json"), Job::new(name, 1).json());
    }
    let shown = plugin
        .session(&[
            &["get", "dijobs", "-o", "name"][..],
            &["get", "dijob", "other"],
            &[
                "get",
                "-f",
                "job-9.json",
                "-o",
                "jsonpath={.status.phase}{'\\n'}",
            ],
            &["get", "-f", "job-9.json", "-f", "other.json"],
            &["get", "other", "-f", "job-9.json"],
            &["get", "-f", "job-9.json", "-A"],
            &[
                "get",
                "-o",
                "jsonpath-as-json={.items[*]['metadata.name', 'status.phase']}",
            ],
        ])
        .await;
    insta::assert_snapshot!(mask_ages(&plugin.normalize(&shown)));
    let result = plugin.run(&["describe", "dijob", "-f", "job-9.json"]).await;
    assert!(result.stdout.starts_with("Name: "), "{result}");
    let result = plugin.run(&["describe", "dijobs", "nope", "other"]).await;
    assert_eq!(result.code, Some(1), "{result}");
    assert!(result.stdout.starts_with("Name: "), "{result}");
}

#[tokio::test]
async fn changed_objects_are_printed_in_the_output_format() {
    let plugin = Plugin::new().await;
    let name = "jsonpath={.metadata.name} {.spec.suspend}{'\\n'}";
    let shown = plugin
        .session(&[
            &["create", "j", "--image=i", "--collectors=1", "-o", name][..],
            &["suspend", "j", "-o", name],
            &["resume", "--all", "-o", name],
            &["wait", "j", "--for=create", "-o", name],
            &[
                "replicas",
                "set",
                "j",
                "--collectors=2",
                "-o",
                "jsonpath={.spec.collector.replicas}{'\\n'}",
            ],
            &["install", "--dry-run=client", "-o", "jsonpath={.kind} "],
            &["create", "k", "--image=i", "-o", "wide"],
            &["suspend", "j", "-o=custom-columns=A:.a"],
            &["restart", "-l", "no=such"],
            &["restart"],
        ])
        .await;
    insta::assert_snapshot!(plugin.normalize(&shown));
    for words in [
        &["get", "j", "-o=yaml"][..],
        &["create", "l", "--image=i", "-o=yaml"],
        &["wait", "j", "--for=create", "-o=json"],
    ] {
        let shown = plugin
            .run(&[words, &["--show-managed-fields"]].concat())
            .await;
        assert!(shown.stdout.contains("managedFields"), "{shown}");
    }
}

#[tokio::test]
async fn readable_jobs_are_shown_next_to_forbidden_ones() {
    let plugin = plugin().await;
    let rights = json!([
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
    let list = json!({"apiVersion": "v1", "kind": "List", "items": rights});
    plugin.file("rights.json", list);
    let result = plugin.run(&["create", "-f", "rights.json"]).await;
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
