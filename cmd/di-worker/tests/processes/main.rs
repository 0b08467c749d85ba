//! The worker as it runs in a pod, a process each.

#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

mod standalone;
mod ranks;
mod replicas;

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use di_runtime::{http, lifecycle::Report, wire::Envelope};
use reqwest::{Client, RequestBuilder};

struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits for a line with these words; what it says from there.
    fn wait_for_line(&mut self, words: &str) -> String {
        let mut said = String::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if let Some(at) = line.find(words) {
                return line[at..].to_owned();
            }
            said += &line;
            said.push('\n');
        }
        panic!("no {words:?} in {said}");
    }

    /// Sends a signal; the exit code.
    fn exit_code_after_signal(mut self, signal: &str) -> Option<i32> {
        let kill = format!("kill -{signal} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success(), "{kill}");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

struct LifecycleHandles {
    client: Client,
    url: String,
}

impl LifecycleHandles {
    /// Those of a worker on this machine.
    fn at(port: &str) -> Self {
        let url = format!("http://127.0.0.1:{port}/lifecycle");
        let client = http::new_client().unwrap();
        Self { client, url }
    }

    async fn status(&self) -> Report {
        send_for_report(self.client.get(&self.url)).await
    }

    async fn call(&self, name: &str) -> Report {
        send_for_report(self.client.post(format!("{}/{name}", self.url))).await
    }
}

async fn send_for_report(request: RequestBuilder) -> Report {
    let answer: Envelope = request.send().await.unwrap().json().await.unwrap();
    assert!(answer.success, "{}", answer.message);
    serde_json::from_value(answer.data).unwrap()
}
