//! Signals that ask the process to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{Error, Result};

/// Becomes ready when the process is asked to end. Set up before anything else, as process 1 of a
/// container ignores signals that it has no handler for.
#[derive(Debug)]
pub struct Shutdown {
    terminate: Signal,
    interrupt: Signal,
    was_requested: bool,
}

impl Shutdown {
    /// Installs the handlers.
    pub fn install() -> Result<Self> {
        let signal = |kind| signal(kind).map_err(Error::Signals);
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            was_requested: false,
        })
    }

    /// Whether a signal was waited for, and came.
    pub const fn was_requested(&self) -> bool {
        self.was_requested
    }

    /// Waits for a signal, unless there was one.
    pub async fn wait_requested(&mut self) {
        if self.was_requested {
            return;
        }
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("asked to end (SIGTERM)"),
            _ = self.interrupt.recv() => tracing::info!("asked to end (SIGINT)"),
        }
        self.was_requested = true;
    }
}
