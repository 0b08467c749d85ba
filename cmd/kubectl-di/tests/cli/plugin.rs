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

/// A namespace of its own for a test, and what it takes to call the plugin for it.
pub struct Plugin {
    /// The namespace.
    pub space: Space,
    /// A folder of its own, where the plugin is run and which is also its home.
    dir: TempDir,
}

/// How a call ended. As text, it is what a snapshot holds.
#[derive(Debug)]
pub struct Said {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl fmt::Display for Said {
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
    /// Calls, within little time, until it has come to look at the job, whose trouble it tells.
    pub async fn until_told(&self, args: &[&str], trouble: &str) -> Said {
        eventually("it has looked", async || {
            let said = self.run(args).await;
            if said.stderr.contains(trouble) {
                Ok(said)
            } else {
                Err(said.to_string())
            }
        })
        .await
    }

    /// Waits until a call is let through: the server's own cache of roles has to hear of new ones.
    pub async fn until_may(&self, args: &[&str]) {
        eventually("the right is in force", async || {
            let said = self.run(args).await;
            if said.code == Some(0) {
                Ok(())
            } else {
                Err(said.to_string())
            }
        })
        .await;
    }

    /// In a new namespace, which the kubeconfig names.
    pub async fn new() -> Self {
        Self::at(Space::new().await)
    }

    /// In a namespace that is there.
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

    /// The folder that the plugin is run in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file into it, and returns where it is.
    pub fn file(&self, name: &str, content: impl fmt::Display) -> PathBuf {
        let path = self.dir.path().join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        write!(file, "{content}").unwrap();
        path
    }

    /// A call of the plugin that has yet to be made.
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

    /// Calls it.
    pub async fn run(&self, args: &[&str]) -> Said {
        Said::of(self.command(args).output().await.unwrap())
    }

    /// Starts it, for what it prints while it runs.
    pub fn start(&self, args: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut child = self.command(args).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    }

    /// Calls it in a terminal of this size.
    pub fn terminal(&self, width: u16, height: u16, args: &[&str]) -> Terminal {
        self.shell(width, height, &format!("kubectl-di {}", args.join(" ")))
    }

    /// Runs a line of a shell that knows the plugin, in a terminal of this size.
    pub fn shell(&self, width: u16, height: u16, line: &str) -> Terminal {
        let dir = self.dir().display();
        let program = Path::new(env!("CARGO_BIN_EXE_kubectl-di"));
        let folder = program.parent().unwrap().display();
        let command = format!(
            "export HOME={dir} KUBECONFIG={dir}/config PATH={folder}:$PATH; unset NO_COLOR; {line}"
        );
        Terminal::open(self.dir(), width, height, &command)
    }

    /// Calls it several times, and returns what would be read on a terminal.
    pub async fn session(&self, calls: &[&[&str]]) -> String {
        let mut read = Vec::new();
        for args in calls {
            let said = self.run(args).await;
            read.push(format!("$ kubectl di {}\n{said}\n", args.join(" ")));
        }
        read.concat()
    }

    /// Calls it with something on its standard input.
    pub async fn run_with(&self, args: &[&str], input: &str) -> Said {
        let mut command = self.command(args);
        let command = command.stdin(Stdio::piped());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // It may have seen enough before the end.
        stdin.write_all(input.as_bytes()).await.ok();
        drop(stdin);
        Said::of(child.wait_with_output().await.unwrap())
    }

    /// The same, whatever the version of Kubernetes, and on any day.
    pub fn lasting_anywhere(&self, said: &impl fmt::Display) -> String {
        // Newer servers tell in more places when something was written.
        let text = self.lasting(said).replace(" at TIME", "");
        let text = Regex::new(r"\bv1\.\d+\.\d+\b")
            .unwrap()
            .replace_all(&text, "KUBERNETES");
        let day = Regex::new(r"\b20\d\d-\d\d-\d\d\b").unwrap();
        day.replace_all(&text, "DAY").into_owned()
    }

    /// What is the same at each run: of what was said, without the namespace, the random parts of names, and times.
    pub fn lasting(&self, said: &impl fmt::Display) -> String {
        let text = said.to_string().replace(&self.space.namespace, "NAMESPACE");
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

/// Notes a call and what it said, where a snapshot holds several.
pub fn note(all: &mut String, words: &str, said: &Said) {
    for part in ["$ ", words, "\n", &said.to_string()] {
        all.push_str(part);
    }
}

/// Ages are what the clock makes of them, and the columns behind them follow.
pub fn ageless(text: &str) -> String {
    let ages = Regex::new(r"\b\d+[smh](\d+[smh])?\b").unwrap();
    let gaps = Regex::new(r"\b(AGE|Age) {2,}").unwrap();
    let text = ages.replace_all(text, "AGE");
    gaps.replace_all(&text, "$1   ").into_owned()
}

impl Said {
    /// Of a call that was made otherwise.
    pub fn of(output: std::process::Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
