//! Tests of the worker process as it runs in a pod.

#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

mod ranks;
mod replicas;
mod standalone;

use std::{
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Command, Stdio},
};

use di_worker_lib::{
    lifecycle::Report,
    protocol::{http, wire::Envelope},
};
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

    /// Waits for a line with these words; returns the line from there.
    fn wait_for_line(&mut self, words: &str) -> String {
        let mut lines = String::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if let Some(at) = line.find(words) {
                return line[at..].to_owned();
            }
            lines += &line;
            lines.push('\n');
        }
        panic!("no {words:?} in {lines}");
    }

    /// Sends a signal; returns the exit code.
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
    /// The life-cycle routes of a worker on this machine.
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
