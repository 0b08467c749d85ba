//! The one error type of the runtime.

use std::path::PathBuf;

use crate::lifecycle::{Call, Status};

/// What can go wrong in a worker; messages say what was being done, the cause is the source.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable that the orchestrator sets in every pod is missing.
    #[error(
        "environment variable {0} is not set; the orchestrator sets it in every pod of a DIJob"
    )]
    MissingVariable(&'static str),

    /// A variable is set but cannot be understood. The value is not repeated: it may be a secret
    /// put there by mistake.
    #[error("environment variable {name} is not {expected}")]
    InvalidVariable {
        /// The variable.
        name: &'static str,
        /// What it should have been.
        expected: &'static str,
    },

    /// The shared folder cannot be written to.
    #[error(
        "storage folder {} is not writable; mount a volume that coordinator, collectors and learners share (spec.volumes) \
         there, let the user of the pod write to it (securityContext.fsGroup), or name another folder, or a bucket, with --storage",
        folder.display()
    )]
    StorageNotWritable {
        /// The folder that was tried.
        folder: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },

    /// What the storage is to be is not a folder, and no bucket either.
    #[error("--storage is not a folder, nor s3://BUCKET/PREFIX as it must be otherwise: {0}")]
    BadStorage(String),

    /// What a variable says about a bucket cannot be used. The value is not repeated.
    #[error("--storage cannot be got at: {name} {reason}")]
    StorageVariable {
        /// The variable.
        name: String,
        /// What is wrong with it, or what it must be.
        reason: String,
    },

    /// The bucket cannot be written to.
    #[error("--storage {} cannot be written to: {advice}", bucket.display())]
    BucketNotWritable {
        /// The part of it that was tried.
        bucket: PathBuf,
        /// What to change.
        advice: &'static str,
        /// Why it failed.
        #[source]
        source: Box<object_store::Error>,
    },

    /// Reading or writing one file of the storage failed.
    #[error("failed to {action} {}", path.display())]
    File {
        /// What was being done.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },

    /// A task named a path that is not below the storage.
    #[error("path {} is outside of the storage {}", path.display(), storage.display())]
    OutsideStorage {
        /// The path of the task.
        path: PathBuf,
        /// What it must be below.
        storage: PathBuf,
    },

    /// A file of the storage is not what it should be.
    #[error("{what} file is unusable: {reason}")]
    BadFile {
        /// Which kind of file was expected.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },

    /// A learner reported a model that is not newer than the one it was to train.
    #[error("model {to} was reported after model {from}, and versions only grow")]
    WentBack {
        /// The version that there was.
        from: u64,
        /// That of the report.
        to: u64,
    },

    /// A task cannot be done as it was asked.
    #[error("bad task: {0}")]
    BadTask(String),

    /// What is learned is no longer made of numbers.
    #[error("the training has diverged: a lower learning_rate may help")]
    Diverged,

    /// The computation of a task panicked or was cancelled.
    #[error("the computation of the task was lost")]
    TaskLost(#[source] tokio::task::JoinError),

    /// Nobody does a task any more that was taken on.
    #[error("the worker ended before the task was done")]
    TaskLeft,

    /// A paused replica takes no task on.
    #[error("it is paused and takes no task on")]
    Paused,

    /// Another replica takes no task on.
    #[error("{replica} takes no task on: {reason}")]
    GivenBack {
        /// Its name.
        replica: String,
        /// Its own words.
        reason: String,
    },

    /// A life-cycle handle was called that does not fit how the worker is.
    #[error("cannot {call} while it is {status}: {}", next_step_for(*status))]
    WrongStatus {
        /// What was asked for.
        call: Call,
        /// How it is.
        status: Status,
    },

    /// A life-cycle handle was called of one that leads others, before they came together.
    #[error("cannot {0} it: those that it leads are not there yet")]
    NotReady(Call),

    /// A replica did not heed a call.
    #[error("it answers: {0}")]
    Unheeded(String),

    /// What should be a replica has no life-cycle handles.
    #[error("what {url} answers is no report of a worker")]
    NoReport {
        /// What was called.
        url: String,
    },

    /// There is no such life-cycle handle.
    #[error("there is no handle {0}")]
    NoSuchCall(String),

    /// What a worker is to be configured with cannot be used.
    #[error("the configuration cannot be used: {0}")]
    BadConfig(String),

    /// A thread cannot be started.
    #[error("failed to start a thread")]
    Thread(#[source] std::io::Error),

    /// A thread panicked.
    #[error("the thread {0} panicked")]
    Panicked(&'static str),

    /// The network cannot be computed.
    #[error("the network cannot be computed")]
    Network(#[source] candle_core::Error),

    /// There is no terminal, or nothing can be heard of it.
    #[error("the size of the terminal cannot be told")]
    Terminal(#[source] std::io::Error),

    /// The port of the role cannot be listened on.
    #[error("failed to listen on port {port}")]
    Listen {
        /// The port.
        port: u16,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },

    /// The HTTP server of the role ended with an error.
    #[error("the HTTP server failed")]
    Serve(#[source] std::io::Error),

    /// The handlers of the signals that end the process cannot be installed.
    #[error("failed to listen for signals")]
    Signals(#[source] std::io::Error),

    /// The HTTP client could not be made.
    #[error("failed to set up the HTTP client")]
    HttpClient(#[source] reqwest::Error),

    /// A request got no usable answer.
    #[error("no answer from {url}")]
    Unreachable {
        /// What was called.
        url: String,
        /// Why it failed.
        #[source]
        source: reqwest::Error,
    },

    /// The replica endpoint refused for good; asking again would not help.
    #[error("the replica endpoint refused ({status}): {message}")]
    Refused {
        /// HTTP status code.
        status: u16,
        /// The endpoint's own words.
        message: String,
    },

    /// The replica endpoint failed in a way that may pass.
    #[error("the replica endpoint cannot serve now ({status}): {message}")]
    NotNow {
        /// HTTP status code.
        status: u16,
        /// The endpoint's own words.
        message: String,
    },

    /// The replica endpoint stayed away for too long.
    #[error("the replica endpoint did not grant the replicas within {seconds} s")]
    EndpointTimeout {
        /// How long it was tried.
        seconds: u64,
        /// The last failure.
        #[source]
        source: Box<Self>,
    },

    /// A replica URL is not `<pod>.<namespace>:<port>`.
    #[error("replica URL {0:?} is not <pod>.<namespace>:<port>")]
    BadReplicaUrl(String),

    /// The ranks of a learner did not come together.
    #[error("the ranks did not meet within {seconds} s: {reason}")]
    NotMet {
        /// How long they were waited for.
        seconds: u64,
        /// Who is missing, or what failed last.
        reason: String,
    },

    /// A rank cannot be trained with any more.
    #[error("rank {rank} is lost")]
    RankLost {
        /// Which one.
        rank: u32,
        /// What became of its connection.
        #[source]
        source: std::io::Error,
    },

    /// A rank does not answer, though its connection stands.
    #[error("rank {0} takes no task on: it is paused, or slow")]
    RankAbsent(u32),

    /// A rank is there, and does not run.
    #[error("rank {rank} ({url}) is {status}, and the ranks train together or not at all")]
    RankIdle {
        /// Which one.
        rank: usize,
        /// Where it is.
        url: String,
        /// How it is.
        status: Status,
    },

    /// A rank cannot do a task.
    #[error("rank {rank} cannot do the task: {reason}")]
    RankRefused {
        /// Which one.
        rank: u32,
        /// Its own words.
        reason: String,
    },

    /// A task failed by what also ends the worker.
    #[error("the worker ends: {0}")]
    WorkerEnds(String),

    /// The endpoint lists no rank 0 of an aggregator that takes tasks on.
    #[error("rank 0 is not there yet")]
    NoHead,

    /// A replica answered a task with an error.
    #[error("{replica} failed its task ({status}): {message}")]
    TaskFailed {
        /// Pod name.
        replica: String,
        /// HTTP status code.
        status: u16,
        /// The replica's own words.
        message: String,
    },
}

impl Error {
    /// Exit code of a process that ends with this error: 2 when the person who set the pod up must
    /// change something in it.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::StorageNotWritable { .. }
            | Self::BadStorage(_)
            | Self::StorageVariable { .. }
            | Self::BucketNotWritable { .. }
            | Self::MissingVariable(_)
            | Self::InvalidVariable { .. } => 2,
            _ => 1,
        }
    }

    /// Whether who has it can do no other task either, and must end.
    pub const fn is_fatal(&self) -> bool {
        matches!(self, Self::RankLost { .. })
    }

    /// Whether asking again later can help.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::NotNow { .. } | Self::Unreachable { .. } | Self::NoHead
        )
    }
}

impl From<candle_core::Error> for Error {
    /// Without the backtrace that is in its message with RUST_BACKTRACE: what is told of an error is one line.
    fn from(error: candle_core::Error) -> Self {
        match error {
            candle_core::Error::WithBacktrace { inner, .. } => Self::from(*inner),
            error => Self::Network(error),
        }
    }
}

/// What to do first.
const fn next_step_for(status: Status) -> &'static str {
    match status {
        Status::New => "configure it first",
        Status::Configured | Status::Running | Status::Paused => "pause it first",
        Status::Exiting | Status::Completed | Status::Error => "it has ended, or is about to",
    }
}

/// Result of the runtime.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One line with the error and all its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some libraries repeat the cause in their own message.
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
        let told = chain(&Error::from(error));
        assert_eq!(told, "the network cannot be computed: shape mismatch");
    }
}
