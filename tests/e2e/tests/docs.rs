//! The commands of README and user guide, as they stand there. `tests/e2e/run` puts the plugin on PATH.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::{path::Path, process::Stdio, time::Duration};

use di_api::Phase;
use di_e2e::{Namespace, eventually, job, pod, status};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::timeout,
};

const README: &str = include_str!("../../../README.md");
const USER_GUIDE: &str = include_str!("../../../docs/user-guide.md");
/// Far above what any of them takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The first block of a language below a heading.
fn block<'a>(text: &'a str, heading: &str, language: &str) -> &'a str {
    let (_, below) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let (_, block) = below.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0
}

/// A shell in a folder of its own, whose kubectl goes to the namespace of a test.
struct Shell {
    folder: TempDir,
}

impl Shell {
    async fn new(ns: &Namespace) -> Self {
        let shell = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let config = "kubectl config view --raw --flatten >kubeconfig && KUBECONFIG=kubeconfig";
        let context = "kubectl config set-context --current --namespace";
        let set = format!("{config} {context} {}", ns.name);
        let status = bash(&set, shell.folder.path()).status().await.unwrap();
        assert!(status.success(), "{set}");
        shell
    }

    fn command(&self, line: &str) -> Command {
        let mut command = bash(line, self.folder.path());
        command.env("KUBECONFIG", self.folder.path().join("kubeconfig"));
        command
    }

    /// Runs it to its end, and returns what it printed.
    async fn run(&self, line: &str) -> String {
        let output = timeout(PATIENCE, self.command(line).output()).await;
        let output = output.unwrap_or_else(|_| panic!("{line}: no end")).unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        assert!(output.stderr.is_empty(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Looks on until a line has this text.
    async fn watch(&self, line: &str, text: &str) {
        let mut command = self.command(&format!("exec {line}"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let look = async { while !lines.next_line().await.unwrap().unwrap().contains(text) {} };
        timeout(PATIENCE, look).await.unwrap();
        child.kill().await.unwrap();
    }
}

fn bash(line: &str, folder: &Path) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", line]).current_dir(folder);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn the_job_of_the_readme_does_what_its_commands_say() {
    Namespace::with("readme", |ns| async move {
        let shell = Shell::new(&ns).await;
        let manifest = block(README, "## A job", "yaml");
        std::fs::write(shell.folder.path().join("cartpole.yaml"), manifest).unwrap();
        let mut printed = String::new();
        for line in block(README, "## A job", "sh").lines() {
            if line.contains(" -w ") {
                shell.watch(line, "Running").await;
            } else {
                printed += &shell.run(line).await;
            }
        }
        for expected in [
            "cartpole created",
            "cartpole-collector-",
            "solved",
            "deleted",
        ] {
            assert!(printed.contains(expected), "{expected}: {printed}");
        }
    })
    .await;
}

#[tokio::test]
async fn declared_replicas_are_changed_as_the_user_guide_says() {
    Namespace::with("user-guide", |ns| async move {
        let shell = Shell::new(&ns).await;
        let mut held = job("cartpole", &["hold"]);
        held.spec.collector = serde_json::from_value(json!({"template": pod(&["hold"])})).unwrap();
        ns.submit(&held).await;
        let running = |s: &di_api::DIJobStatus| s.phase == Some(Phase::Running);
        eventually("running", || status(&ns, "cartpole"), running).await;
        for line in block(USER_GUIDE, "### Declared, by the plugin", "sh").lines() {
            shell.run(line).await;
        }
        let all_ready = |s: &di_api::DIJobStatus| s.collectors_ready.as_deref() == Some("3/3");
        eventually("three collectors", || status(&ns, "cartpole"), all_ready).await;

        let (_, suspend) = USER_GUIDE.split_once("**Suspend:** `").unwrap();
        let suspend = suspend.split_once('`').unwrap().0;
        shell.run(&suspend.replace("NAME", "cartpole")).await;
        let suspended = |s: &di_api::DIJobStatus| s.phase == Some(Phase::Suspended);
        eventually("suspended", || status(&ns, "cartpole"), suspended).await;
    })
    .await;
}
