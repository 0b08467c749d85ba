//! A manager in its own process, for tests that kill it with SIGKILL.

use std::process::{Child, Command, Stdio};

use di_controller::Settings;

/// The manager process; dropping it sends SIGKILL.
pub(crate) struct ManagerProcess(Child);

impl ManagerProcess {
    /// Starts a manager that uses the API server at this URL.
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
