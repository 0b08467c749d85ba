//! `kubectl di` on a real cluster, called like a user. `tests/e2e/run` puts the plugin on PATH.

use std::{io::Write, process::Stdio, time::Duration};

use di_api::{DIJobStatus, Phase};
use di_e2e::{
    MISNAMED_MESSAGE, Namespace, Output, eventually, exec, idle_job, job, kubectl, kubectl_di,
    misnamed_job, owned_pods, status, wait_for_phase,
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::timeout,
};

fn manifest(content: &serde_json::Value) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    file.write_all(content.to_string().as_bytes()).unwrap();
    file
}

fn running(status: &DIJobStatus) -> bool {
    status.phase == Some(Phase::Running)
}

fn columns(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Names of a job's collectors.
async fn collectors(ns: &Namespace, job: &str) -> Vec<String> {
    let pods = owned_pods(ns, job).await.into_iter();
    pods.filter_map(|pod| pod.metadata.name)
        .filter(|name| name.contains("-collector-"))
        .collect()
}

#[tokio::test]
async fn plugin_creates_shows_scales_and_deletes_job() {
    Namespace::with("plugin", |ns| async move {
        let wanted = idle_job("demo", 1, 0);
        let file = manifest(&json!(wanted));
        let path = file.path().to_str().unwrap();

        let dry = kubectl_di(&ns, &["create", "-f", path, "--dry-run=server"]).await;
        assert_eq!(
            dry.stdout, "dijob.diengine.opendilab.org/demo created (server dry run)\n",
            "{dry:?}"
        );
        let created = kubectl_di(&ns, &["create", "-f", path]).await;
        assert_eq!(
            (created.code, created.stdout.as_str()),
            (Some(0), "dijob.diengine.opendilab.org/demo created\n")
        );
        let again = kubectl_di(&ns, &["create", "-f", path]).await;
        assert_eq!(again.code, Some(1));
        assert!(
            again
                .stderr
                .starts_with("Error from server (AlreadyExists): "),
            "{again:?}"
        );

        eventually(
            "ready",
            || status(&ns, "demo"),
            |s| running(s) && s.collectors_ready.as_deref() == Some("1/1"),
        )
        .await;
        let shown = kubectl_di(&ns, &["get", "demo"]).await;
        let lines: Vec<_> = shown.stdout.lines().collect();
        assert_eq!(
            columns(lines[0]),
            ["NAME", "PHASE", "COLLECTORS", "LEARNERS", "RESTARTS", "AGE"]
        );
        assert_eq!(
            columns(lines[1])[..5],
            ["demo", "Running", "1/1", "0/0", "0"],
            "{shown:?}"
        );

        let added = kubectl_di(
            &ns,
            &["replicas", "add", "demo", "--collectors", "1", "--wait"],
        )
        .await;
        assert_eq!(
            (added.code, added.stdout.lines().next()),
            (
                Some(0),
                Some("dijob.diengine.opendilab.org/demo scaled: collectors 1 -> 2")
            ),
            "{added:?}"
        );
        let listed = kubectl_di(&ns, &["replicas", "list", "demo"]).await;
        let running = listed
            .stdout
            .lines()
            .filter(|line| columns(line).contains(&"Running"))
            .count();
        assert_eq!(running, 3, "--wait has waited: {listed:?}");
        let removed = kubectl_di(&ns, &["replicas", "delete", "demo", "--collectors", "2"]).await;
        assert_eq!(
            removed.stdout,
            "dijob.diengine.opendilab.org/demo scaled: collectors 2 -> 0\n"
        );
        eventually("gone", || owned_pods(&ns, "demo"), |pods| pods.len() == 1).await;
        let too_many = kubectl_di(&ns, &["replicas", "delete", "demo", "--collectors", "1"]).await;
        assert_eq!(too_many.code, Some(1), "{too_many:?}");

        let deleted = kubectl(&ns, &["delete", "dijob", "demo"]).await;
        assert_eq!(
            deleted.stdout,
            "dijob.diengine.opendilab.org \"demo\" deleted\n"
        );
        eventually("nothing left", || owned_pods(&ns, "demo"), Vec::is_empty).await;
        let none = kubectl_di(&ns, &["get"]).await;
        assert_eq!((none.code, none.stdout.as_str()), (Some(0), ""));
        assert_eq!(
            none.stderr,
            format!("No resources found in {} namespace.\n", ns.name)
        );
    })
    .await;
}

#[tokio::test]
async fn followed_logs_end_with_job_and_name_pods() {
    Namespace::with("logs", |ns| async move {
        ns.submit(&idle_job("talks", 2, 0)).await;
        eventually(
            "running",
            || status(&ns, "talks"),
            |s| running(s) && s.collectors_ready.as_deref() == Some("2/2"),
        )
        .await;
        let names = collectors(&ns, "talks").await;
        let heard = |all: &Output| {
            let mut names = names.iter();
            names.all(|name| all.stdout.contains(&format!("[{name}] ")))
        };
        let args = ["logs", "talks", "--role", "collector"];
        eventually("all are heard", || kubectl_di(&ns, &args), heard).await;
        let follow = tokio::spawn({
            let ns = ns.clone();
            async move { kubectl_di(&ns, &["logs", "talks", "-f"]).await }
        });
        exec(&ns, "talks-coordinator", &["release", "0"]).await;
        let followed = follow.await.unwrap();
        assert_eq!(followed.code, Some(0), "{followed:?}");
        assert!(
            followed.stdout.contains("exiting with code 0"),
            "{followed:?}"
        );
        wait_for_phase(&ns, "talks", Phase::Succeeded).await;
    })
    .await;
}

#[tokio::test]
async fn followed_role_logs_include_later_replicas() {
    Namespace::with("later", |ns| async move {
        ns.submit(&idle_job("grows", 1, 0)).await;
        let ready = |count: &'static str| {
            move |s: &DIJobStatus| s.collectors_ready.as_deref() == Some(count)
        };
        eventually("one", || status(&ns, "grows"), ready("1/1")).await;
        let mut follow = Command::new("kubectl")
            .args(["di", "-n", &ns.name, "logs", "grows", "-f"])
            .args(["--role", "collector"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let old = collectors(&ns, "grows").await.remove(0);
        assert!(first.starts_with(&format!("[{old}] ")), "{first}");

        let added = kubectl_di(&ns, &["replicas", "add", "grows", "--collectors", "1"]).await;
        assert_eq!(added.code, Some(0), "{added:?}");
        let other = |line: &str| line.contains("-collector-") && !line.contains(&old);
        while !other(&lines.next_line().await.unwrap().expect("the log continues")) {}
        exec(&ns, "grows-coordinator", &["release", "0"]).await;
        // The log ends with the job and its collectors.
        while lines.next_line().await.unwrap().is_some() {}
        assert_eq!(follow.wait().await.unwrap().code(), Some(0));
    })
    .await;
}

#[tokio::test]
async fn watch_exits_when_its_output_is_closed() {
    Namespace::with("unread", |ns| async move {
        ns.submit(&job("still", &["hold"])).await;
        wait_for_phase(&ns, "still", Phase::Running).await;
        let mut watch = Command::new("kubectl")
            .args(["di", "-n", &ns.name, "get", "still", "-w"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        lines.next_line().await.unwrap().unwrap();
        drop(lines);
        let ended = timeout(Duration::from_secs(120), watch.wait()).await;
        assert_eq!(ended.unwrap().unwrap().code(), Some(0));
    })
    .await;
}

#[tokio::test]
async fn foreground_deletion_waits_for_pods() {
    Namespace::with("foreground", |ns| async move {
        ns.submit(&idle_job("waits", 1, 0)).await;
        let ready = |s: &DIJobStatus| running(s) && s.collectors_ready.as_deref() == Some("1/1");
        eventually("ready", || status(&ns, "waits"), ready).await;
        let deleted = kubectl(&ns, &["delete", "dijob", "waits", "--cascade=foreground"]).await;
        assert_eq!(deleted.code, Some(0), "{deleted:?}");
        assert!(owned_pods(&ns, "waits").await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn plugin_errors_match_kubectl() {
    Namespace::with("mistakes", |ns| async move {
        let nope = kubectl_di(&ns, &["get", "nope"]).await;
        assert_eq!(nope.code, Some(1));
        assert_eq!(
            nope.stderr,
            "Error from server (NotFound): dijobs.diengine.opendilab.org \"nope\" not found\n"
        );
        let file = manifest(&json!(misnamed_job("bad")));
        let refused = kubectl_di(&ns, &["create", "-f", file.path().to_str().unwrap()]).await;
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr.contains(MISNAMED_MESSAGE), "{refused:?}");
    })
    .await;
}
