use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, exit};

use crate::plugin::{Plugin, add_call};

#[tokio::test]
async fn job_is_suspended_and_resumed() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::running(&plugin.space);
    plugin.space.create(&Job::new("j", 1)).await;
    plugin.space.until_settled("j").await;
    let mut all = String::new();
    for words in [
        &["suspend", "j", "--dry-run=client"][..],
        &["suspend", "j", "--dry-run=server"],
        &["suspend", "j", "--wait", "--timeout=3m"],
        &["suspend", "j"],
        &["restart", "j"],
        &["replicas", "restart", "j", "--collectors"],
        &["resume", "dijobs/j", "-o=name", "--wait", "--timeout=3m"],
        &["resume", "j"],
    ] {
        let result = plugin.run(words).await;
        add_call(&mut all, &words.join(" "), &result);
    }
    insta::assert_snapshot!(plugin.normalize(&all));
    plugin.space.until_phase("j", Phase::Running).await;
}

#[tokio::test]
async fn jobs_are_selected_like_in_kubectl() {
    let plugin = Plugin::new().await;
    for name in ["a", "b", "c"] {
        let words = [
            "create",
            name,
            "--image=i",
            if name == "c" {
                "--labels=t=y"
            } else {
                "--labels=t=x"
            },
        ];
        assert_eq!(plugin.run(&words).await.code, Some(0));
    }
    let mut all = String::new();
    for words in [
        &["suspend", "-l=t=x"][..],
        &["suspend", "--all"],
        &["resume", "-l=t=z"],
        &["resume", "a", "missing", "a"],
        &["resume"],
        &["resume", "a", "--all"],
        &["resume", "a", "-l=t=x"],
        &["resume", "--all", "-o=yaml", "--dry-run=client", "-l=t=x"],
    ] {
        let result = plugin.run(words).await;
        add_call(&mut all, &words.join(" "), &result);
    }
    insta::assert_snapshot!(plugin.normalize(&all));
}

#[tokio::test]
async fn ended_job_is_not_changed() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::running(&plugin.space);
    plugin.space.create(&Job::new("j", 1)).await;
    plugin.space.until_settled("j").await;
    exit(&plugin.space.pods(), "j-coordinator", 0).await;
    plugin.space.until_phase("j", Phase::Succeeded).await;
    let mut all = String::new();
    for words in [
        &["suspend", "j"][..],
        &["suspend", "--all"],
        &["resume", "j"],
        &["restart", "j"],
        &["replicas", "restart", "j", "--collectors"],
        &["replicas", "set", "j", "--collectors=3"],
        &["replicas", "add", "j", "--collectors=1"],
    ] {
        let result = plugin.run(words).await;
        add_call(&mut all, &words.join(" "), &result);
    }
    insta::assert_snapshot!(plugin.normalize(&all));
}
