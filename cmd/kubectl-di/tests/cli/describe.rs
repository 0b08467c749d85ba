//! `describe` of a job that runs.

use di_apiserver_tests::{Job, Kubelet, Space, common_nodes, configure, fail_to_pull};
use regex::Regex;
use serde_json::json;

use crate::plugin::{Plugin, ageless};

/// What is the same at each run, of a screen.
fn lasting(plugin: &Plugin, said: &impl std::fmt::Display) -> String {
    let dates = Regex::new(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000").unwrap();
    let text = ageless(&plugin.lasting(said));
    // As wide as the ages below.
    let rule = Regex::new("(?m)--- {2,}-------$").unwrap();
    let text = rule.replace_all(&text, "---  -------");
    dates.replace_all(&text, "DATE").into_owned()
}

#[tokio::test]
async fn a_job_with_all_roles_is_shown_as_a_tree() {
    let space = Space::new().await;
    common_nodes(&space).await;
    configure(&space).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let gpus = json!({"limits": {"nvidia.com/gpu": "12"}});
    space
        .create(&Job::new("cartpole", 2).learners_with(1, &gpus))
        .await;
    space.until_settled("cartpole").await;
    manager.stop().await;
    let plugin = Plugin::at(space);
    let said = plugin
        .run(&["describe", "cartpole", "--show-events=false"])
        .await;
    insta::assert_snapshot!(lasting(&plugin, &said));
    // A prefix is enough, as for kubectl; and without a terminal there is no colour.
    let prefix = plugin
        .run(&["describe", "cart", "--show-events=false"])
        .await;
    assert_eq!(lasting(&plugin, &prefix), lasting(&plugin, &said));
    assert!(!said.stdout.contains('\u{1b}'));
    let told = plugin.run(&["describe", "cartpole"]).await;
    assert!(told.stdout.contains("\nEvents:\n  Type "), "{told}");
}

#[tokio::test]
async fn what_is_wrong_is_seen() {
    let space = Space::new().await;
    let manager = space.manager("manager");
    space.create(&Job::new("ill", 0)).await;
    space.until_phase("ill", di_api::Phase::Created).await;
    fail_to_pull(&space.pods(), "ill-coordinator").await;
    space
        .until("ill", "the reason is told", |status| {
            status.reason.as_deref() == Some("ImagePullBackOff")
        })
        .await;
    manager.stop().await;
    let plugin = Plugin::at(space);
    let said = plugin
        .run(&["describe", "ill", "--show-events=false"])
        .await;
    insta::assert_snapshot!(lasting(&plugin, &said));
}

#[tokio::test]
async fn several_jobs_follow_each_other() {
    let plugin = Plugin::new().await;
    for name in ["one", "two"] {
        let mut job = Job::new(name, 0).json().clone();
        job["metadata"]["labels"] = json!({"team": "rl"});
        plugin.space.create(&Job::from(job)).await;
    }
    let said = plugin.run(&["describe", "-l", "team=rl"]).await;
    insta::assert_snapshot!(lasting(&plugin, &said));
    let missing = plugin.run(&["describe", "nope"]).await;
    insta::assert_snapshot!(missing, @r#"
    stderr: Error from server (NotFound): dijobs.diengine.opendilab.org "nope" not found
    exit code 1
    "#);
    let none = plugin.run(&["describe", "-l", "team=none"]).await;
    insta::assert_snapshot!(plugin.lasting(&none), @"stderr: No resources found in NAMESPACE namespace.");
}

#[tokio::test]
async fn a_terminal_shows_it_in_colour_unless_that_is_not_wanted() {
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
    // 256 colours or 16, as tmux has it: the phase is one of those.
    let phase = Regex::new("Phase: +\u{1b}\\[[0-9;]+mCreated").unwrap();
    assert!(
        phase.is_match(&coloured.colours()),
        "{:?}",
        coloured.colours()
    );
    assert!(!plain.colours().contains('\u{1b}'), "{:?}", plain.colours());
    assert_eq!(ageless(&plain.screen()), ageless(&coloured.screen()));
}

#[tokio::test]
async fn who_may_not_see_pods_sees_what_is_planned() {
    let plugin = Plugin::new().await;
    let _kubelet = Kubelet::running(&plugin.space);
    let manager = plugin.space.manager("manager");
    plugin.space.create(&Job::new("j", 1)).await;
    plugin.space.until_settled("j").await;
    manager.stop().await;
    let group = "rbac.authorization.k8s.io";
    let rights = json!([
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
    let list = json!({"apiVersion": "v1", "kind": "List", "items": rights});
    plugin.file("rights.json", list);
    let said = plugin.run(&["create", "-f", "rights.json"]).await;
    assert_eq!(said.code, Some(0), "{said}");
    plugin.until_may(&["get", "j", "--as=alice"]).await;
    let shown = plugin
        .session(&[
            &["describe", "j", "--show-events=false", "--as=alice"][..],
            &["replicas", "list", "j", "--as=alice"],
        ])
        .await;
    insta::assert_snapshot!(lasting(&plugin, &shown));
}
