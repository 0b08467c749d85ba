//! `describe` of running jobs.

use di_apiserver_tests::{
    Job, Kubelet, Space, common_nodes, create_aggregator_config, fail_to_pull,
};
use regex::Regex;
use serde_json::json;

use crate::plugin::{Plugin, mask_ages};

/// Masks the parts of a description that change with each run.
fn normalize(plugin: &Plugin, result: &impl std::fmt::Display) -> String {
    let dates = Regex::new(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000").unwrap();
    let text = mask_ages(&plugin.normalize(result));
    // The rule is as wide as the masked ages.
    let rule = Regex::new("(?m)--- {2,}-------$").unwrap();
    let text = rule.replace_all(&text, "---  -------");
    dates.replace_all(&text, "DATE").into_owned()
}

#[tokio::test]
async fn job_with_all_roles_is_shown_as_a_tree() {
    let space = Space::new().await;
    common_nodes(&space).await;
    create_aggregator_config(&space).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let gpus = json!({"limits": {"nvidia.com/gpu": "12"}});
    space
        .create(&Job::new("cartpole", 2).learners_with(1, &gpus))
        .await;
    space.until_settled("cartpole").await;
    manager.stop().await;
    let plugin = Plugin::at(space);
    let result = plugin
        .run(&["describe", "cartpole", "--show-events=false"])
        .await;
    insta::assert_snapshot!(normalize(&plugin, &result));
    // Without a terminal, there are no colours.
    assert!(!result.stdout.contains('\u{1b}'));
    let with_events = plugin.run(&["describe", "cartpole"]).await;
    assert!(
        with_events.stdout.contains("\nEvents:\n  Type "),
        "{with_events}"
    );
}

#[tokio::test]
async fn failing_job_is_described_with_its_reason() {
    let space = Space::new().await;
    let manager = space.manager("manager");
    space.create(&Job::new("bad", 0)).await;
    space.until_phase("bad", di_api::Phase::Created).await;
    fail_to_pull(&space.pods(), "bad-coordinator").await;
    space
        .until("bad", "the reason is set", |status| {
            status.reason.as_deref() == Some("ImagePullBackOff")
        })
        .await;
    manager.stop().await;
    let plugin = Plugin::at(space);
    let result = plugin
        .run(&["describe", "bad", "--show-events=false"])
        .await;
    insta::assert_snapshot!(normalize(&plugin, &result));
}

#[tokio::test]
async fn several_jobs_are_described_in_order() {
    let plugin = Plugin::new().await;
    for name in ["one", "two"] {
        let job = Job::new(name, 0).metadata(json!({"labels": {"team": "rl"}}));
        plugin.space.create(&job).await;
    }
    let result = plugin.run(&["describe", "-l", "team=rl"]).await;
    insta::assert_snapshot!(normalize(&plugin, &result));
    let missing = plugin.run(&["describe", "nope"]).await;
    insta::assert_snapshot!(missing, @r#"
    stderr: Error from server (NotFound): dijobs.diengine.opendilab.org "nope" not found
    exit code 1
    "#);
    let none = plugin.run(&["describe", "-l", "team=none"]).await;
    insta::assert_snapshot!(plugin.normalize(&none), @"stderr: No resources found in NAMESPACE namespace.");
}

#[tokio::test]
async fn description_is_coloured_unless_no_color_is_set() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("j", 1)).await;
    let manager = plugin.space.manager("manager");
    plugin.space.until_phase("j", di_api::Phase::Created).await;
    manager.stop().await;
    let describe = "kubectl-di describe j --show-events=false";
    let coloured = plugin.shell(100, 40, describe);
    coloured.until_ended(0).await;
    let plain = plugin.shell(100, 40, &format!("NO_COLOR=1 {describe}"));
    plain.until_ended(0).await;
    // tmux uses 16 or 256 colours, so match any colour of the phase.
    let phase = Regex::new("Phase: +\u{1b}\\[[0-9;]+mCreated").unwrap();
    assert!(
        phase.is_match(&coloured.colours()),
        "{:?}",
        coloured.colours()
    );
    assert!(!plain.colours().contains('\u{1b}'), "{:?}", plain.colours());
    assert_eq!(mask_ages(&plain.screen()), mask_ages(&coloured.screen()));
}

#[tokio::test]
async fn description_without_pod_rights_shows_the_plan() {
    let plugin = Plugin::new().await;
    let _kubelet = Kubelet::running(&plugin.space);
    let manager = plugin.space.manager("manager");
    plugin.space.create(&Job::new("j", 1)).await;
    plugin.space.until_settled("j").await;
    manager.stop().await;
    let group = "rbac.authorization.k8s.io";
    let permissions = json!([
        {
            "apiVersion": format!("{group}/v1"),
            "kind": "Role",
            "metadata": {"name": "jobs"},
            "rules": [{"apiGroups": ["diengine.opendilab.org"], "resources": ["dijobs"], "verbs": ["get"]}],
        },
        {
            "apiVersion": format!("{group}/v1"),
            "kind": "RoleBinding",
            "metadata": {"name": "jobs"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "jobs"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "alice"}],
        },
    ]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": permissions});
    plugin.file("permissions.json", list);
    let result = plugin.run(&["create", "-f", "permissions.json"]).await;
    assert_eq!(result.code, Some(0), "{result}");
    plugin.run_until_allowed(&["get", "j", "--as=alice"]).await;
    let shown = plugin
        .session(&[
            &["describe", "j", "--show-events=false", "--as=alice"][..],
            &["replicas", "list", "j", "--as=alice"],
        ])
        .await;
    insta::assert_snapshot!(normalize(&plugin, &shown));
}
