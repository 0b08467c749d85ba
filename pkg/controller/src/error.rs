use std::error::Error as _;

use di_api::refusals;
use kube::core::Status;

/// What can go wrong in a reconcile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A write or read was refused or did not come through.
    #[error("could not {what}")]
    Api {
        /// What was tried.
        what: String,
        /// The server's or the connection's word.
        #[source]
        source: Box<kube::Error>,
    },
    /// The server did not answer in time.
    #[error("could not {what}: no answer within {seconds} s")]
    Timeout {
        /// What was tried.
        what: String,
        /// The deadline.
        seconds: u64,
    },
    /// Somebody else's object has the name that one of ours needs.
    #[error("{kind} {name} exists and is not of this job; delete or rename it")]
    Foreign {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// Something of an earlier job has the name that one of ours needs, and is about to go.
    #[error("{kind} {name} is not of this job and has yet to go")]
    Leftover {
        /// Kind of the object.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A cache is not fed any more.
    #[error("a watch ended")]
    WatchEnded,
    /// Another process leads.
    #[error("the lease {0} was lost")]
    LeaseLost(String),
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// One word for events, conditions and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api { .. } => match self.answer() {
                Some(status) if status.is_conflict() => "Conflict",
                Some(status) if status.message.contains("exceeded quota") => {
                    refusals::QUOTA_EXCEEDED
                }
                Some(status) if status.is_forbidden() => refusals::FORBIDDEN,
                Some(status) if status.is_invalid() => refusals::INVALID,
                _ => "ApiError",
            },
            Self::Timeout { .. } => "Timeout",
            Self::Foreign { .. } => "NameTaken",
            Self::Leftover { .. } => "EarlierJobEnds",
            Self::WatchEnded => "WatchEnded",
            Self::LeaseLost(_) => "LeaseLost",
        }
    }

    /// Whether somebody else wrote first: nothing is wrong, the next look decides.
    pub fn is_conflict(&self) -> bool {
        self.reason() == "Conflict"
    }

    /// Whether it passes by itself, and soon: nobody need look at it.
    pub fn is_passing(&self) -> bool {
        self.is_conflict() || matches!(self, Self::Leftover { .. })
    }

    /// Whether a write may have been made although it was not answered so.
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Api { .. } => self.answer().is_none_or(|status| status.code >= 500),
            _ => false,
        }
    }

    /// What the server said, if it is the server that refused.
    pub(crate) fn answer(&self) -> Option<&Status> {
        let Self::Api { source, .. } = self else {
            return None;
        };
        match &**source {
            kube::Error::Api(status) => Some(status),
            _ => None,
        }
    }

    /// The message with those of its sources.
    pub fn chain(&self) -> String {
        // Of what the server said, its message is for people; the rest is for debuggers.
        if let Some(status) = self.answer() {
            return format!("{self}: {}", status.message);
        }
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        text
    }
}
