use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, exit};

use crate::plugin::{Plugin, note};

#[tokio::test]
async fn what_is_waited_for_is_met_at_once_or_later() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::running(&plugin.space);
    plugin.space.create(&Job::new("j", 1)).await;
    let mut all = String::new();
    for wanted in [
        "phase=Running",
        "condition=Running",
        "condition=ReplicasReady=true",
        "jsonpath={.status.phase}=Running",
        "create",
    ] {
        let flag = format!("--for={wanted}");
        let said = plugin.run(&["wait", "j", &flag, "--timeout=3m"]).await;
        note(&mut all, &format!("wait j {flag}"), &said);
    }
    let ends = async { exit(&plugin.space.pods(), "j-coordinator", 0).await };
    let words = [
        "wait",
        "dijob/j",
        "--for=phase=Succeeded",
        "--timeout=3m",
        "-o=name",
    ];
    let (said, ()) = tokio::join!(plugin.run(&words), ends);
    note(&mut all, &words.join(" "), &said);
    insta::assert_snapshot!(plugin.lasting(&all));
}

#[tokio::test]
async fn what_can_no_longer_come_is_not_waited_for() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::reaping(&plugin.space);
    plugin.space.create(&Job::new("j", 0)).await;
    plugin.space.until_phase("j", Phase::Created).await;
    di_apiserver_tests::fail_to_pull(&plugin.space.pods(), "j-coordinator").await;
    let stuck = |status: &di_api::DIJobStatus| status.reason.as_deref() == Some("ImagePullBackOff");
    plugin.space.until("j", "the reason is told", stuck).await;
    let words = ["wait", "j", "--for=condition=Running", "--timeout=200ms"];
    let said = plugin.until_told(&words, "ImagePullBackOff").await;
    insta::assert_snapshot!("held_up", plugin.lasting(&said));
    let fails = async { exit(&plugin.space.pods(), "j-coordinator", 3).await };
    let words = ["wait", "j", "--for=phase=Succeeded", "--timeout=3m"];
    let (said, ()) = tokio::join!(plugin.run(&words), fails);
    insta::assert_snapshot!("phase", plugin.lasting(&said));
    let said = plugin
        .run(&["wait", "j", "--for=condition=Running", "--timeout=3m"])
        .await;
    insta::assert_snapshot!("condition", plugin.lasting(&said));
}

#[tokio::test]
async fn deletions_are_waited_for() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("j", 0).finalizer()).await;
    let said = plugin.run(&["delete", "j", "--wait=false"]).await;
    assert_eq!(said.code, Some(0), "{said}");
    let said = plugin
        .run(&["wait", "j", "--for=delete", "--timeout=100ms"])
        .await;
    insta::assert_snapshot!("timeout", plugin.lasting(&said));
    let words = ["wait", "j", "--for=delete", "--timeout=3m"];
    let lets_go = async {
        let patch = serde_json::json!({"metadata": {"finalizers": null}});
        let params = kube::api::PatchParams::default();
        let patch = kube::api::Patch::Merge(patch);
        plugin
            .space
            .jobs()
            .patch("j", &params, &patch)
            .await
            .unwrap();
    };
    let (said, ()) = tokio::join!(plugin.run(&words), lets_go);
    assert_eq!((said.code, &*said.stderr), (Some(0), ""), "{said}");
    let said = plugin.run(&words).await;
    insta::assert_snapshot!("gone", plugin.lasting(&said));
}

#[tokio::test]
async fn refusals_are_kubectls() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("j", 0)).await;
    let mut all = String::new();
    for words in [
        &["wait", "j", "--for=phase=Running", "--timeout=0"][..],
        &["wait", "j", "--for=phase=Running", "--timeout=50ms"],
        &["wait", "x", "--for=phase=Running"],
        &["wait", "x", "--for=create", "--timeout=50ms"],
        &["wait", "-l=a=b", "--for=phase=Running"],
        &["wait", "--for=phase=Running"],
        &["wait", "j"],
        &["wait", "j", "--for=Running"],
        &["wait", "j", "--for=phase=Done"],
        &["wait", "job/j", "--for=phase=Running"],
    ] {
        let said = plugin.run(words).await;
        assert_eq!(said.code, Some(1), "{words:?}: {said}");
        note(&mut all, &words.join(" "), &said);
    }
    insta::assert_snapshot!(plugin.lasting(&all));
}
