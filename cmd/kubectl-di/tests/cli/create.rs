use std::time::Duration;

use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, exit};
use serde_json::json;
use tokio::time::timeout;

use crate::plugin::{Plugin, add_call};

const NERVEX: &str = "
apiVersion: nervex.sensetime.com/v1alpha1
kind: NerveXJob
metadata: {name: old}
spec:
  cleanPodPolicy: ALL
  coordinator: {template: {spec: {containers: [{name: nervex-container, image: i}]}}}
  collector: {template: {spec: {containers: [{name: nervex-container, image: i}]}}}
";

const TASKS: &str = "
apiVersion: diengine.opendilab.org/v2alpha1
kind: DIJob
metadata: {name: dqn}
spec:
  priority: normal
  tasks:
  - name: learner
    type: learner
    template: {spec: {containers: [{name: di-container, image: i}]}}
  - name: evaluator
    type: evaluator
    template: {spec: {containers: [{name: di-container, image: i, command: [ditask, --labels=evaluator]}]}}
  - name: collector
    type: collector
    replicas: 2
    template: {spec: {containers: [{name: di-container, image: i, command: [ditask, --labels=collector]}]}}
";

#[tokio::test]
async fn job_is_created_from_flags() {
    let plugin = Plugin::new().await;
    let words = [
        "create",
        "cartpole",
        "--image=train:v1",
        "--collectors=4",
        "--learners=1",
        "--gpus=2",
        "--cpus=500m",
        "--memory=1Gi",
        "--collector-memory=2Gi",
        "--learner-cpus=4",
        "--env=SEED=1",
        "--labels=team=rl,tier=gold",
        "--clean-pod-policy=all",
        "--service-account=trainer",
        "--annotations=note=first",
        "--node-selector=pool=rl",
        "--active-deadline-seconds=3600",
        "--ttl-seconds-after-finished=60",
    ];
    let shown = [
        &words[..],
        &["--dry-run=client", "-o=yaml", "--", "python", "-m", "train"],
    ]
    .concat();
    let result = plugin.run(&shown).await;
    insta::assert_snapshot!("manifest", plugin.normalize(&result));

    let result = plugin
        .run(&[&words[..], &["--dry-run=server"]].concat())
        .await;
    insta::assert_snapshot!("server_dry_run", plugin.normalize(&result));
    let result = plugin.run(&words).await;
    insta::assert_snapshot!("created", plugin.normalize(&result));
    let result = plugin.run(&words).await;
    insta::assert_snapshot!("already_there", plugin.normalize(&result));
    let job = plugin.space.jobs().get("cartpole").await.unwrap();
    assert_eq!(job.metadata.labels.unwrap()["team"], "rl");
}

#[tokio::test]
async fn invalid_flags_are_rejected() {
    let plugin = Plugin::new().await;
    let file = plugin.file("job.yaml", Job::new("j", 0).json());
    let file = file.to_str().unwrap();
    let another = plugin.file("another.yaml", Job::new("k", 0).json());
    let another = another.to_str().unwrap();
    let mut all = String::new();
    for words in [
        &["create"][..],
        &["create", "j"],
        &["create", "--image=i"],
        &["create", "j", "--image=i", "--gpus=1"],
        &["create", "j", "--image=i", "--learners=1", "--gpus=0.5"],
        &["create", "j", "--image=i", "--collector-cpus=1"],
        &["create", "j", "--image=i", "--follow", "--timeout=3m"],
        &["create", "-f", file, "-f", another, "--follow"],
        &["create", "j", "--image=i", "--cpus=many"],
        &["create", "j", "--image=i", "--collectors=-1"],
        &["create", "j", "--image=i", "--env=SEED"],
        &["create", "Cart_Pole", "--image=i"],
        &["create", "-f", file, "--image=i"],
        &["create", "-f", file, "--cpus=1"],
        &["create", "-f", file, "j"],
    ] {
        let result = plugin.run(words).await;
        assert!(matches!(result.code, Some(1 | 2)), "{words:?}: {result}");
        add_call(&mut all, &words.join(" "), &result);
    }
    let all = all.replace(plugin.dir().to_str().unwrap(), "DIR");
    insta::assert_snapshot!(plugin.normalize(&all));
    assert!(plugin.space.writes_of("kubectl-di").await.is_empty());
}

