use std::io;

use crossterm::terminal::{disable_raw_mode, enable_raw_mode, size};

/// While it lives, what is typed goes on untouched; afterwards the terminal is as it was, even if we panic.
pub struct RawMode;

impl RawMode {
    pub fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // There is nobody to tell.
        disable_raw_mode().ok();
    }
}

/// Tells the size of the terminal now, and whenever it changes.
#[cfg(unix)]
pub async fn resized(mut tell: impl FnMut(u16, u16)) {
    use tokio::signal::unix::{SignalKind, signal};

    let mut changes = signal(SignalKind::window_change()).ok();
    loop {
        if let Ok((width, height)) = size() {
            tell(width, height);
        }
        let Some(changes) = &mut changes else { return };
        if changes.recv().await.is_none() {
            return;
        }
    }
}

/// Tells the size of the terminal now, and whenever it changes.
#[cfg(not(unix))]
pub async fn resized(mut tell: impl FnMut(u16, u16)) {
    // There is no signal to wait for.
    let mut last = None;
    loop {
        let now = size().ok();
        if let Some((width, height)) = now.filter(|_| now != last) {
            tell(width, height);
        }
        last = now;
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    }
}

/// Waits until we are told to end; the exit code that says so. From this call on, such a signal ends nothing by itself. A hang-up is one where
/// a terminal has to be put back: elsewhere nohup may have it ignored, and that must stay so.
#[cfg(unix)]
pub fn ended(at_terminal: bool) -> impl Future<Output = i32> {
    use futures::future::{pending, select_all};
    use tokio::signal::unix::{SignalKind, signal};

    let hangup = at_terminal.then(|| (SignalKind::hangup(), 129));
    let signals = [
        (SignalKind::interrupt(), 130),
        (SignalKind::terminate(), 143),
    ];
    let waits = signals.into_iter().chain(hangup).map(|(kind, code)| {
        let signal = signal(kind);
        Box::pin(async move {
            match signal {
                Ok(mut signal) => drop(signal.recv().await),
                Err(_) => pending().await,
            }
            code
        })
    });
    let waits: Vec<_> = waits.collect();
    async move { select_all(waits).await.0 }
}

/// Waits until we are told to end; the exit code that says so.
#[cfg(not(unix))]
pub async fn ended(_at_terminal: bool) -> i32 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => 130,
        Err(_) => std::future::pending().await,
    }
}
