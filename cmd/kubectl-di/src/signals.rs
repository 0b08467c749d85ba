use std::process::ExitCode;

/// Waits for SIGINT or SIGTERM, and for SIGHUP if `at_terminal` is set.
///
/// Returns the exit code for the signal. From this call on, these signals no longer end the
/// process. SIGHUP is handled only if a terminal must be restored: nohup ignores SIGHUP, and a
/// handler would undo that.
#[cfg(unix)]
pub fn wait_for_signal(at_terminal: bool) -> impl Future<Output = i32> {
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

/// Waits for Ctrl-C, and returns the exit code for it.
#[cfg(not(unix))]
pub async fn wait_for_signal(_at_terminal: bool) -> i32 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => 130,
        Err(_) => std::future::pending().await,
    }
}

/// The exit code of a command that runs until a signal: SIGINT is its normal end.
pub fn exit_code_for(signal: i32) -> ExitCode {
    match u8::try_from(signal) {
        Ok(130) => ExitCode::SUCCESS,
        code => ExitCode::from(code.unwrap_or(1)),
    }
}
