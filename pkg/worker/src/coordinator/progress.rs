//! The progress of a training, for the log and for `/status`.

use serde::Serialize;

use crate::{learner::staleness::Staleness, lifecycle::report::Stats};

/// The state of the training after an iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Name of the job.
    pub job: String,
    /// Folder of the run.
    pub run: String,
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
    /// Collectors that can take tasks.
    pub collectors: Vec<String>,
    /// Learners that can take tasks.
    pub learners: Vec<String>,
    /// Counts of stale frames so far.
    pub staleness: Staleness,
    /// Whether the target return is reached.
    pub solved: bool,
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
        let known = all.filter_map(|(name, value)| Some((name.into(), value?)));
        known.chain(self.staleness.stats()).collect()
    }

    /// The progress as one line for the log.
    pub fn log_line(&self) -> String {
        format!(
            "{}  {}, {}",
            self.log_numbers(),
            count_noun(self.collectors.len(), "collector"),
            count_noun(self.learners.len(), "learner"),
        )
    }

    /// The numbers without the replicas, as one line for the log.
    pub(crate) fn log_numbers(&self) -> String {
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

/// A number with its noun.
pub(crate) fn count_noun(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_contains_all_numbers() {
        let progress = Progress {
            iteration: 12,
            frames: 12_288,
            mean_return: Some(143.26),
            evaluation: Some(210.4),
            frames_per_second: 9_800.4,
            collectors: vec!["a".into(), "b".into()],
            learners: vec!["l".into()],
            ..Progress::default()
        };
        let line = "iteration  12  frames   12288  mean return 143.3  evaluation 210.4    9800 frames/s  \
                    2 collectors, 1 learner";
        assert_eq!(progress.log_line(), line);
        assert!(
            Progress::default()
                .log_line()
                .contains("mean return     -  evaluation     -")
        );
    }
}
