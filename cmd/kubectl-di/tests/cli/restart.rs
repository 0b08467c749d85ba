use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet};

use crate::plugin::{Plugin, add_call};

#[tokio::test]
async fn restart_replaces_the_coordinator() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::running(&plugin.space);
    plugin.space.create(&Job::new("j", 1)).await;
    plugin.space.until_settled("j").await;
    let uids = async || {
        let pods = plugin.space.pods_of("j").await;
        pods.into_values()
            .map(|pod| (pod.metadata.name, pod.metadata.uid))
            .collect::<Vec<_>>()
    };
    let before = uids().await;
    let mut all = String::new();
    for words in [
        &["restart", "j", "--dry-run=client"][..],
        &["restart", "j", "--dry-run=server", "-o=name"],
        &["restart", "j", "--wait", "--timeout=3m"],
    ] {
        let result = plugin.run(words).await;
        add_call(&mut all, &words.join(" "), &result);
    }
    insta::assert_snapshot!(plugin.normalize(&all));
    let status = plugin.space.until_settled("j").await;
    let after = uids().await;
    assert_eq!(before[0], after[0], "the collector stays");
    assert_ne!(before[1].1, after[1].1);
    assert_eq!((status.phase, status.restarts), (Some(Phase::Running), 0));
    // A second restart replaces the new coordinator.
    let result = plugin
        .run(&["restart", "j", "--wait", "--timeout=3m"])
        .await;
    assert_eq!(result.code, Some(0), "{result}");
    plugin.space.until_settled("j").await;
    assert_ne!(uids().await[1].1, after[1].1);
}

#[tokio::test]
async fn restart_fails_without_a_coordinator() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("j", 0)).await;
    let result = plugin.run(&["restart", "j", "missing"]).await;
    insta::assert_snapshot!(plugin.normalize(&result));
}
