use std::collections::BTreeSet;

use di_api::{DIJobStatus, Role};
use di_apiserver_tests::{Job, Kubelet, eventually, fail_to_pull, run};

use crate::plugin::{Plugin, add_call};

fn collectors(status: &DIJobStatus) -> BTreeSet<String> {
    let plan = status.plan.iter().filter(|e| e.is_wanted());
    let all = plan.filter(|e| e.role == Role::Collector);
    all.map(|e| e.name.clone()).collect()
}

#[tokio::test]
async fn replicas_are_scaled_by_count() {
    let plugin = Plugin::new().await;
    let job = Job::new("j", 2);
    plugin.space.create(&job).await;
    let mut all = String::new();
    for words in [
        &["replicas", "set", "j", "--collectors=3"][..],
        &["replicas", "set", "j", "--collectors=3"],
        &["replicas", "add", "j", "--collectors=1", "--dry-run=client"],
        &["replicas", "add", "j", "--collectors=1", "--dry-run=server"],
        &["replicas", "add", "dijob/j", "--collectors=1", "-o=name"],
        &["replicas", "delete", "j", "--collectors=2"],
        &[
            "replicas",
            "add",
            "j",
            "--collectors=2",
            "--cpus=2",
            "--memory=4Gi",
        ],
        &[
            "replicas",
            "add",
            "j",
            "--collectors=1",
            "--cpus=2",
            "--memory=4Gi",
        ],
        &[
            "replicas",
            "add",
            "j",
            "--collectors=1",
            "--cpus=8",
            "--group=big",
        ],
        &[
            "replicas",
            "add",
            "j",
            "--collectors=1",
            "--cpus=9",
            "--group=big",
        ],
        &["replicas", "add", "j", "--collectors=1", "--gpus=2"],
        &[
            "replicas",
            "delete",
            "j",
            "--collectors=1",
            "--cpus=2",
            "--memory=4Gi",
        ],
        &["replicas", "set", "j", "--collectors=1", "--cpus=3"],
        &["replicas", "set", "j", "--collectors=0", "--group=big"],
        &["replicas", "set", "j", "--collectors=0", "--group=small"],
        &["replicas", "delete", "j", "--collectors=9"],
        &["replicas", "add", "j", "--learners=1"],
        &["replicas", "set", "j", "--collectors=5000"],
        &["replicas", "add", "j", "--collectors=1", "--cpus=0"],
        &["replicas", "delete", "j"],
        &["replicas", "delete", "j", "pod", "--collectors=1"],
        &["replicas", "set", "j"],
        &["replicas", "restart", "j"],
        &["replicas", "restart", "j", "--collectors", "1"],
        &["replicas", "restart", "j", "pod", "--learners"],
        &["replicas", "restart", "j", "--collectors=0"],
        &["replicas", "restart", "j", "--collectors=3"],
        &["replicas", "set", "missing", "--collectors=1"],
    ] {
        let result = plugin.run(words).await;
        add_call(&mut all, &words.join(" "), &result);
    }
    insta::assert_snapshot!(plugin.normalize(&all));
    let job = plugin.space.jobs().get("j").await.unwrap();
    let collector = job.spec.collector.unwrap();
    let groups: Vec<_> = collector
        .groups
        .iter()
        .map(|g| (&*g.name, g.replicas))
        .collect();
    assert_eq!(
        (collector.replicas, groups),
        (2, vec![("cpus-2-memory-4gi", 2), ("big", 0)])
    );
}

