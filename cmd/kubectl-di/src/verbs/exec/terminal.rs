use std::io;

use crossterm::terminal::{disable_raw_mode, enable_raw_mode, size};

/// Raw mode of the terminal. Dropping the value restores the terminal, also after a panic.
pub struct RawMode;

impl RawMode {
    /// Switches the terminal to raw mode: keys are passed on unchanged.
    pub fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // An error cannot be returned from here.
        disable_raw_mode().ok();
    }
}

/// Sends the size of the terminal now and after every change.
#[cfg(unix)]
pub async fn send_terminal_sizes(mut send: impl FnMut(u16, u16)) {
    use tokio::signal::unix::{SignalKind, signal};

    let mut changes = signal(SignalKind::window_change()).ok();
    loop {
        if let Ok((width, height)) = size() {
            send(width, height);
        }
        let Some(changes) = &mut changes else { return };
        if changes.recv().await.is_none() {
            return;
        }
    }
}

/// Sends the size of the terminal now and after every change.
#[cfg(not(unix))]
pub async fn send_terminal_sizes(mut send: impl FnMut(u16, u16)) {
    // Windows has no signal for a new size, so the size is polled.
    let mut last = None;
    loop {
        let now = size().ok();
        if let Some((width, height)) = now.filter(|_| now != last) {
            send(width, height);
        }
        last = now;
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    }
}
