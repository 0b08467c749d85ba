//! How a training ended, with or without replicas.

use std::time::Duration;

use crate::progress::Progress;

/// How a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target was reached.
    Solved,
    /// Iterations were used up before.
    Unsolved,
    /// Time was used up before: another may go on.
    TimedOut,
    /// Somebody asked the process to end: another may go on.
    Interrupted,
    /// Somebody had the training end, by its handle.
    Ended,
}

impl Outcome {
    /// One line for the log: how it ended, and where.
    pub(crate) fn summary_line(self, end: &Progress, episodes: usize, time: Duration) -> String {
        let word = match self {
            Self::Solved => "solved",
            Self::Unsolved => "not solved",
            Self::TimedOut => "not solved in time",
            Self::Interrupted => "interrupted",
            Self::Ended => "ended",
        };
        let evaluation = end.evaluation.map_or_else(
            || "not evaluated yet".to_owned(),
            |mean| format!("mean return {mean:.1} over {episodes} episodes"),
        );
        let (iterations, frames, seconds) = (end.iteration, end.frames, time.as_secs_f64());
        format!(
            "{word}: {evaluation} after {iterations} iterations, {frames} frames, {seconds:.1} s"
        )
    }
}