#[tokio::test]
async fn replica_deleted_by_name_is_the_only_one_deleted() {
    let plugin = Plugin::new().await;
    let manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::reaping(&plugin.space);
    plugin.space.create(&Job::new("j", 4)).await;
    let has_pods = |status: &DIJobStatus| {
        status.plan.len() == 4 && status.plan.iter().all(|e| e.uid.is_some())
    };
    let status = plugin.space.until("j", "pods are made", has_pods).await;
    run(&plugin.space.pods(), "j-coordinator").await;
    let before = collectors(&status);
    let all: Vec<&String> = before.iter().collect();
    // Another replica fails, so a scale-down by count would delete that one.
    fail_to_pull(&plugin.space.pods(), all[0]).await;
    for name in &all[1..] {
        run(&plugin.space.pods(), name).await;
    }
    let ready = |status: &DIJobStatus| status.collectors_ready.as_deref() == Some("3/4");
    plugin.space.until("j", "three are ready", ready).await;

    let result = plugin
        .run(&["replicas", "delete", "j", all[2], "--dry-run=server"])
        .await;
    insta::assert_snapshot!("deleted_by_name_dry", plugin.normalize(&result));
    let result = plugin
        .run(&["replicas", "delete", "j", &format!("pod/{}", all[2])])
        .await;
    insta::assert_snapshot!("deleted_by_name", plugin.normalize(&result));
    let left = |status: &DIJobStatus| status.plan.len() == 3;
    let status = plugin.space.until("j", "three are left", left).await;
    let mut wanted = before.clone();
    wanted.remove(all[2]);
    assert_eq!(collectors(&status), wanted);

    // Delete two replicas before the orchestrator handles the first.
    manager.stop().await;
    for name in [all[1], all[3]] {
        let result = plugin.run(&["replicas", "delete", "j", name]).await;
        assert_eq!(result.code, Some(0), "{result}");
    }
    let _manager = plugin.space.manager("manager");
    let left = |status: &DIJobStatus| status.plan.len() == 1;
    let status = plugin.space.until("j", "one is left", left).await;
    assert!(
        collectors(&status).contains(all[0]),
        "the replica that was not named"
    );

    let result = plugin.run(&["replicas", "delete", "j", all[2]]).await;
    let unknown = result.to_string().replace(all[2], "NAME");
    insta::assert_snapshot!("deleted_by_unknown_name", plugin.normalize(&unknown));
}

#[tokio::test]
async fn replicas_delete_waits_for_the_pods() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let kubelet = Kubelet::running(&plugin.space);
    plugin.space.create(&Job::new("j", 2)).await;
    let status = plugin.space.until_settled("j").await;
    drop(kubelet);
    let name = collectors(&status).pop_first().unwrap();
    let short = name.strip_prefix("j-").unwrap();
    let words = ["replicas", "delete", "j", short, "--wait"];
    let result = plugin.run(&[&words[..], &["--timeout=10s"]].concat()).await;
    insta::assert_snapshot!(plugin.normalize(&result), @r"
    dijob.diengine.opendilab.org/j scaled: collectors 2 -> 1
    stderr: error: timed out waiting for j-collector-XXXXX of dijobs/j to be deleted
    exit code 1
    ");
    let waits = plugin.run(&["replicas", "delete", "j", "--collectors=1", "--wait"]);
    let reaps = async {
        let two_go = |status: &DIJobStatus| collectors(status).is_empty();
        plugin.space.until("j", "both go", two_go).await;
        Kubelet::reaping(&plugin.space)
    };
    let (result, _kubelet) = tokio::join!(waits, reaps);
    assert_eq!(result.code, Some(0), "{result}");
    let job = plugin.space.jobs().get("j").await.unwrap();
    assert!(job.status.unwrap().plan.is_empty());
}

#[tokio::test]
async fn replicas_are_restarted_by_name_and_by_role() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::running(&plugin.space);
    plugin.space.create(&Job::new("j", 2).learners(1)).await;
    let status = plugin.space.until_settled("j").await;
    let before = collectors(&status);
    let first = before.first().unwrap();

    let mut all = String::new();
    for words in [
        &["replicas", "restart", "j", first, "--dry-run=client"][..],
        &[
            "replicas",
            "restart",
            "j",
            first,
            "--dry-run=server",
            "-o=name",
        ],
        &["replicas", "restart", "j", first, "--wait", "--timeout=3m"],
        &["replicas", "restart", "j", first],
        &["replicas", "restart", "j", "j-coordinator"],
        &["replicas", "restart", "j", "x"],
    ] {
        let result = plugin.run(words).await;
        let words = words.join(" ").replace(first, "j-collector-XXXXX");
        add_call(&mut all, &words, &result);
    }
    insta::assert_snapshot!("restarted_by_name", plugin.normalize(&all));
    let now = collectors(&plugin.space.until_settled("j").await);
    assert_eq!(before.intersection(&now).count(), 1);

    let result = plugin
        .run(&["replicas", "restart", "j", "--collectors", "--learners"])
        .await;
    insta::assert_snapshot!("restarted_by_role", plugin.normalize(&result));
    let replaced = |status: &DIJobStatus| collectors(status).is_disjoint(&now);
    plugin.space.until("j", "all are replaced", replaced).await;

    let now = collectors(&plugin.space.until_settled("j").await);
    let result = plugin
        .run(&["replicas", "restart", "j", "--collectors=1", "--wait"])
        .await;
    assert_eq!(result.code, Some(0), "{result}");
    let after = collectors(&plugin.space.until_settled("j").await);
    assert_eq!(now.intersection(&after).count(), 1);
}