#[tokio::test]
async fn files_directories_and_standard_input_are_read() {
    let plugin = Plugin::new().await;
    std::fs::create_dir_all(plugin.dir().join("jobs/more")).unwrap();
    for name in ["a", "b", "jobs/c", "jobs/more/d"] {
        let job = name.rsplit('/').next().unwrap();
        plugin.file(&format!("{name}.yaml"), Job::new(job, 0).json());
    }
    let result = plugin
        .run(&["create", "-f", "a.yaml", "-f", "b.yaml", "-f", "jobs", "-R"])
        .await;
    insta::assert_snapshot!("files", plugin.normalize(&result));
    let input = Job::new("e", 0);
    let result = plugin
        .run_with(&["create", "-f", "-", "-o=name"], &input.json().to_string())
        .await;
    insta::assert_snapshot!("standard_input", plugin.normalize(&result));
    // Copy a job: the server-side fields of the original are ignored.
    let result = plugin.run(&["get", "e", "-o=yaml"]).await;
    plugin.file(
        "copy.yaml",
        result.stdout.replace("name: e\n", "name: copy\n"),
    );
    plugin.file("other.yaml", Job::new("other", 0).json());
    let result = plugin.run(&["create", "-f", "copy.yaml,other.yaml"]).await;
    assert_eq!(result.code, Some(0), "{result}");
    assert_eq!(result.stdout.lines().count(), 2, "{result}");
    // A missing file prevents all creates; an existing job does not.
    let result = plugin
        .run(&["create", "-f", "a.yaml", "-f", "missing.yaml"])
        .await;
    insta::assert_snapshot!("missing", plugin.normalize(&result));
    plugin.file("f.yaml", Job::new("f", 0).json());
    let result = plugin
        .run(&["create", "-f", "a.yaml", "-f", "f.yaml"])
        .await;
    insta::assert_snapshot!("one_of_two", plugin.normalize(&result));
}

#[tokio::test]
async fn invalid_manifest_prevents_all_creates() {
    let plugin = Plugin::new().await;
    let bad = Job::new("bad", 0).with(|spec| {
        spec["backoffLimit"] = json!(-1);
        spec["cleanPodPolciy"] = json!("All");
    });
    plugin.file("bad.yaml", bad.json());
    plugin.file("good.yaml", Job::new("good", 0).json());
    let result = plugin
        .run(&["create", "-f", "good.yaml", "-f", "bad.yaml"])
        .await;
    insta::assert_snapshot!(plugin.normalize(&result));
    assert!(plugin.space.jobs().get_opt("good").await.unwrap().is_none());
}

#[tokio::test]
async fn nervexjob_manifests_are_converted() {
    let plugin = Plugin::new().await;
    let result = plugin.run_with(&["create", "-f", "-"], NERVEX).await;
    insta::assert_snapshot!(plugin.normalize(&result));
    let job = plugin.space.jobs().get("old").await.unwrap();
    assert!(job.spec.collector.is_some());
}

#[tokio::test]
async fn v2alpha1_manifests_are_converted() {
    let plugin = Plugin::new().await;
    let result = plugin.run_with(&["create", "-f", "-"], TASKS).await;
    insta::assert_snapshot!(plugin.normalize(&result));
    let job = plugin.space.jobs().get("dqn").await.unwrap();
    let unit = job.spec.collector.unwrap().unit.unwrap();
    assert_eq!((unit.size, unit.leader_template.is_some()), (3, true));

    let without_leader = TASKS.replace("type: evaluator", "replicas: 2");
    let result = plugin
        .run_with(&["create", "-f", "-"], &without_leader)
        .await;
    insta::assert_snapshot!("not_converted", plugin.normalize(&result));
}

#[tokio::test]
async fn create_wait_returns_when_the_job_runs() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::running(&plugin.space);
    let result = plugin
        .run(&["create", "j", "--image=i", "--wait", "--timeout=3m"])
        .await;
    insta::assert_snapshot!(plugin.normalize(&result));
    let status = plugin.space.until_phase("j", Phase::Running).await;
    assert_eq!(status.phase, Some(Phase::Running));

    let result = plugin
        .run(&[
            "create",
            "suspended",
            "--image=i",
            "--suspend",
            "--wait",
            "--timeout=3m",
        ])
        .await;
    insta::assert_snapshot!("suspended", plugin.normalize(&result));
}

#[tokio::test]
async fn create_wait_ends_when_the_job_fails() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::reaping(&plugin.space);
    let words = ["create", "j", "--image=i", "--wait", "--timeout=3m"];
    let fail = async {
        plugin.space.until_phase("j", Phase::Created).await;
        exit(&plugin.space.pods(), "j-coordinator", 3).await;
    };
    let (result, ()) = tokio::join!(plugin.run(&words), fail);
    insta::assert_snapshot!(plugin.normalize(&result));
}

#[tokio::test]
async fn create_follow_ends_when_stdout_is_closed() {
    let plugin = Plugin::new().await;
    let (mut create, mut lines) = plugin.start(&["create", "j", "--image=i", "--follow"]);
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.ends_with("/j created"), "{line}");
    drop(lines);
    let ended = timeout(Duration::from_secs(30), create.wait()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(0));
}
