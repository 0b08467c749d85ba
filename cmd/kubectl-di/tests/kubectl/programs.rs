//! Runs kubectl and the plugin in the folder of a case.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::server::{Seen, Server};

fn kubectl_program() -> PathBuf {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").expect("run make unit");
    PathBuf::from(assets).join("kubectl")
}

/// Whether the kubectl is of the version that the differences of the corpus are about.
fn is_kubectl_of_corpus() -> bool {
    let mut command = Command::new(kubectl_program());
    let output = command.args(["version", "--client", "-o", "json"]).output();
    let version: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    version["clientVersion"]["minor"] == "20"
}

/// What a program did with a case.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub succeeded: bool,
    /// The last request for the job.
    pub seen: Option<Seen>,
    pub proxy_is_used: bool,
    /// How often the credential plugin ran.
    pub logins: usize,
}

/// The folder of a case, with an API server for it.
pub struct Sandbox {
    pub dir: TempDir,
    pub server: Server,
}

/// The output of a program.
pub struct Output {
    pub succeeded: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Sandbox {
    pub fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let server = Server::start(dir.path());
        Self { dir, server }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Replaces `$DIR`, `$HTTPS` and the other variables of the corpus.
    pub fn expand(&self, text: &str) -> String {
        let mut text = text.replace("$DIR", self.path().to_str().unwrap());
        for (name, value) in &self.server.variables {
            text = text.replace(name, value);
        }
        text
    }

    pub fn kubectl(&self, args: &[String], environment: &BTreeMap<String, String>) -> Output {
        let mut command = Command::new(kubectl_program());
        command.arg("--cache-dir").arg(self.path().join("cache"));
        self.run(command, args, environment)
    }

    pub fn plugin(&self, args: &[String], environment: &BTreeMap<String, String>) -> Output {
        let output = self.run(
            Command::new(env!("CARGO_BIN_EXE_kubectl-di")),
            args,
            environment,
        );
        for words in [
            // Secrets of the corpus.
            "secret",
            "87654321",
            // Words of Rust and of libraries.
            "panicked",
            "Options",
            "configured policy",
            "Failed to infer",
            "Os {",
        ] {
            assert!(
                !output.stderr.contains(words),
                "{args:?}: {}",
                output.stderr
            );
        }
        output
    }

    fn run(
        &self,
        mut command: Command,
        args: &[String],
        environment: &BTreeMap<String, String>,
    ) -> Output {
        let output = command
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path())
            .envs(environment)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        Output {
            succeeded: output.status.success(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// What the program did since the last call.
    pub fn take_outcome(&self, output: &Output) -> Outcome {
        let log = self.path().join("logins");
        let logins = std::fs::read_to_string(&log).unwrap_or_default();
        std::fs::remove_file(log).ok();
        Outcome {
            succeeded: output.succeeded,
            seen: self.server.take_last_seen(),
            proxy_is_used: self.server.take_proxy_use(),
            logins: logins.lines().count(),
        }
    }
}

/// The result of a case.
pub struct Comparison {
    pub agrees: bool,
    /// Whether the plugin fails exactly if the case says so.
    pub is_expected: bool,
    /// What both programs did.
    pub outcomes: String,
}

/// Compares all cases, several at a time. Each must agree or be different for a reason. Newer
/// versions of kubectl may do as the plugin does.
///
/// # Panics
/// With all cases that do not, or in which the plugin succeeds or fails unexpectedly.
pub fn check_all<T: Sync>(
    cases: &[T],
    name: impl Fn(&T) -> &str + Sync,
    difference: impl Fn(&T) -> Option<&str> + Sync,
    compare: impl Fn(&T) -> Comparison + Sync,
) {
    let must_differ = is_kubectl_of_corpus();
    let (next, faults) = (Mutex::new(cases.iter()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let Some(case) = next.lock().unwrap().next() else {
                return;
            };
            let result = compare(case);
            let is_as_described = match difference(case) {
                Some(_) => !(result.agrees && must_differ),
                None => result.agrees,
            };
            if result.is_expected && is_as_described {
                continue;
            }
            let fault = format!("{}: {}", name(case), result.outcomes);
            faults.lock().unwrap().push(fault);
        }
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(work);
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(
        faults.is_empty(),
        "{} cases:\n{}",
        faults.len(),
        faults.join("\n")
    );
}
