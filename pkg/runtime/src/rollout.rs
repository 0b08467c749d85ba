//! What was played.

/// Consecutive steps of one episode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory {
    /// What was seen before each step, and after the last one, one observation after another: one
    /// more than there are steps.
    pub observations: Vec<f32>,
    /// What was done.
    pub actions: Vec<u8>,
    /// What each step brought.
    pub rewards: Vec<f32>,
    /// Logarithm of the probability that the policy gave to each action.
    pub log_probabilities: Vec<f32>,
    /// Whether the last state has no future. Otherwise what lies beyond the last observation still
    /// has a value.
    pub terminated: bool,
}

/// What collecting produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rollout {
    /// The steps, episode by episode; the last may be cut.
    pub trajectories: Vec<Trajectory>,
    /// Returns of the episodes that ended.
    pub returns: Vec<f64>,
}

/// What evaluating produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// Return of each episode.
    pub returns: Vec<f64>,
    /// Steps made.
    pub frames: u64,
}
