use std::process::Stdio;

use tokio::process::Command;

use crate::Namespace;

/// How a command ended.
#[derive(Debug)]
pub struct Output {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

/// Runs `kubectl di -n <namespace> …`, as a user types it. `tests/e2e/run` puts the plugin on PATH.
///
/// # Panics
/// When kubectl is not there, or what it prints is not text.
pub async fn kubectl_di(namespace: &Namespace, args: &[&str]) -> Output {
    let output = Command::new("kubectl")
        .args(["di", "-n", &namespace.name])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .await
        .expect("kubectl");
    Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}
