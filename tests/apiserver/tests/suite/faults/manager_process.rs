//! A manager that is a process of its own, to be killed as the kernel kills: nothing of it gets another turn.

use std::process::{Child, Command, Stdio};

use di_controller::Settings;

/// The process, which is killed with SIGKILL when this is dropped.
pub(crate) struct ManagerProcess(Child);

impl ManagerProcess {
    /// Starts one that reaches the API server at this URL.
    pub(crate) fn start(url: &str, settings: &Settings) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_di-reconciler"))
            .arg(url)
            .arg(settings.call_timeout.as_millis().to_string())
            .stdin(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for ManagerProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
