//! Sampled trajectories.

/// Consecutive steps of one episode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory {
    /// The observation before each step and after the last one: one more than there are steps.
    pub observations: Vec<f32>,
    /// The actions.
    pub actions: Vec<u8>,
    /// The rewards.
    pub rewards: Vec<f32>,
    /// Log probability of each action under the policy.
    pub log_probabilities: Vec<f32>,
    /// Whether the last state is terminal. Otherwise the last observation still has a value.
    pub terminated: bool,
}

impl Trajectory {
    /// Number of steps.
    pub(crate) fn step_count(&self) -> u32 {
        u32::try_from(self.actions.len()).expect("a task has at most MAX_FRAMES steps")
    }
}

/// The result of collecting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rollout {
    /// The trajectories, episode by episode; the last may be cut.
    pub trajectories: Vec<Trajectory>,
    /// Returns of the ended episodes.
    pub returns: Vec<f64>,
}

/// The result of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Return of each episode.
    pub returns: Vec<f64>,
    /// Number of steps.
    pub frames: u64,
}
