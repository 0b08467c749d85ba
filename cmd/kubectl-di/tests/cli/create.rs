use std::time::Duration;

use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, exit};
use serde_json::json;
use tokio::time::timeout;

use crate::plugin::{Plugin, note};

const NERVEX: &str = "
apiVersion: nervex.sensetime.com/v1alpha1
kind: NerveXJob
metadata: {name: old}
spec:
  cleanPodPolicy: ALL
  coordinator: {template: {spec: {containers: [{name: nervex-container, image: i}]}}}
  collector: {template: {spec: {containers: [{name: nervex-container, image: i}]}}}
";

#[tokio::test]
async fn a_job_needs_no_manifest() {
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
    let said = plugin.run(&shown).await;
    insta::assert_snapshot!("manifest", plugin.lasting(&said));

    let said = plugin
        .run(&[&words[..], &["--dry-run=server"]].concat())
        .await;
    insta::assert_snapshot!("server_dry_run", plugin.lasting(&said));
    let said = plugin.run(&words).await;
    insta::assert_snapshot!("created", plugin.lasting(&said));
    let said = plugin.run(&words).await;
    insta::assert_snapshot!("already_there", plugin.lasting(&said));
    let job = plugin.space.jobs().get("cartpole").await.unwrap();
    assert_eq!(job.metadata.labels.unwrap()["team"], "rl");
}

#[tokio::test]
async fn flags_that_make_no_sense_are_told_of() {
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
        let said = plugin.run(words).await;
        assert_eq!(said.code, Some(1), "{words:?}: {said}");
        note(&mut all, &words.join(" "), &said);
    }
    let all = all.replace(plugin.dir().to_str().unwrap(), "DIR");
    insta::assert_snapshot!(plugin.lasting(&all));
    assert!(plugin.space.writes_of("kubectl-di").await.is_empty());
}

#[tokio::test]
async fn several_files_folders_and_standard_input_are_read() {
    let plugin = Plugin::new().await;
    std::fs::create_dir_all(plugin.dir().join("jobs/more")).unwrap();
    for name in ["a", "b", "jobs/c", "jobs/more/d"] {
        let job = name.rsplit('/').next().unwrap();
        plugin.file(&format!("{name}.yaml"), Job::new(job, 0).json());
    }
    let said = plugin
        .run(&["create", "-f", "a.yaml", "-f", "b.yaml", "-f", "jobs", "-R"])
        .await;
    insta::assert_snapshot!("files", plugin.lasting(&said));
    let input = Job::new("e", 0);
    let said = plugin
        .run_with(&["create", "-f", "-", "-o=name"], &input.json().to_string())
        .await;
    insta::assert_snapshot!("standard_input", plugin.lasting(&said));
    // As one copies a job: what a cluster says of it does not hold for the copy.
    let said = plugin.run(&["get", "e", "-o=yaml"]).await;
    plugin.file(
        "copy.yaml",
        said.stdout.replace("name: e\n", "name: copy\n"),
    );
    plugin.file("other.yaml", Job::new("other", 0).json());
    let said = plugin.run(&["create", "-f", "copy.yaml,other.yaml"]).await;
    assert_eq!(said.code, Some(0), "{said}");
    assert_eq!(said.stdout.lines().count(), 2, "{said}");
    // What can be created is, and what cannot is told of.
    let said = plugin
        .run(&["create", "-f", "a.yaml", "-f", "missing.yaml"])
        .await;
    insta::assert_snapshot!("missing", plugin.lasting(&said));
    plugin.file("f.yaml", Job::new("f", 0).json());
    let said = plugin
        .run(&["create", "-f", "a.yaml", "-f", "f.yaml"])
        .await;
    insta::assert_snapshot!("one_of_two", plugin.lasting(&said));
}

#[tokio::test]
async fn nothing_is_sent_while_there_is_a_fault() {
    let plugin = Plugin::new().await;
    let bad = Job::new("bad", 0).with(|spec| {
        spec["backoffLimit"] = json!(-1);
        spec["cleanPodPolciy"] = json!("All");
    });
    plugin.file("bad.yaml", bad.json());
    plugin.file("good.yaml", Job::new("good", 0).json());
    let said = plugin
        .run(&["create", "-f", "good.yaml", "-f", "bad.yaml"])
        .await;
    insta::assert_snapshot!(plugin.lasting(&said));
    assert!(plugin.space.jobs().get_opt("good").await.unwrap().is_none());
}

#[tokio::test]
async fn manifests_of_the_predecessor_are_converted() {
    let plugin = Plugin::new().await;
    let said = plugin.run_with(&["create", "-f", "-"], NERVEX).await;
    insta::assert_snapshot!(plugin.lasting(&said));
    let job = plugin.space.jobs().get("old").await.unwrap();
    assert!(job.spec.collector.is_some());
    let said = plugin.run_with(&["delete", "-f", "-"], NERVEX).await;
    assert_eq!(said.code, Some(0), "{said}");
}

#[tokio::test]
async fn it_is_waited_until_a_job_runs() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::running(&plugin.space);
    let said = plugin
        .run(&["create", "j", "--image=i", "--wait", "--timeout=3m"])
        .await;
    insta::assert_snapshot!(plugin.lasting(&said));
    let status = plugin.space.until_phase("j", Phase::Running).await;
    assert_eq!(status.phase, Some(Phase::Running));

    let said = plugin
        .run(&[
            "create",
            "held",
            "--image=i",
            "--suspend",
            "--wait",
            "--timeout=3m",
        ])
        .await;
    insta::assert_snapshot!("held", plugin.lasting(&said));
}

#[tokio::test]
async fn a_job_that_fails_is_not_waited_for() {
    let plugin = Plugin::new().await;
    let _manager = plugin.space.manager("manager");
    let _kubelet = Kubelet::reaping(&plugin.space);
    let words = ["create", "j", "--image=i", "--wait", "--timeout=3m"];
    let fail = async {
        plugin.space.until_phase("j", Phase::Created).await;
        exit(&plugin.space.pods(), "j-coordinator", 3).await;
    };
    let (said, ()) = tokio::join!(plugin.run(&words), fail);
    insta::assert_snapshot!(plugin.lasting(&said));
}

#[tokio::test]
async fn a_job_is_followed_while_anybody_reads() {
    let plugin = Plugin::new().await;
    let (mut create, mut lines) = plugin.start(&["create", "j", "--image=i", "--follow"]);
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.ends_with("/j created"), "{line}");
    drop(lines);
    let ended = timeout(Duration::from_secs(30), create.wait()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(0));
}
