use crate::Error;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingState {
    /// No problem.
    Ok,
    /// The check could not run.
    Unknown,
    /// A possible problem.
    Warning,
    /// Something does not work.
    Error,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Severity.
    pub state: FindingState,
    /// Observed state or problem.
    pub message: String,
    /// How to fix the problem.
    pub remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, FindingState::Ok, message)
    }

    pub(crate) fn warning(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, FindingState::Warning, message)
    }

    pub(crate) fn error(check: &'static str, message: impl Into<String>) -> Self {
        Self::new(check, FindingState::Error, message)
    }

    pub(crate) fn new(
        check: &'static str,
        state: FindingState,
        message: impl Into<String>,
    ) -> Self {
        Self {
            check,
            state,
            message: message.into(),
            remedy: None,
        }
    }

    #[must_use]
    pub(crate) fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// The finding of a check that failed. Missing permissions are no fault of the cluster.
    pub(crate) fn from_error(check: &'static str, error: &Error) -> Self {
        match error {
            Error::Server(status) if status.is_forbidden() => {
                Self::new(check, FindingState::Unknown, status.message.clone()).with_remedy(
                    "ask an administrator to check it, or for the permission to read it",
                )
            }
            error => Self::error(check, error.to_string())
                .with_remedy("try again; if the error remains, see the log of the API server"),
        }
    }
}
