use std::error::Error as _;

use di_api::Reason;
use kube::core::Status;

/// What the API server gives as the cause where a namespace is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

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
    #[error(
        "{kind} {name} exists and is not of this job; delete it, or create the job under another name"
    )]
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
    /// Whatever was done changed nothing, and is still to be done by what is known of the job: a watch is behind.
    #[error("nothing came of what was to be done")]
    InVain,
    /// The job was deleted meanwhile.
    #[error("the job is gone")]
    JobGone,
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
    /// All that [`Error::reason`] says, from what passes least by itself on.
    pub const REASONS: [Reason; 10] = [
        Reason::LeaseLost,
        Reason::WatchEnded,
        Reason::Invalid,
        Reason::NameConflict,
        Reason::Forbidden,
        Reason::QuotaExceeded,
        Reason::ApiError,
        Reason::Timeout,
        Reason::PreviousJobTerminating,
        Reason::Conflict,
    ];

    /// One word for events, conditions and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Api { .. } => match self.answer() {
                Some(status) if status.is_conflict() => Reason::Conflict,
                Some(status) if status.message.contains("exceeded quota") => Reason::QuotaExceeded,
                Some(status) if status.is_forbidden() => Reason::Forbidden,
                Some(status) if status.is_invalid() => Reason::Invalid,
                _ => Reason::ApiError,
            },
            Self::Timeout { .. } => Reason::Timeout,
            Self::Foreign { .. } => Reason::NameConflict,
            Self::Leftover { .. } => Reason::PreviousJobTerminating,
            // What the watch has yet to show, another wrote.
            Self::InVain => Reason::Conflict,
            // Nobody is told: nothing is left that it could be told of.
            Self::JobGone => Reason::ApiError,
            Self::WatchEnded => Reason::WatchEnded,
            Self::LeaseLost(_) => Reason::LeaseLost,
        }
    }

    /// Whether somebody else wrote first: nothing is wrong, the next look decides.
    pub fn is_conflict(&self) -> bool {
        self.reason() == Reason::Conflict
    }

    /// Whether it passes by itself, and soon: nobody need look at it.
    pub fn is_passing(&self) -> bool {
        self.is_conflict() || matches!(self, Self::Leftover { .. })
    }

    /// Whether nothing that is done for the job matters any more: it is gone, or its namespace is about to go and takes nothing new.
    pub fn is_moot(&self) -> bool {
        let namespace_ends = |status: &Status| {
            let mut causes = status.details.iter().flat_map(|details| &details.causes);
            causes.any(|cause| cause.reason == NAMESPACE_TERMINATING)
        };
        matches!(self, Self::JobGone) || self.answer().is_some_and(namespace_ends)
    }

    /// The same, of a write of the job itself: if there is none of its name, it is gone.
    pub(crate) fn of_the_job(self) -> Self {
        // Of a kind that is not served nothing is found either, but then no name is told.
        let gone = |status: &Status| {
            let told = status
                .details
                .as_ref()
                .is_some_and(|of| !of.name.is_empty());
            status.is_not_found() && told
        };
        if self.answer().is_some_and(gone) {
            Self::JobGone
        } else {
            self
        }
    }

    /// Whether a write may have been made although it was not answered so.
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Api { .. } => self.answer().is_none_or(|status| status.code >= 500),
            _ => false,
        }
    }

    /// Whether the same call may be answered otherwise a little later: the server or the way to it is ill, or somebody was faster.
    pub(crate) fn may_pass(&self) -> bool {
        let passes = |status: &Status| status.code == 429 || status.is_conflict();
        self.may_be_done() || self.answer().is_some_and(passes)
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(status: &Value) -> Error {
        let status = serde_json::from_value(status.clone()).unwrap();
        Error::Api {
            what: "try".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[test]
    fn of_a_name_that_is_taken_is_told_what_can_be_done() {
        let taken = Error::Foreign {
            kind: "pod",
            name: "p".to_owned(),
        };
        assert_eq!(
            taken.chain(),
            "pod p exists and is not of this job; delete it, or create the job under another name"
        );
    }

    #[test]
    fn nothing_matters_where_the_namespace_or_the_job_goes() {
        // As servers say it.
        let ends = refused(&json!({
            "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "pods \"p\" is forbidden: unable to create new content in namespace n because it is being terminated",
            "details": {"name": "p", "kind": "pods", "causes": [{
                "reason": "NamespaceTerminating", "field": "metadata.namespace",
                "message": "namespace n is being terminated",
            }]},
        }));
        assert!(ends.is_moot());
        let forbidden = json!({"status": "Failure", "reason": "Forbidden", "code": 403, "details": {"name": "p"}});
        assert!(!refused(&forbidden).is_moot());

        let gone = json!({"status": "Failure", "reason": "NotFound", "code": 404, "details": {"name": "j"}});
        assert!(!refused(&gone).is_moot(), "it may be another's");
        assert!(refused(&gone).of_the_job().is_moot());
        let unserved =
            json!({"status": "Failure", "reason": "NotFound", "code": 404, "details": {}});
        assert!(!refused(&unserved).of_the_job().is_moot());
    }
}
