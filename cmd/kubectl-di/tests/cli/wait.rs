use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, exit};

use crate::plugin::{Plugin, add_call};

#[tokio::test]
async fn wait_conditions_are_met_immediately_or_later() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::running(&plugin.space);
    plugin.space.create(&Job::new("j", 1)).await;
    let mut all = String::new();
    for wanted in [
        "phase=Running",
        "condition=Running",
        "condition=ReplicasReady=true",
    ] {
        let flag = format!("--for={wanted}");
        let result = plugin.run(&["wait", "j", &flag, "--timeout=3m"]).await;
        add_call(&mut all, &format!("wait j {flag}"), &result);
    }
    let ends = async { exit(&plugin.space.pods(), "j-coordinator", 0).await };
    let words = [
        "wait",
        "dijob/j",
        "--for=phase=Succeeded",
        "--timeout=3m",
        "-o=name",
    ];
    let (result, ()) = tokio::join!(plugin.run(&words), ends);
    add_call(&mut all, &words.join(" "), &result);
    insta::assert_snapshot!(plugin.normalize(&all));
}

#[tokio::test]
async fn wait_fails_early_when_the_job_ended() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::reaping(&plugin.space);
    plugin.space.create(&Job::new("j", 0)).await;
    plugin.space.until_phase("j", Phase::Created).await;
    di_apiserver_tests::fail_to_pull(&plugin.space.pods(), "j-coordinator").await;
    let stuck = |status: &di_api::DIJobStatus| status.reason.as_deref() == Some("ImagePullBackOff");
    plugin.space.until("j", "the reason is set", stuck).await;
    let words = ["wait", "j", "--for=condition=Running", "--timeout=200ms"];
    let result = plugin.run_until_error(&words, "ImagePullBackOff").await;
    insta::assert_snapshot!("pod_error", plugin.normalize(&result));
    let fails = async { exit(&plugin.space.pods(), "j-coordinator", 3).await };
    let words = ["wait", "j", "--for=phase=Succeeded", "--timeout=3m"];
    let (result, ()) = tokio::join!(plugin.run(&words), fails);
    insta::assert_snapshot!("phase", plugin.normalize(&result));
    let result = plugin
        .run(&["wait", "j", "--for=condition=Running", "--timeout=3m"])
        .await;
    insta::assert_snapshot!("condition", plugin.normalize(&result));
}

#[tokio::test]
async fn wait_errors_name_the_job_or_the_flag() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("j", 0)).await;
    let mut all = String::new();
    for words in [
        &["wait", "j", "--for=phase=Running", "--timeout=0"][..],
        &["wait", "j", "--for=phase=Running", "--timeout=50ms"],
        &["wait", "x", "--for=phase=Running"],
        &["wait", "-l=a=b", "--for=phase=Running"],
        &["wait", "--for=phase=Running"],
        &["wait", "j"],
        &["wait", "j", "--for=delete"],
        &["wait", "j", "--for=phase=Done"],
        &["wait", "job/j", "--for=phase=Running"],
    ] {
        let result = plugin.run(words).await;
        assert_ne!(result.code, Some(0), "{words:?}: {result}");
        add_call(&mut all, &words.join(" "), &result);
    }
    insta::assert_snapshot!(plugin.normalize(&all));
}
