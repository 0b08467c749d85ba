//! Errors of the reconciler, and which of them are transient, retryable or terminal.

use std::error::Error as _;

use di_api::Reason;
use di_cache::CallError;
use di_plan::GangScheduler;
use kube::core::Status;

/// Cause in the API server's response to a create in a namespace that is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// The end of messages about missing permissions for Kueue.
pub(crate) const GRANT_KUEUE_PERMISSIONS: &str = "to grant the permissions, run: kubectl di install --kueue, or with Helm set kueue.enabled=true";

/// Errors of a reconcile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server rejected a request, or the connection failed.
    #[error("cannot {operation}")]
    Api {
        /// Verb and object of the request.
        operation: String,
        /// Error of the server or of the connection.
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server did not respond in time.
    #[error("cannot {operation}: no response from the API server within {seconds} s")]
    Timeout {
        /// Verb and object of the request.
        operation: String,
        /// The timeout in seconds.
        seconds: u64,
    },
    /// A foreign object has a name that this job needs.
    #[error(
        "{kind} {name} exists and does not belong to this job; delete it, or create the job under another name"
    )]
    NameConflict {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// An object of a previous job has a name that this job needs. It is terminating.
    #[error("{kind} {name} of a previous job is still terminating")]
    PreviousJobTerminating {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// An object of this job has lost the label that the watch selects by, so it is deleted.
    #[error(
        "{kind} {name} of this job has lost its labels {}; it is deleted and created again",
        di_api::names::labels::SELECTOR
    )]
    OwnObjectNotWatched {
        /// Kind of the object.
        kind: &'static str,
        /// Name of the object.
        name: String,
    },
    /// The orchestrator lacks a permission for Kueue.
    #[error("cannot {operation}: {message}; {GRANT_KUEUE_PERMISSIONS}")]
    KueueForbidden {
        /// Verb and object of the request.
        operation: String,
        /// Message of the server.
        message: String,
    },
    /// A job has more pod sets than this version of Kueue allows.
    #[error("cannot {operation}; use fewer replica groups, or a newer Kueue")]
    TooManyPodSets {
        /// Verb and object of the request.
        operation: String,
        /// Error of the server.
        #[source]
        source: Box<kube::Error>,
    },
    /// The orchestrator lacks a permission for the groups of the gang scheduler.
    #[error(
        "cannot {operation}: {message}; to grant the permissions, run: kubectl di install --gang-scheduler={scheduler}"
    )]
    GangForbidden {
        /// Verb and object of the request.
        operation: String,
        /// Message of the server.
        message: String,
        /// Value of the flag.
        scheduler: String,
    },
    /// A foreign group has the name of the job's group.
    #[error("PodGroup {name} exists and does not belong to this job; delete it")]
    GangNameTaken {
        /// Name of the group.
        name: String,
    },
    /// The actions changed nothing, and are still required by the caches: a watch lags.
    #[error("reconcile made no progress; the watch cache may be stale")]
    NoProgress,
    /// The job was deleted during the reconcile.
    #[error("the DIJob was deleted")]
    JobGone,
    /// A watch task ended, so its cache is stale.
    #[error("a watch task ended, so the watch cache is stale; restart the process")]
    WatchEnded,
    /// Another process may lead now.
    #[error("lost lease {0}; another process may lead now")]
    LeaseLost(String),
}

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// All values of [`Error::reason`], the most severe first.
    pub const REASONS: [Reason; 14] = [
        Reason::LeaseLost,
        Reason::WatchEnded,
        Reason::Invalid,
        Reason::NameConflict,
        Reason::QueueForbidden,
        Reason::QueueTooManyShapes,
        Reason::GangNameTaken,
        Reason::GangForbidden,
        Reason::Forbidden,
        Reason::QuotaExceeded,
        Reason::ApiError,
        Reason::Timeout,
        Reason::PreviousJobTerminating,
        Reason::Conflict,
    ];

    /// Returns the reason for events, conditions and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Api { .. } => match self.api_status() {
                Some(status) if status.is_conflict() => Reason::Conflict,
                Some(status) if status.message.contains("exceeded quota") => Reason::QuotaExceeded,
                Some(status) if status.is_forbidden() => Reason::Forbidden,
                Some(status) if status.is_invalid() => Reason::Invalid,
                _ => Reason::ApiError,
            },
            Self::Timeout { .. } => Reason::Timeout,
            Self::KueueForbidden { .. } => Reason::QueueForbidden,
            Self::TooManyPodSets { .. } => Reason::QueueTooManyShapes,
            Self::GangForbidden { .. } => Reason::GangForbidden,
            Self::GangNameTaken { .. } => Reason::GangNameTaken,
            Self::NameConflict { .. } => Reason::NameConflict,
            Self::PreviousJobTerminating { .. } | Self::OwnObjectNotWatched { .. } => {
                Reason::PreviousJobTerminating
            }
            // The watch lags behind a write of another client.
            Self::NoProgress => Reason::Conflict,
            // That of a deleted job is never published.
            Self::JobGone => Reason::ApiError,
            Self::WatchEnded => Reason::WatchEnded,
            Self::LeaseLost(_) => Reason::LeaseLost,
        }
    }

    /// Returns true if another client wrote first. This is no fault: the next reconcile decides.
    pub fn is_conflict(&self) -> bool {
        self.reason() == Reason::Conflict
    }

    /// Returns true if the error disappears soon without any action of a user.
    pub fn is_transient(&self) -> bool {
        self.is_conflict() || self.reason() == Reason::PreviousJobTerminating
    }

    /// Returns true if no retry can help: the job is deleted, or its namespace is terminating.
    pub fn is_terminal(&self) -> bool {
        let namespace_is_terminating = |status: &Status| {
            let mut causes = status.details.iter().flat_map(|details| &details.causes);
            causes.any(|cause| cause.reason == NAMESPACE_TERMINATING)
        };
        matches!(self, Self::JobGone) || self.api_status().is_some_and(namespace_is_terminating)
    }

    /// The message of the server, if a permission is missing. Webhooks, quotas and terminating
    /// namespaces forbid requests too.
    fn missing_permission(&self) -> Option<&str> {
        let status = self.api_status().filter(|status| status.is_forbidden())?;
        let message = status.message.as_str();
        message.contains("is forbidden: User ").then_some(message)
    }

    /// Maps a missing permission and too many pod sets in the response to a request to Kueue's API.
    pub(crate) fn map_kueue_error(self) -> Self {
        let forbidden = self.missing_permission().map(str::to_owned);
        let has_too_many = self.api_status().is_some_and(has_too_many_pod_sets);
        match (self, forbidden) {
            (Self::Api { operation, .. }, Some(message)) => {
                Self::KueueForbidden { operation, message }
            }
            (Self::Api { operation, source }, None) if has_too_many => {
                Self::TooManyPodSets { operation, source }
            }
            (other, _) => other,
        }
    }

    /// Maps a missing permission in the response to a request for a group to
    /// [`Error::GangForbidden`].
    pub(crate) fn map_gang_forbidden(self, scheduler: &GangScheduler) -> Self {
        let Some(message) = self.missing_permission().map(str::to_owned) else {
            return self;
        };
        match self {
            Self::Api { operation, .. } => Self::GangForbidden {
                operation,
                message,
                scheduler: scheduler.to_string(),
            },
            other => other,
        }
    }

    /// Maps "not found" in the response to a write of the job itself to [`Error::JobGone`].
    pub(crate) fn map_job_not_found(self) -> Self {
        let is_not_found = self.api_status().is_some_and(Status::is_not_found);
        if is_not_found && !self.is_kind_not_served() {
            Self::JobGone
        } else {
            self
        }
    }

    /// Returns true if the API server does not serve the kind: then it returns 404 without a name.
    pub(crate) fn is_kind_not_served(&self) -> bool {
        self.api_status().is_some_and(|status| {
            let mut details = status.details.iter();
            // `is_not_found` needs a reason, and the text of this response has none.
            status.code == 404 && details.all(|details| details.name.is_empty())
        })
    }

    /// Returns true if a write may have succeeded although no success was returned.
    pub fn outcome_unknown(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Api { .. } => self.api_status().is_none_or(|status| status.code >= 500),
            _ => false,
        }
    }

    /// Returns true if the same request may succeed a little later: the API server or the
    /// connection fails, requests are throttled (429), or another client wrote first.
    pub(crate) fn is_retryable(&self) -> bool {
        let can_retry = |status: &Status| status.code == 429 || status.is_conflict();
        self.outcome_unknown() || self.api_status().is_some_and(can_retry)
    }

    /// Returns the `Status` of the response, if the API server rejected the request.
    pub(crate) fn api_status(&self) -> Option<&Status> {
        match self {
            Self::Api { source, .. } => status_of(source),
            _ => None,
        }
    }

    /// Returns the message together with the messages of the sources.
    pub fn chain(&self) -> String {
        // Of a `Status` only the message is meant for people.
        if let Self::Api { source, .. } | Self::TooManyPodSets { source, .. } = self
            && let Some(status) = status_of(source)
        {
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

fn status_of(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// Whether a Workload has more pod sets than this version of Kueue allows.
fn has_too_many_pod_sets(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut causes = causes.filter(|cause| cause.field == "spec.podSets");
    causes.any(|cause| cause.message.contains("Too many") || cause.message.contains("at most"))
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Api { operation, source } => Self::Api { operation, source },
            CallError::Timeout { operation, seconds } => Self::Timeout { operation, seconds },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rejected(status: &Value) -> Error {
        let status = serde_json::from_value(status.clone()).unwrap();
        Error::Api {
            operation: "try".to_owned(),
            source: Box::new(kube::Error::Api(Box::new(status))),
        }
    }

    #[test]
    fn name_conflict_message_names_both_remedies() {
        let conflict = Error::NameConflict {
            kind: "pod",
            name: "p".to_owned(),
        };
        assert_eq!(
            conflict.chain(),
            "pod p exists and does not belong to this job; delete it, or create the job under another name"
        );
    }

    /// The response to a request without the permission.
    fn forbidden(message: &str) -> Error {
        rejected(
            &json!({"status": "Failure", "reason": "Forbidden", "code": 403, "message": message}),
        )
    }

    #[test]
    fn forbidden_kueue_request_ends_with_the_remedy() {
        let message = "priorityclasses is forbidden: User \"di\" cannot list it";
        let error = forbidden(message).map_kueue_error();
        assert_eq!(error.reason(), Reason::QueueForbidden);
        assert_eq!(
            error.chain(),
            format!(
                "cannot try: {message}; to grant the permissions, run: kubectl di install --kueue, or with Helm set kueue.enabled=true"
            )
        );
    }

    #[test]
    fn forbidden_group_names_the_remedy() {
        let message = "podgroups is forbidden: User \"di\" cannot create it";
        let scheduler = "coscheduling:other".parse().unwrap();
        let error = forbidden(message).map_gang_forbidden(&scheduler);
        assert_eq!(error.reason(), Reason::GangForbidden);
        assert_eq!(
            error.chain(),
            format!(
                "cannot try: {message}; to grant the permissions, run: kubectl di install --gang-scheduler=coscheduling:other"
            )
        );
        let error = forbidden("admission webhook denied it").map_gang_forbidden(&scheduler);
        assert_eq!(error.reason(), Reason::Forbidden);
    }

    #[test]
    fn too_many_pod_sets_name_the_remedy() {
        let cause = json!({"field": "spec.podSets", "message": "must have at most 8 items"});
        let invalid = json!({
            "status": "Failure", "reason": "Invalid", "code": 422, "message": "too many",
            "details": {"causes": [cause]},
        });
        let error = rejected(&invalid).map_kueue_error();
        assert_eq!(error.reason(), Reason::QueueTooManyShapes);
        assert_eq!(
            error.chain(),
            "cannot try; use fewer replica groups, or a newer Kueue: too many"
        );
    }

    #[test]
    fn deleted_job_or_terminating_namespace_is_terminal() {
        // The response of a real API server.
        let terminating = rejected(&json!({
            "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "pods \"p\" is forbidden: unable to create new content in namespace n because it is being terminated",
            "details": {"name": "p", "kind": "pods", "causes": [{
                "reason": "NamespaceTerminating", "field": "metadata.namespace",
                "message": "namespace n is being terminated",
            }]},
        }));
        assert!(terminating.is_terminal());
        let forbidden = json!({"status": "Failure", "reason": "Forbidden", "code": 403, "details": {"name": "p"}});
        assert!(!rejected(&forbidden).is_terminal());

        let not_found = json!({"status": "Failure", "reason": "NotFound", "code": 404, "details": {"name": "j"}});
        assert!(
            !rejected(&not_found).is_terminal(),
            "another object may be missing"
        );
        assert!(rejected(&not_found).map_job_not_found().is_terminal());
        let not_served =
            json!({"status": "Failure", "reason": "NotFound", "code": 404, "details": {}});
        assert!(!rejected(&not_served).map_job_not_found().is_terminal());
        // The response for a kind whose definition was deleted.
        let no_page = json!({"status": "Failure", "reason": "Failed to parse error data", "code": 404, "message": "404 page not found"});
        for (response, expected) in [(not_found, false), (not_served, true), (no_page, true)] {
            let error = rejected(&response);
            assert_eq!(error.is_kind_not_served(), expected, "{error:?}");
        }
    }
}
