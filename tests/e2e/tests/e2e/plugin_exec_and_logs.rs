//! `kubectl di` commands that need a kubelet: exec, port-forward and logs.

use std::process::Stdio;

use di_api::Phase;
use di_apiserver_tests::Terminal;
use di_e2e::{
    Namespace, Output, WORKER_IMAGE, eventually, exec, idle_job, job, kubectl_di, status,
    wait_for_phase,
};
use futures::future::join_all;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

/// Starts an idle job with one collector.
async fn start_job(ns: &Namespace, job: &str) {
    ns.submit(&idle_job(job, 1, 0)).await;
    let ready = |s: &di_api::DIJobStatus| {
        s.phase == Some(Phase::Running) && s.collectors_ready.as_deref() == Some("1/1")
    };
    eventually("ready", || status(ns, job), ready).await;
}

/// Starts a plugin command that continues, with pipes for its output.
fn spawn_plugin(ns: &Namespace, args: &[&str]) -> Child {
    Command::new("kubectl")
        .args(["di", "-n", &ns.name])
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn exec_runs_in_the_selected_replica() {
    Namespace::with("inside", |ns| async move {
        start_job(&ns, "demo").await;
        let own = kubectl_di(&ns, &["exec", "demo", "--", "/app", "env"]).await;
        assert_eq!((own.code, own.stderr.as_str()), (Some(0), ""), "{own:?}");
        let name = |text: &str| text.contains("KUBERNETES_POD_NAME=demo-coordinator\n");
        assert!(name(&own.stdout), "{own:?}");
        let role = [
            "exec",
            "demo",
            "--role",
            "collector",
            "--index",
            "0",
            "--",
            "/app",
            "env",
        ];
        let collector = kubectl_di(&ns, &role).await;
        assert!(
            collector
                .stdout
                .contains("KUBERNETES_POD_NAME=demo-collector-"),
            "{collector:?}"
        );
        // Stdin at its end, and stdout that is no terminal.
        let input = kubectl_di(
            &ns,
            &["exec", "demo/coordinator", "-i", "--", "/app", "env"],
        )
        .await;
        assert!(name(&input.stdout), "{input:?}");
        let terminal = kubectl_di(&ns, &["exec", "demo", "-t", "--", "/app", "env"]).await;
        assert!(
            terminal.stdout.contains("=demo-coordinator\r\n"),
            "{terminal:?}"
        );

        let failed = kubectl_di(&ns, &["exec", "demo", "--", "/app", "nonsense"]).await;
        assert_eq!(failed.code, Some(2), "{failed:?}");
        assert!(
            failed
                .stderr
                .ends_with("command terminated with exit code 2\n"),
            "{failed:?}"
        );
        assert!(
            failed.stderr.contains("nonsense"),
            "the command's own error: {failed:?}"
        );
        let missing = kubectl_di(&ns, &["exec", "demo", "--", "/missing"]).await;
        assert!(
            missing.code != Some(0) && !missing.stderr.is_empty(),
            "{missing:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn exec_terminal_follows_local_size() {
    Namespace::with("terminal", |ns| async move {
        start_job(&ns, "demo").await;
        let dir = tempfile::tempdir().unwrap();
        let command = format!("kubectl di -n {} exec -it demo -- /app terminal", ns.name);
        let terminal = Terminal::open(dir.path(), 80, 20, &command);
        let shows = async |size: &str| {
            let description = format!("a terminal of {size}");
            terminal
                .until(&description, |screen| screen.contains(size))
                .await
        };
        shows("80 columns, 20 rows").await;
        terminal.resize(100, 30).await;
        shows("100 columns, 30 rows").await;
        // Typed keys reach the command, Ctrl-C too.
        terminal.press(&["C-c"]);
        terminal.until_ended(130).await;
    })
    .await;
}

#[tokio::test]
async fn port_forward_lasts_until_job_ends() {
    Namespace::with("forward", |ns| async move {
        start_job(&ns, "demo").await;
        let args = ["port-forward", "demo", "--pod-running-timeout=5m"];
        let mut forward = spawn_plugin(&ns, &args);
        let mut lines = BufReader::new(forward.stdout.take().unwrap()).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let here = first.strip_prefix("Forwarding from ").unwrap();
        let address = here.strip_suffix(" -> 22273").unwrap().to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{first}");
        let ask = async || {
            let mut connection = TcpStream::connect(&address).await.unwrap();
            let request = b"GET /healthz HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n";
            connection.write_all(request).await.unwrap();
            let mut answer = String::new();
            // The connection is closed if no process listens.
            connection.read_to_string(&mut answer).await.ok();
            answer
        };
        // The process may run before it listens.
        let is_answered = |answer: &String| answer.starts_with("HTTP/1.1 200");
        eventually("the program responds", ask, is_answered).await;
        let answers = join_all((0..8).map(|_| ask())).await;
        for answer in answers {
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"),
                "{answer}"
            );
        }
        let restarted = kubectl_di(&ns, &["restart", "demo", "--wait", "--timeout=5m"]).await;
        assert_eq!(restarted.code, Some(0), "{restarted:?}");
        eventually("the new coordinator responds", ask, is_answered).await;
        exec(&ns, "demo-coordinator", &["release", "0"]).await;
        let ended = forward.wait_with_output().await.unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("error: lost connection to pod"), "{said}");
        let over = kubectl_di(&ns, &["exec", "demo", "--", "/app", "env"]).await;
        assert!(
            over.stderr
                .contains("cannot exec into a container in a completed pod"),
            "{over:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn logs_select_by_time_and_container() {
    Namespace::with("chosen", |ns| async move {
        start_job(&ns, "demo").await;
        let all = [
            "logs",
            "demo",
            "--role",
            "all",
            "--all-containers",
            "--timestamps",
        ];
        let heard = |all: &Output| {
            let prefixes = ["[demo-coordinator/di-container] 2", "[demo-collector-"];
            prefixes.iter().all(|prefix| all.stdout.contains(prefix))
        };
        eventually("both are heard", || kubectl_di(&ns, &all), heard).await;
        let later = [
            "logs",
            "demo/coordinator",
            "--since-time=2100-01-01T00:00:00Z",
        ];
        assert_eq!(kubectl_di(&ns, &later).await.stdout, "");
        let earlier = [
            "logs",
            "demo/coordinator",
            "--since-time=2000-01-01T00:00:00Z",
        ];
        let earlier = kubectl_di(&ns, &earlier).await;
        assert!(
            earlier
                .stdout
                .contains("idle; waiting for a release request"),
            "{earlier:?}"
        );
        let lately = [
            "logs",
            "demo/coordinator",
            "--since=1h",
            "-c",
            "di-container",
        ];
        let lately = kubectl_di(&ns, &lately).await;
        assert!(
            lately
                .stdout
                .contains("idle; waiting for a release request"),
            "{lately:?}"
        );
        let before = kubectl_di(&ns, &["logs", "demo", "--previous"]).await;
        assert!(
            before.stderr.contains("previous terminated container"),
            "{before:?}"
        );
        let brief = kubectl_di(&ns, &["logs", "demo", "-f", "--request-timeout=15s"]).await;
        let why = (brief.code, brief.stderr.as_str());
        assert_eq!(why, (Some(1), "error: context deadline exceeded\n"));
        assert!(
            brief.stdout.contains("idle; waiting for a release request"),
            "{brief:?}"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let files = kubectl_di(&ns, &["logs", "demo", "--role=all", "--out-dir", path]).await;
        assert_eq!((files.code, files.stdout.lines().count()), (Some(0), 2));
        let file = folder.path().join("demo-coordinator/di-container.log");
        let file = std::fs::read_to_string(file).unwrap();
        assert!(
            file.contains("idle; waiting for a release request"),
            "{file}"
        );
        let wrong = kubectl_di(&ns, &["logs", "demo", "-c", "nope"]).await;
        assert_eq!(wrong.code, Some(1));
        assert!(
            wrong
                .stderr
                .contains("container nope is not valid for pod demo-coordinator"),
            "{wrong:?}"
        );
    })
    .await;
}

#[tokio::test]
async fn create_follow_exits_like_the_job() {
    Namespace::with("ends", |ns| async move {
        let job = |name: &'static str, program: &'static str| {
            let words = ["create", name, "--image", WORKER_IMAGE, "--follow", "--"];
            [&words[..], &["/app", program]].concat()
        };
        let good = kubectl_di(&ns, &job("good", "serial")).await;
        assert_eq!(good.code, Some(0), "{good:?}");
        assert!(good.stdout.starts_with("dijob."), "{good:?}");
        assert!(good.stdout.contains("solved: "), "{good:?}");
        let bad = kubectl_di(&ns, &job("bad", "nonsense")).await;
        assert_eq!(bad.code, Some(1), "{bad:?}");
        assert!(bad.stdout.contains("nonsense"), "its output: {bad:?}");
        let why = "error: dijobs/bad has ended (Failed: CoordinatorFailed, ";
        assert!(bad.stderr.contains(why), "{bad:?}");
    })
    .await;
}

/// Each pod logs this when it has started.
const IDLE_MESSAGE: &str = "idle; waiting for a release request";

/// Reads the output of a command until this number of pods has started.
async fn read_until_started(command: &mut Child, pods: usize) -> String {
    let out = command.stdout.as_mut().unwrap();
    let mut said = Vec::new();
    let started = |said: &[u8]| String::from_utf8_lossy(said).matches(IDLE_MESSAGE).count();
    while started(&said) < pods || !said.ends_with(b"\n") {
        assert!(out.read_buf(&mut said).await.unwrap() > 0, "it has ended");
    }
    String::from_utf8(said).unwrap()
}

#[tokio::test]
async fn followed_logs_continue_with_replacement_pods() {
    Namespace::with("followed", |ns| async move {
        start_job(&ns, "demo").await;
        let (mut coordinator, mut all) = (
            spawn_plugin(&ns, &["logs", "-f", "demo"]),
            spawn_plugin(&ns, &["logs", "-f", "demo", "--role=all"]),
        );
        // A log is deleted with its pod, so read it before the pod is replaced.
        let mut firsts = (
            read_until_started(&mut coordinator, 1).await,
            read_until_started(&mut all, 2).await,
        );
        let restart = async |words: &[&str]| {
            let said = kubectl_di(&ns, &[words, &["--wait", "--timeout=5m"]].concat()).await;
            assert_eq!(said.code, Some(0), "{said:?}");
        };
        restart(&["replicas", "restart", "demo", "--collectors"]).await;
        firsts.1 += &read_until_started(&mut all, 1).await;
        restart(&["restart", "demo"]).await;
        firsts.0 += &read_until_started(&mut coordinator, 1).await;
        firsts.1 += &read_until_started(&mut all, 1).await;
        exec(&ns, "demo-coordinator", &["release", "0"]).await;
        let (coordinator, all) =
            tokio::join!(coordinator.wait_with_output(), all.wait_with_output());
        for (first, followed, count) in [
            (firsts.0, coordinator.unwrap(), 2),
            (firsts.1, all.unwrap(), 4),
        ] {
            let said = first + &String::from_utf8(followed.stdout).unwrap();
            let complaints = String::from_utf8(followed.stderr).unwrap();
            assert_eq!(
                said.matches(IDLE_MESSAGE).count(),
                count,
                "each once: {said}\n{complaints}"
            );
            assert_eq!(followed.status.code(), Some(0), "{complaints}");
        }
    })
    .await;
}

#[tokio::test]
async fn followed_log_is_complete_or_says_what_is_missing() {
    Namespace::with("rotation", |ns| async move {
        ns.submit(&job("chatty", &["hold", "--log-bursts=3"])).await;
        wait_for_phase(&ns, "chatty", Phase::Running).await;
        let mut follow = spawn_plugin(&ns, &["logs", "-f", "chatty"]);
        exec(&ns, "chatty-coordinator", &["release", "0"]).await;
        // The reader is slower than the rotation of the log.
        wait_for_phase(&ns, "chatty", Phase::Succeeded).await;
        let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
        let (mut next, mut missing) = (0, 0);
        while let Some(line) = lines.next_line().await.unwrap() {
            let number = line
                .strip_prefix("line ")
                .map(|text| text.trim().parse().unwrap());
            let Some(number): Option<u32> = number else {
                continue;
            };
            assert!(number >= next, "line {number} again");
            missing += number - next;
            next = number + 1;
        }
        missing += 360_000 - next;
        let followed = follow.wait_with_output().await.unwrap();
        let complaints = String::from_utf8(followed.stderr).unwrap();
        assert_eq!(followed.status.code(), Some(0), "{complaints}");
        println!("{missing} lines are missing: {complaints}");
        let is_warned = complaints.contains("lines of pod chatty-coordinator after 20");
        assert_eq!(
            is_warned,
            missing > 0,
            "{missing} lines are missing: {complaints}"
        );
    })
    .await;
}
