//! The commands of the README and the user guide are run, and their output is compared with the
//! guide. Comments in the guide say how to run special commands, see [`Rule`]. `tests/e2e/run` puts
//! the plugin on PATH.

use std::{path::Path, process::Stdio, time::Duration};

use di_api::DIJob;
use di_e2e::{Namespace, Rule, dry_run, eventually, is_as_shown, set_node_gpus, steps};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};
use regex::{Regex, escape};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::{gang::start_gangs, queueing::start_queues};

const README: &str = include_str!("../../../../README.md");
const USER_GUIDE: &str = include_str!("../../../../docs/user-guide.md");
const SHARED_CLUSTER: &str = include_str!("../../../../docs/shared-cluster.md");
const LARGE_MODELS: &str = include_str!("../../../../docs/large-models.md");
/// Much longer than any command takes.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the first block of a language below a heading.
fn block<'a>(text: &'a str, heading: &str, language: &str) -> &'a str {
    let (_, below) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let (_, block) = below.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0
}

/// A shell in a temporary folder, whose kubectl uses the namespace of the test.
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
        command.env("HOME", self.folder.path());
        command
    }

    /// Runs a command that must succeed, and returns its output.
    async fn run(&self, line: &str) -> String {
        let output = timeout(TIMEOUT, self.command(line).output()).await;
        let output = output.unwrap_or_else(|_| panic!("{line}: no end")).unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        let warnings = without_busy_warnings(&output.stderr);
        assert_eq!(warnings, "", "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a script that must exit with this code, and returns its output with errors.
    async fn run_with_code(&self, script: &str, code: i32) -> String {
        let (ended, printed) = self.run_script(script).await;
        assert_eq!(ended, Some(code), "{script}: {printed}");
        printed
    }

    /// Runs a script, and returns its exit code and its output with errors.
    async fn run_script(&self, script: &str) -> (Option<i32>, String) {
        let script = format!("exec 2>&1; set -euo pipefail; {script}");
        let output = timeout(TIMEOUT, self.command(&script).output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("{script}: no end"))
            .unwrap();
        let printed = without_busy_warnings(&output.stdout);
        (output.status.code(), printed)
    }

    /// Starts a command and waits until a line contains this text.
    async fn watch_until(&self, line: &str, text: &str) -> Watched {
        let mut command = self.command(&format!("exec {line}"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let look = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(text) {
                    return true;
                }
            }
            false
        };
        let seen = timeout(TIMEOUT, look).await;
        assert_eq!(seen, Ok(true), "{line}: never {text:?}");
        Watched {
            child,
            _lines: lines,
        }
    }
}

/// A command that keeps running.
struct Watched {
    child: Child,
    /// Kept open: without a reader the command would exit.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Watched {
    async fn end(mut self) {
        let ended = self.child.try_wait().unwrap();
        assert_eq!(ended, None, "it ends by itself");
        self.child.kill().await.unwrap();
    }
}

/// The output without warnings that a busy API server causes. The other tests keep it busy.
fn without_busy_warnings(output: &[u8]) -> String {
    let output = std::str::from_utf8(output).unwrap();
    let busy = ": pod not validated: the API server did not respond in time\n";
    let is_kept = |line: &&str| !(line.starts_with("Warning: ") && line.ends_with(busy));
    output.split_inclusive('\n').filter(is_kept).collect()
}

fn bash(line: &str, folder: &Path) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", line]).current_dir(folder);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

#[tokio::test]
async fn readme_commands_run_the_job() {
    Namespace::with("readme", |ns| async move {
        let shell = Shell::new(&ns).await;
        let manifest = block(README, "## Run your own job", "yaml");
        std::fs::write(shell.folder.path().join("cartpole.yaml"), manifest).unwrap();
        let mut printed = String::new();
        for line in block(README, "## Run your own job", "sh").lines() {
            if line.contains(" -w ") {
                shell.watch_until(line, "Running").await.end().await;
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

/// Runs the commands of a page, and compares what they print, after `everywhere` has replaced what
/// depends on the cluster.
async fn run_page(ns: &Namespace, page: &str, everywhere: impl Fn(String) -> String) {
    let shell = Shell::new(ns).await;
    let mut running = None;
    for step in steps(page).unwrap() {
        let printed = match step.rule {
            Rule::NotRun => continue,
            Rule::Until(text) => {
                shell.watch_until(step.script, text).await.end().await;
                continue;
            }
            Rule::WhileNext(text) => {
                running = Some(shell.watch_until(step.script, text).await);
                continue;
            }
            Rule::FailsHere(text) => {
                let printed = shell.run_with_code(step.script, 1).await;
                assert!(printed.contains(text), "{}: {printed}", step.script);
                continue;
            }
            Rule::UntilShown => {
                let shown = step.shown.unwrap_or_default();
                let is_so = |printed: &String| is_as_shown(shown, printed);
                let run = async || everywhere(shell.run_script(step.script).await.1);
                eventually(step.script, run, is_so).await
            }
            Rule::Fails => shell.run_with_code(step.script, 1).await,
            Rule::Ends => shell.run_with_code(step.script, 0).await,
        };
        if let Some(running) = running.take() {
            running.end().await;
        }
        let printed = everywhere(printed);
        let shown = step.shown.unwrap_or_default();
        assert!(
            is_as_shown(shown, &printed),
            "{}\nshown:\n{shown}\nprinted:\n{printed}",
            step.script
        );
    }
}

#[tokio::test]
async fn user_guide_commands_print_the_shown_output() {
    Namespace::with("user-guide", |ns| async move {
        // More than the guide needs: another test may use two GPUs of a node.
        set_node_gpus(&ns, 3).await;
        let nodes: Api<Node> = Api::all(ns.client.clone());
        let nodes = nodes.list(&ListParams::default()).await.unwrap();
        // Match whole words only, since an image may contain the name of a node.
        let word = |name: String| Regex::new(&format!(r"(?m)(^|\s){}(\s|$)", escape(&name)));
        let nodes = nodes.iter().map(ResourceExt::name_any).map(word);
        let nodes: Vec<_> = nodes.collect::<Result<_, _>>().unwrap();
        let everywhere = |printed: String| {
            let printed = printed.replace(&ns.name, "default");
            nodes.iter().fold(printed, |printed, node| {
                node.replace_all(&printed, "${1}node-1${2}").into_owned()
            })
        };
        run_page(&ns, USER_GUIDE, everywhere).await;
    })
    .await;
}

#[tokio::test]
async fn shared_cluster_commands_print_the_shown_output() {
    Namespace::with("shared-cluster", |ns| async move {
        let _controller = start_queues(&ns).await;
        let _scheduler = start_gangs(&ns).await;
        // The stand-in serves no positions.
        let everywhere = |printed: String| {
            let printed = printed.replace(&ns.name, "default");
            printed.replace("<unknown>", "0        ")
        };
        run_page(&ns, SHARED_CLUSTER, everywhere).await;
    })
    .await;
}

/// The job needs GPUs, so the API server only checks it and its pods.
#[tokio::test]
async fn large_models_manifest_is_accepted() {
    Namespace::with("large-models", |ns| async move {
        let manifest = block(LARGE_MODELS, "## Describe the job", "yaml");
        let job: DIJob = serde_saphyr::from_str(manifest).unwrap();
        let accepted = ns.api().create(&dry_run(), &job).await;
        assert!(accepted.is_ok(), "{accepted:?}");
    })
    .await;
}
