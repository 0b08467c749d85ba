use std::{borrow::Cow, collections::BTreeMap, ops::AddAssign};

use serde::{Deserialize, Serialize};

use crate::lifecycle::status::Status;

/// The counts of one poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollResult {
    /// Samples: the frames that were collected, trained on or reported.
    pub samples: u64,
    /// Batches: the frame files that were stored, or the models that were trained.
    pub batches: u64,
}

impl PollResult {
    /// Nothing was done.
    pub const NOTHING: Self = Self {
        samples: 0,
        batches: 0,
    };
}

/// A task report that counts as a poll.
pub trait TaskReport {
    /// The counts of the task.
    fn poll_result(&self) -> PollResult;

    /// The other numbers of the task.
    fn stats(&self) -> Stats;
}

/// Numbers by their names.
pub type Stats = BTreeMap<Cow<'static, str>, f64>;

/// The report of a worker over HTTP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The status.
    pub status: Status,
    /// Whether the worker is polled.
    pub running: bool,
    /// Whether the worker ends or has ended.
    pub exiting: bool,
    /// Number of polls that did something.
    pub polls: u64,
    /// Samples of all polls.
    pub samples: u64,
    /// Batches of all polls.
    pub batches: u64,
    /// The error that ended the worker, with its causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Numbers of the worker itself.
    #[serde(default)]
    pub stats: Stats,
}

impl Report {
    /// A report with zero counts.
    pub const fn new(status: Status) -> Self {
        Self {
            status,
            running: status.is_running(),
            exiting: status.is_exiting(),
            polls: 0,
            samples: 0,
            batches: 0,
            error: None,
            stats: Stats::new(),
        }
    }

    /// Sets the status; returns whether it changed.
    pub const fn set_status(&mut self, status: Status) -> bool {
        let changed = self.status as u8 != status as u8;
        self.status = status;
        self.running = status.is_running();
        self.exiting = status.is_exiting();
        changed
    }

    /// The report as one line for the log.
    pub fn log_line(&self) -> String {
        let Self {
            status,
            polls,
            samples,
            batches,
            ..
        } = self;
        let counts = format!("{status}: {polls} polls, {samples} samples, {batches} batches");
        let stats = self.stats.iter();
        let stats = stats.map(|(name, value)| format!("{name} {value:.4}"));
        let parts: Vec<_> = std::iter::once(counts)
            .chain(stats)
            .chain(self.error.clone())
            .collect();
        parts.join(", ")
    }
}

impl AddAssign<PollResult> for Report {
    fn add_assign(&mut self, polled: PollResult) {
        self.polls += 1;
        self.samples += polled.samples;
        self.batches += polled.batches;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn report_json_matches_protocol() {
        let mut report = Report::new(Status::Configured);
        assert!(report.set_status(Status::Running) && !report.set_status(Status::Running));
        report += PollResult {
            samples: 512,
            batches: 1,
        };
        report += PollResult {
            samples: 100,
            batches: 0,
        };
        report.stats.insert("mean_return".into(), 21.5);
        let json = json!({
            "status": "running", "running": true, "exiting": false,
            "polls": 2, "samples": 612, "batches": 1, "stats": {"mean_return": 21.5},
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), json);
        assert_eq!(serde_json::from_value::<Report>(json).unwrap(), report);
        assert_eq!(
            report.log_line(),
            "running: 2 polls, 612 samples, 1 batches, mean_return 21.5000"
        );
    }
}
