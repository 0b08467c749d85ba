//! The result of a training.

use std::time::Duration;

use crate::coordinator::progress::Progress;

/// The result of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The target was reached.
    Solved,
    /// The maximum number of iterations was reached.
    Unsolved,
    /// The time limit was reached; the training can be resumed.
    TimedOut,
    /// The process was terminated by a signal; the training can be resumed.
    Interrupted,
    /// The training was ended by an exit call.
    Ended,
}

impl Outcome {
    /// The result as one line for the log.
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
