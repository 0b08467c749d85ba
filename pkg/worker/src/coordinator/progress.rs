//! The progress and the result of a training.

use std::time::Duration;

use crate::lifecycle::report::Stats;

/// The state of the training after an iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Updates of the model so far.
    pub iteration: u64,
    /// Frames collected so far.
    pub frames: u64,
    /// Mean return of the episodes that ended in the last iteration, with sampled actions; unset if
    /// none ended.
    pub mean_return: Option<f64>,
    /// Mean return of the evaluation episodes, with the most likely actions.
    pub evaluation: Option<f64>,
    /// Frames collected per second in the last iteration.
    pub frames_per_second: f64,
}

impl Progress {
    /// The numbers by name.
    pub(crate) fn stats(&self) -> Stats {
        let counts = [("iteration", self.iteration), ("frames", self.frames)];
        let counts = counts.map(|(name, count)| (name, Some(count as f64)));
        let means = [
            ("mean_return", self.mean_return),
            ("evaluation", self.evaluation),
            ("frames_per_second", Some(self.frames_per_second)),
        ];
        let all = counts.into_iter().chain(means);
        all.filter_map(|(name, value)| Some((name.into(), value?)))
            .collect()
    }

    /// The progress as one line for the log.
    pub(crate) fn log_line(&self) -> String {
        let number = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
        };
        format!(
            "iteration {:3}  frames {:7}  mean return {:>5}  evaluation {:>5}  {:6.0} frames/s",
            self.iteration,
            self.frames,
            number(self.mean_return),
            number(self.evaluation),
            self.frames_per_second,
        )
    }
}

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
