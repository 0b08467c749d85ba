use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Phase of the job. Created: the coordinator pod was created but is not running. Running: the
/// coordinator is running. Succeeded: it exited with 0. Failed: it failed more than backoffLimit
/// times, the deadline passed, or the spec is invalid. Unknown: its node does not respond.
/// Suspended: the job is suspended and has no pods. Queued: it waits in a queue of Kueue and has no
/// pods. Unset until the first of these applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// The coordinator has been created.
    Created,
    /// The coordinator is running.
    Running,
    /// The coordinator exited with code 0.
    Succeeded,
    /// The coordinator failed and is not restarted, or the job cannot run.
    Failed,
    /// The coordinator's node does not respond.
    Unknown,
    /// The job is suspended.
    Suspended,
    /// The job waits in a queue of Kueue.
    Queued,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Unknown,
        Self::Suspended,
        Self::Queued,
    ];

    /// Whether the job has ended; no other phase follows.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// The phase as it appears in `status.phase`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
            Self::Suspended => "Suspended",
            Self::Queued => "Queued",
        }
    }
}
