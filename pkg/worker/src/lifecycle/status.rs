use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A call that is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call does not fit the status of the worker.
    #[error("cannot {call} while it is {status}: {}", next_step_for(*status))]
    WrongStatus {
        /// The call.
        call: Call,
        /// The status.
        status: Status,
    },

    /// Unknown life-cycle call.
    #[error("unknown life-cycle call {0:?}: use configure, start, pause or exit")]
    Unknown(String),
}

/// The status of a worker. It is polled only while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Not configured.
    New,
    /// Configured and not started.
    Configured,
    /// Polled.
    Running,
    /// Started, then paused.
    Paused,
    /// About to end.
    Exiting,
    /// Ended after an exit call.
    Completed,
    /// Ended by an error.
    Error,
}

impl Status {
    /// All statuses.
    pub const ALL: [Self; 7] = [
        Self::New,
        Self::Configured,
        Self::Running,
        Self::Paused,
        Self::Exiting,
        Self::Completed,
        Self::Error,
    ];

    /// Whether the worker is polled.
    pub const fn is_running(self) -> bool {
        matches!(self, Self::Running)
    }

    /// Whether the worker is about to end or has ended.
    pub const fn is_exiting(self) -> bool {
        matches!(self, Self::Exiting | Self::Completed | Self::Error)
    }

    /// The status after a call. A call that changes nothing succeeds, so calls can be repeated.
    pub fn next_status(self, call: Call) -> Result<Self, CallError> {
        match (call, self) {
            (_, Self::Completed | Self::Error)
            | (Call::Configure | Call::Start | Call::Pause, Self::Exiting)
            | (Call::Configure, Self::Running)
            | (Call::Start, Self::New) => Err(CallError::WrongStatus { call, status: self }),
            (Call::Configure, Self::New | Self::Configured | Self::Paused) => Ok(Self::Configured),
            (Call::Start, Self::Configured | Self::Running | Self::Paused) => Ok(Self::Running),
            (Call::Pause, Self::Running | Self::Paused) => Ok(Self::Paused),
            (Call::Pause, Self::New | Self::Configured) => Ok(self),
            (Call::Exit, _) => Ok(Self::Exiting),
        }
    }

    /// The name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Configured => "configured",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Exiting => "exiting",
            Self::Completed => "completed",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A life-cycle call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Apply a configuration.
    Configure,
    /// Start polling.
    Start,
    /// Stop polling and keep the process.
    Pause,
    /// End the worker.
    Exit,
}

impl Call {
    /// All calls.
    pub const ALL: [Self; 4] = [Self::Configure, Self::Start, Self::Pause, Self::Exit];

    /// The name in the URL path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Start => "start",
            Self::Pause => "pause",
            Self::Exit => "exit",
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl FromStr for Call {
    type Err = CallError;

    fn from_str(text: &str) -> Result<Self, CallError> {
        let found = Self::ALL.into_iter().find(|call| call.as_str() == text);
        found.ok_or_else(|| CallError::Unknown(text.to_owned()))
    }
}

/// The advice for a rejected call.
const fn next_step_for(status: Status) -> &'static str {
    match status {
        Status::New => "configure it first",
        Status::Configured | Status::Running | Status::Paused => "pause it first",
        Status::Exiting | Status::Completed | Status::Error => {
            "the worker has ended or is about to end"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transitions_match_table() {
        use Status::{Completed, Configured, Error, Exiting, New, Paused, Running};
        let rejected = None;
        // For new, configured, running, paused, exiting, completed and error, in this order.
        let table = [
            (
                Call::Configure,
                [
                    Some(Configured),
                    Some(Configured),
                    rejected,
                    Some(Configured),
                ],
            ),
            (
                Call::Start,
                [rejected, Some(Running), Some(Running), Some(Running)],
            ),
            (
                Call::Pause,
                [Some(New), Some(Configured), Some(Paused), Some(Paused)],
            ),
            (Call::Exit, [Some(Exiting); 4]),
        ];
        for (call, lively) in table {
            let exiting = (call == Call::Exit).then_some(Exiting);
            let all = lively.into_iter().chain([exiting, rejected, rejected]);
            for (status, wanted) in Status::ALL.into_iter().zip(all) {
                assert_eq!(
                    status.next_status(call).ok(),
                    wanted,
                    "{call} while {status}"
                );
            }
        }
        assert!(Completed.is_exiting() && Error.is_exiting());
    }

    #[test]
    fn flags_follow_from_status() {
        for status in Status::ALL {
            assert!(!(status.is_running() && status.is_exiting()), "{status}");
            let json = serde_json::to_value(status).unwrap();
            assert_eq!(json, status.as_str());
        }
        let neither = [Status::New, Status::Configured, Status::Paused];
        assert!(neither.iter().all(|s| !s.is_running() && !s.is_exiting()));
    }

    #[test]
    fn rejected_call_error_gives_advice() {
        let message = |status: Status, call| status.next_status(call).unwrap_err().to_string();
        assert_eq!(
            message(Status::Running, Call::Configure),
            "cannot configure while it is running: pause it first"
        );
        assert_eq!(
            message(Status::New, Call::Start),
            "cannot start while it is new: configure it first"
        );
        assert_eq!(
            message(Status::Exiting, Call::Pause),
            "cannot pause while it is exiting: the worker has ended or is about to end"
        );
        assert!("stop".parse::<Call>().is_err());
    }
}