#[tokio::test]
async fn wait_timeout_reports_the_pod_error() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::reaping(&plugin.space);
    plugin.space.create(&Job::new("j", 1)).await;
    let has_pod = |status: &DIJobStatus| status.plan.iter().any(|e| e.uid.is_some());
    let status = plugin.space.until("j", "a pod is made", has_pod).await;
    fail_to_pull(&plugin.space.pods(), &status.plan[0].name).await;
    let has_reason = |status: &DIJobStatus| status.reason.as_deref() == Some("ImagePullBackOff");
    plugin
        .space
        .until("j", "the reason is set", has_reason)
        .await;
    let words = "replicas set j --collectors=1 --wait --timeout=200ms";
    let words: Vec<_> = words.split(' ').collect();
    let result = plugin.run_until_error(&words, "ImagePullBackOff").await;
    insta::assert_snapshot!(plugin.normalize(&result));
}

#[tokio::test]
async fn concurrent_scaling_loses_no_update() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("j", 0)).await;
    let words = ["replicas", "add", "j", "--collectors=1"];
    let all = futures::future::join_all((0..4).map(|_| plugin.run(&words))).await;
    for result in all {
        assert_eq!(result.code, Some(0), "{result}");
    }
    let job = plugin.space.jobs().get("j").await.unwrap();
    assert_eq!(job.spec.collector.unwrap().replicas, 4);
}

#[tokio::test]
async fn wait_shows_progress_on_a_terminal() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::reaping(&plugin.space);
    plugin.space.create(&Job::new("j", 2)).await;
    let is_counted = |status: &DIJobStatus| status.collectors_ready.as_deref() == Some("0/2");
    plugin
        .space
        .until("j", "the replicas are counted", is_counted)
        .await;
    let words = "replicas set j --collectors=2 --wait --timeout=300ms";
    let command = format!("{} {words}", env!("CARGO_BIN_EXE_kubectl-di"));
    // The timeout may be over before the plugin has read the job.
    let shown = eventually("it shows how far it is", async || {
        let output = tokio::process::Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .env("KUBECONFIG", plugin.dir().join("config"))
            .env("TERM", "xterm")
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        if shown.contains("replicas of j ready [") && shown.contains("0/2") {
            Ok(shown)
        } else {
            Err(shown)
        }
    })
    .await;
    assert!(shown.contains("timed out waiting"), "{shown}");
    let words: Vec<_> = words.split(' ').collect();
    let piped = plugin.run(&words).await;
    assert!(!piped.to_string().contains("replicas of j"), "{piped}");
}

#[tokio::test]
async fn interrupted_wait_clears_the_progress_line() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::reaping(&plugin.space);
    plugin.space.create(&Job::new("j", 2)).await;
    let is_counted = |status: &DIJobStatus| {
        let mut plan = status.plan.iter();
        status.collectors_ready.as_deref() == Some("0/2") && plan.all(|e| e.uid.is_some())
    };
    let status = plugin
        .space
        .until("j", "the replicas are counted", is_counted)
        .await;
    let line = "echo above; kubectl-di replicas set j --collectors=2 --wait";
    let terminal = plugin.shell(100, 10, line);
    let shows = |text: &'static str| move |screen: &str| screen.contains(text);
    terminal
        .until("how far it is", shows("replicas of j ready ["))
        .await;
    terminal.resize(80, 10).await;
    run(&plugin.space.pods(), &status.plan[0].name).await;
    let screen = terminal.until("one is ready", shows("] 1/")).await;
    assert_eq!(screen.matches("replicas of j").count(), 1, "{screen}");
    // The progress line now wraps to two rows, and the first row of the screen scrolled away.
    terminal.resize(40, 10).await;
    terminal.press(&["C-c"]);
    terminal.until_ended(130).await;
    insta::assert_snapshot!(terminal.screen());
}
