use std::io;
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};

use di_client::Cluster;
#[cfg(unix)]
use rustix::event::{PollFd, PollFlags, poll};

/// Waits until stdout is closed or the request timeout of a watch is over.
pub async fn stdout_closed_or_timeout(cluster: &Cluster) {
    tokio::select! {
        () = stdout_closed() => {}
        () = cluster.wait_request_timeout() => {}
    }
}

/// Waits until the reader of stdout closes the pipe, as `head` does.
///
/// Without this, a command that waits would notice the closed pipe only at its next write.
#[cfg(unix)]
pub async fn stdout_closed() {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(stdout) => wait_for_hangup(stdout).await,
        Err(_) => std::future::pending().await,
    }
}

/// Never returns: Windows reports a closed pipe only at the next write.
#[cfg(not(unix))]
pub async fn stdout_closed() {
    std::future::pending().await
}

#[cfg(unix)]
async fn wait_for_hangup(out: OwnedFd) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // A plain thread: unlike `spawn_blocking`, it does not delay the exit of the process.
    std::thread::spawn(move || {
        // With no events requested, poll reports only hang-ups and errors.
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
        // An error means that the receiver was dropped, so there is nothing to do.
        sender.send(()).ok();
    });
    receiver.await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn closed_pipe_is_noticed_without_a_write() {
        use std::time::Duration;

        use tokio::time::timeout;

        let (reader, writer) = io::pipe().unwrap();
        let mut hangup = std::pin::pin!(wait_for_hangup(writer.into()));
        let early = timeout(Duration::from_millis(50), &mut hangup).await;
        assert!(early.is_err(), "the reader is still open");
        drop(reader);
        timeout(Duration::from_secs(10), hangup).await.unwrap();
    }
}
