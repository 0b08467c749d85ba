use std::io;

use rustix::{stdio::stdout, termios::tcgetwinsize};
use tokio::signal::unix::{SignalKind, signal};

/// Tells the size of the terminal, now and whenever it changes, for ever.
///
/// # Errors
/// When there is none, or its changes cannot be heard of.
pub async fn show_size() -> io::Result<()> {
    let mut changes = signal(SignalKind::window_change())?;
    loop {
        let size = tcgetwinsize(stdout())?;
        println!("{} columns, {} rows", size.ws_col, size.ws_row);
        if changes.recv().await.is_none() {
            return Ok(());
        }
    }
}
