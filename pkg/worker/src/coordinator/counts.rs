//! The number of replicas of a training.

use serde::{Deserialize, Serialize};

use crate::coordinator::progress::count_noun;

/// Numbers of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Collectors.
    pub collectors: u32,
    /// Learners.
    pub learners: u32,
}

impl Counts {
    /// The smaller count of each role.
    pub(crate) fn min_of_each(self, other: Self) -> Self {
        Self {
            collectors: self.collectors.min(other.collectors),
            learners: self.learners.min(other.learners),
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let collectors = count_noun(self.collectors as usize, "collector");
        let learners = count_noun(self.learners as usize, "learner");
        write!(formatter, "{collectors} and {learners}")
    }
}
