use std::process::Stdio;

use tokio::process::Command;

use crate::Namespace;

/// The result of a command.
#[derive(Debug)]
pub struct Output {
    /// Exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs `kubectl di -n <namespace> …` like a user. `tests/e2e/run` puts the plugin on PATH.
///
/// # Panics
/// If kubectl is missing, or its output is not UTF-8.
pub async fn kubectl_di(namespace: &Namespace, args: &[&str]) -> Output {
    run_kubectl(&[&["di", "-n", &namespace.name], args].concat()).await
}

/// Runs `kubectl -n <namespace> …`.
///
/// # Panics
/// As above.
pub async fn kubectl(namespace: &Namespace, args: &[&str]) -> Output {
    run_kubectl(&[&["-n", &namespace.name], args].concat()).await
}

/// Runs `kubectl …` without a namespace.
///
/// # Panics
/// As above.
pub async fn run_kubectl(args: &[&str]) -> Output {
    let output = Command::new("kubectl")
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
