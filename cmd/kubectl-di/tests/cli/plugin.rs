use std::{
    fmt,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
};

use di_apiserver_tests::{Space, Terminal, eventually};
use regex::Regex;
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// Runs the plugin in a namespace of the test.
pub struct Plugin {
    /// The namespace.
    pub space: Space,
    /// The working directory and home directory of the plugin.
    dir: TempDir,
}

/// The result of a call. Its text is the content of snapshots.
#[derive(Debug)]
pub struct CallResult {
    /// The exit code; none if a signal ended the plugin.
    pub code: Option<i32>,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

impl fmt::Display for CallResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.stdout)?;
        for line in self.stderr.lines() {
            writeln!(f, "stderr: {line}")?;
        }
        match self.code {
            Some(0) => Ok(()),
            Some(code) => writeln!(f, "exit code {code}"),
            None => writeln!(f, "ended by a signal"),
        }
    }
}

impl Plugin {
    /// Repeats a call until its stderr contains the error.
    pub async fn run_until_error(&self, args: &[&str], trouble: &str) -> CallResult {
        eventually("it has looked", async || {
            let result = self.run(args).await;
            if result.stderr.contains(trouble) {
                Ok(result)
            } else {
                Err(result.to_string())
            }
        })
        .await
    }

    /// Repeats a call until it is allowed: the server's RBAC cache has a delay.
    pub async fn run_until_allowed(&self, args: &[&str]) {
        eventually("the permission is in force", async || {
            let result = self.run(args).await;
            if result.code == Some(0) {
                Ok(())
            } else {
                Err(result.to_string())
            }
        })
        .await;
    }

    /// Creates a namespace, and a kubeconfig for it.
    pub async fn new() -> Self {
        Self::at(Space::new().await)
    }

    /// Creates a kubeconfig for an existing namespace.
    pub fn at(space: Space) -> Self {
        let dir = TempDir::new().unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {
                "server": space.server.url(),
                "certificate-authority": space.server.dir().join("ca.crt"),
            }}],
            "users": [{"name": "admin", "user": {"token": space.server.token()}}],
            "contexts": [{"name": "test", "context": {
                "cluster": "test", "user": "admin", "namespace": space.namespace,
            }}],
            "current-context": "test",
        });
        std::fs::write(dir.path().join("config"), kubeconfig.to_string()).unwrap();
        Self { space, dir }
    }

    /// The working directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file into the working directory, and returns its path.
    pub fn file(&self, name: &str, content: impl fmt::Display) -> PathBuf {
        let path = self.dir.path().join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        write!(file, "{content}").unwrap();
        path
    }

    /// Builds the command of a call.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-di"));
        command
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("KUBECONFIG", self.dir.path().join("config"))
            .args(args)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs the plugin.
    pub async fn run(&self, args: &[&str]) -> CallResult {
        CallResult::of(self.command(args).output().await.unwrap())
    }

    /// Starts the plugin, and returns the lines of its stdout.
    pub fn start(&self, args: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut child = self.command(args).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    }

    /// Runs the plugin in a terminal of this size.
    pub fn terminal(&self, width: u16, height: u16, args: &[&str]) -> Terminal {
        self.shell(width, height, &format!("kubectl-di {}", args.join(" ")))
    }

    /// Runs a shell command with the plugin on the PATH, in a terminal of this size.
    pub fn shell(&self, width: u16, height: u16, line: &str) -> Terminal {
        let dir = self.dir().display();
        let program = Path::new(env!("CARGO_BIN_EXE_kubectl-di"));
        let folder = program.parent().unwrap().display();
        let command = format!(
            "export HOME={dir} KUBECONFIG={dir}/config PATH={folder}:$PATH; unset NO_COLOR; {line}"
        );
        Terminal::open(self.dir(), width, height, &command)
    }

    /// Runs several calls, and returns their transcript.
    pub async fn session(&self, calls: &[&[&str]]) -> String {
        let mut read = Vec::new();
        for args in calls {
            let result = self.run(args).await;
            read.push(format!("$ kubectl di {}\n{result}\n", args.join(" ")));
        }
        read.concat()
    }

    /// Runs the plugin with standard input.
    pub async fn run_with(&self, args: &[&str], input: &str) -> CallResult {
        let mut command = self.command(args);
        let command = command.stdin(Stdio::piped());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // The plugin may exit before it has read everything.
        stdin.write_all(input.as_bytes()).await.ok();
        drop(stdin);
        CallResult::of(child.wait_with_output().await.unwrap())
    }

    /// Also masks the versions of the plugin and of Kubernetes, and dates.
    pub fn normalize_versions(&self, result: &impl fmt::Display) -> String {
        // Newer servers include the time of writes in more messages, and this text.
        let text = self
            .normalize(result)
            .replace(di_client::VERSION, "VERSION")
            .replace(" at TIME", "")
            .replace("failed to call webhook: ", "");
        let text = Regex::new(r"\bv1\.\d+\.\d+\b")
            .unwrap()
            .replace_all(&text, "KUBERNETES");
        let day = Regex::new(r"\b20\d\d-\d\d-\d\d\b").unwrap();
        day.replace_all(&text, "DAY").into_owned()
    }

    /// Masks the namespace, random suffixes of names, times and UIDs.
    pub fn normalize(&self, result: &impl fmt::Display) -> String {
        let text = result
            .to_string()
            .replace(&self.space.namespace, "NAMESPACE");
        let parts = [
            (
                r"-(collector|learner|aggregator|ddp-learner)-[a-z0-9]{5}\b",
                "-$1-XXXXX",
            ),
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
            (
                r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
                "UID",
            ),
        ];
        parts.into_iter().fold(text, |text, (found, by)| {
            Regex::new(found)
                .unwrap()
                .replace_all(&text, by)
                .into_owned()
        })
    }
}

/// Adds a call and its result to a transcript.
pub fn add_call(all: &mut String, words: &str, result: &CallResult) {
    for part in ["$ ", words, "\n", &result.to_string()] {
        all.push_str(part);
    }
}

/// Masks ages and the width of their columns.
pub fn mask_ages(text: &str) -> String {
    let ages = Regex::new(r"\b\d+[smh](\d+[smh])?\b").unwrap();
    let gaps = Regex::new(r"\b(AGE|Age) {2,}").unwrap();
    let text = ages.replace_all(text, "AGE");
    gaps.replace_all(&text, "$1   ").into_owned()
}

impl CallResult {
    /// The result of a finished process.
    pub fn of(output: std::process::Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
