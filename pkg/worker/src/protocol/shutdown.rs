//! Signals that terminate the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{Error, Result};

/// Receives SIGTERM and SIGINT. Install it first: process 1 of a container ignores signals without
/// a handler.
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

    /// Whether a signal was received by [`wait_requested`](Self::wait_requested).
    pub const fn was_requested(&self) -> bool {
        self.was_requested
    }

    /// Waits for a signal; returns at once if one was received.
    pub async fn wait_requested(&mut self) {
        if self.was_requested {
            return;
        }
        tokio::select! {
            _ = self.terminate.recv() => tracing::info!("received SIGTERM, shutting down"),
            _ = self.interrupt.recv() => tracing::info!("received SIGINT, shutting down"),
        }
        self.was_requested = true;
    }
}
