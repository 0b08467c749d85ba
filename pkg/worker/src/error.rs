//! The error type of the worker.

use std::path::PathBuf;

use crate::lifecycle::status::{Call, CallError};

/// An error of a worker. The message names the action; the source is the cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable that the orchestrator sets in every pod is missing.
    #[error(
        "environment variable {0} is not set; the orchestrator sets it in every pod of a DIJob"
    )]
    MissingVariable(&'static str),

    /// A variable is invalid. The value is not repeated: it may be a secret.
    #[error("environment variable {name} is not {expected}")]
    InvalidVariable {
        /// The variable.
        name: &'static str,
        /// The expected value.
        expected: &'static str,
    },

    /// The shared folder is not writable.
    #[error(
        "storage folder {} is not writable; mount a volume that coordinator, collectors and learners share (spec.volumes) \
         there, let the user of the pod write to it (securityContext.fsGroup), or name another folder with --storage",
        folder.display()
    )]
    StorageNotWritable {
        /// The folder that was tried.
        folder: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },

    /// A task names a file that is not in the storage folder.
    #[error("path {} is not in the storage folder: all roles must mount it at the same place", .0.display())]
    NotInStorage(PathBuf),

    /// A file operation failed.
    #[error("failed to {action} {}", path.display())]
    File {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },

    /// A stored file is invalid.
    #[error("{kind} file is invalid: {reason}")]
    BadFile {
        /// The expected kind of file.
        kind: &'static str,
        /// The problem.
        reason: String,
    },

    /// A task is invalid.
    #[error("bad task: {0}")]
    BadTask(String),

    /// The gradients are no longer finite.
    #[error("the training has diverged: a lower learning_rate may help")]
    Diverged,

    /// The computation of a task panicked or was cancelled.
    #[error("the computation of the task panicked or was cancelled")]
    TaskLost(#[source] tokio::task::JoinError),

    /// The worker ended while a task was waiting.
    #[error("the worker ended before the task was done")]
    TaskLeft,

    /// A paused replica rejects tasks.
    #[error("the replica is paused and takes no tasks")]
    Paused,

    /// Another replica returned a task.
    #[error("replica {replica} takes no tasks: {reason}")]
    GivenBack {
        /// The replica.
        replica: String,
        /// Its reason.
        reason: String,
    },

    /// A life-cycle call is not possible.
    #[error(transparent)]
    Call(#[from] CallError),

    /// A call to a control panel whose replicas are not ready.
    #[error("cannot {0}: its ranks are not ready, try again later")]
    NotReady(Call),

    /// A replica rejected a call.
    #[error("the replica answered: {0}")]
    Unheeded(String),

    /// A URL has no life-cycle routes.
    #[error("the response of {url} is not a worker report")]
    NoReport {
        /// The URL.
        url: String,
    },

    /// A configuration is invalid.
    #[error("invalid configuration: {0}")]
    BadConfig(String),

    /// A thread cannot be started.
    #[error("failed to start a thread")]
    Thread(#[source] std::io::Error),

    /// A thread panicked.
    #[error("the thread {0} panicked")]
    Panicked(&'static str),

    /// The network computation failed.
    #[error("cannot compute the network")]
    Network(#[source] candle_core::Error),

    /// No terminal.
    #[error("cannot read the size of the terminal")]
    Terminal(#[source] std::io::Error),

    /// Listening on the port failed.
    #[error("failed to listen on port {port}")]
    Listen {
        /// The port.
        port: u16,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },

    /// The HTTP server failed.
    #[error("the HTTP server failed")]
    Serve(#[source] std::io::Error),

    /// The signal handlers cannot be installed.
    #[error("failed to listen for signals")]
    Signals(#[source] std::io::Error),

    /// The HTTP client cannot be created.
    #[error("failed to set up the HTTP client")]
    HttpClient(#[source] reqwest::Error),

    /// A request got no response.
    #[error("no response from {url}")]
    Unreachable {
        /// The URL.
        url: String,
        /// Why it failed.
        #[source]
        source: reqwest::Error,
    },

    /// The replica endpoint rejected the request; terminal.
    #[error("the replica endpoint refused ({status}): {message}")]
    Refused {
        /// HTTP status code.
        status: u16,
        /// The endpoint's message.
        message: String,
    },

    /// The replica endpoint failed; retryable.
    #[error("the replica endpoint cannot serve the request now ({status}): {message}")]
    NotNow {
        /// HTTP status code.
        status: u16,
        /// The endpoint's message.
        message: String,
    },

    /// A replica URL is not `<pod>.<namespace>:<port>`.
    #[error("replica URL {0:?} is not <pod>.<namespace>:<port>")]
    BadReplicaUrl(String),

    /// The rendezvous of the ranks failed.
    #[error("not all ranks joined within {seconds} s: {reason}")]
    RendezvousTimeout {
        /// The timeout.
        seconds: u64,
        /// The missing ranks, or the last error.
        reason: String,
    },

    /// The connection to a rank failed.
    #[error("lost rank {rank}")]
    RankLost {
        /// The rank.
        rank: u32,
        /// The connection error.
        #[source]
        source: std::io::Error,
    },

    /// A rank does not acknowledge a task, though it is connected.
    #[error("rank {0} does not take the task: it is paused or slow")]
    RankAbsent(u32),

    /// A rank cannot load a task.
    #[error("rank {rank} cannot load the task: {reason}")]
    RankRefused {
        /// The rank.
        rank: u32,
        /// Its reason.
        reason: String,
    },

    /// A fatal error of a task, which ends the worker.
    #[error("the worker ends: {0}")]
    WorkerEnds(String),

    /// The ranks of an aggregator are not known.
    #[error("the ranks have not joined")]
    NoRanks,

    /// A replica failed a task.
    #[error("replica {replica} failed its task ({status}): {message}")]
    TaskFailed {
        /// Pod name.
        replica: String,
        /// HTTP status code.
        status: u16,
        /// The replica's message.
        message: String,
    },
}

impl Error {
    /// The exit code: 2 when the user must change the setup of the pod.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::StorageNotWritable { .. }
            | Self::MissingVariable(_)
            | Self::InvalidVariable { .. } => 2,
            _ => 1,
        }
    }

    /// Whether the worker must end after this error.
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::RankLost { .. })
    }

    /// Whether a retry can help.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::NotNow { .. } | Self::Unreachable { .. })
    }
}

impl From<candle_core::Error> for Error {
    /// Drops the backtrace, which RUST_BACKTRACE adds to the message: errors are logged in one
    /// line.
    fn from(error: candle_core::Error) -> Self {
        match error {
            candle_core::Error::WithBacktrace { inner, .. } => Self::from(*inner),
            error => Self::Network(error),
        }
    }
}

/// The result type of the worker.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One line with the error and all its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some libraries repeat the cause in their message.
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use std::backtrace::Backtrace;

    use super::*;

    #[test]
    fn network_error_is_logged_in_one_line() {
        let error = candle_core::Error::WithBacktrace {
            inner: Box::new(candle_core::Error::Msg("shape mismatch".to_owned())),
            backtrace: Box::new(Backtrace::force_capture()),
        };
        let line = chain(&Error::from(error));
        assert_eq!(line, "cannot compute the network: shape mismatch");
    }
}
