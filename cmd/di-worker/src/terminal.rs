use std::io;

use rustix::{stdio::stdout, termios::tcgetwinsize};
use tokio::signal::unix::{SignalKind, signal};

/// Prints the size of the terminal, now and after each change.
///
/// # Errors
/// There is no terminal, or its changes cannot be received.
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
