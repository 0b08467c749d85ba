use std::ops::Range;

use crate::{environment::Ending, sampler::rollout::Trajectory};

/// A trajectory buffer: a row of steps per environment. A data set is one, too.
#[derive(Debug, Default)]
pub(super) struct TrajectoryBuffer {
    /// Environment of the first row.
    first: usize,
    /// Step of the first column.
    start: usize,
    /// Maximum steps of a row.
    columns: usize,
    /// Length of an observation.
    width: usize,
    /// Number of steps in each row.
    lengths: Vec<usize>,
    before: Vec<f32>,
    after: Vec<f32>,
    actions: Vec<u8>,
    rewards: Vec<f32>,
    log_probabilities: Vec<f32>,
    endings: Vec<Option<Ending>>,
}

/// One step of an environment.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) before: &'a [f32],
    pub(super) after: &'a [f32],
    pub(super) action: u8,
    pub(super) reward: f32,
    pub(super) log_probability: f32,
    pub(super) ending: Option<Ending>,
}

impl TrajectoryBuffer {
    /// Empties the buffer for steps from `start` on. Keeps its memory.
    pub(super) fn reset_shape(
        &mut self,
        first: usize,
        start: usize,
        rows: usize,
        columns: usize,
        width: usize,
    ) {
        (self.first, self.start) = (first, start);
        (self.columns, self.width) = (columns, width);
        self.lengths.clear();
        self.lengths.resize(rows, 0);
        let steps = rows * columns;
        self.before.resize(steps * width, 0.0);
        self.after.resize(steps * width, 0.0);
        self.actions.resize(steps, 0);
        self.rewards.resize(steps, 0.0);
        self.log_probabilities.resize(steps, 0.0);
        self.endings.resize(steps, None);
    }

    /// Appends a step to a row.
    pub(super) fn push_step(&mut self, row: usize, step: &Step<'_>) {
        let at = row * self.columns + self.lengths[row];
        self.lengths[row] += 1;
        let seen = at * self.width..(at + 1) * self.width;
        self.before[seen.clone()].copy_from_slice(step.before);
        self.after[seen].copy_from_slice(step.after);
        self.actions[at] = step.action;
        self.rewards[at] = step.reward;
        self.log_probabilities[at] = step.log_probability;
        self.endings[at] = step.ending;
    }

    /// Number of steps in all rows.
    pub(super) fn step_count(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Copies the steps of another buffer to their place; returns their number.
    pub(super) fn place_steps(&mut self, other: &Self) -> usize {
        for (row, &length) in other.lengths.iter().enumerate() {
            let own = other.first + row - self.first;
            let column = other.start - self.start;
            let steps = |block: &Self, row: usize, column: usize| {
                let at = row * block.columns + column;
                at..at + length
            };
            let (to, from) = (steps(self, own, column), steps(other, row, 0));
            let (seen, shown) = (self.observation_range(&to), other.observation_range(&from));
            self.before[seen.clone()].copy_from_slice(&other.before[shown.clone()]);
            self.after[seen].copy_from_slice(&other.after[shown]);
            self.actions[to.clone()].copy_from_slice(&other.actions[from.clone()]);
            self.rewards[to.clone()].copy_from_slice(&other.rewards[from.clone()]);
            self.log_probabilities[to.clone()]
                .copy_from_slice(&other.log_probabilities[from.clone()]);
            self.endings[to].copy_from_slice(&other.endings[from]);
            self.lengths[own] += length;
        }
        other.step_count()
    }

    /// All rows as trajectories. Each ends with its episode or with its row.
    pub(super) fn to_trajectories(&self) -> Vec<Trajectory> {
        let mut trajectories = Vec::new();
        for (row, length) in self.lengths.iter().enumerate() {
            let begin = row * self.columns;
            let end = begin + length;
            let mut from = begin;
            while from < end {
                let ending = (from..end).find(|at| self.endings[*at].is_some());
                let to = ending.map_or(end, |at| at + 1);
                trajectories.push(self.to_trajectory(from..to));
                from = to;
            }
        }
        trajectories
    }

    /// Consecutive steps of one episode, at least one.
    fn to_trajectory(&self, steps: Range<usize>) -> Trajectory {
        let seen = self.observation_range(&steps);
        let last = seen.end - self.width..seen.end;
        Trajectory {
            observations: [&self.before[seen], &self.after[last]].concat(),
            actions: self.actions[steps.clone()].to_vec(),
            rewards: self.rewards[steps.clone()].to_vec(),
            log_probabilities: self.log_probabilities[steps.clone()].to_vec(),
            terminated: self.endings[steps.end - 1] == Some(Ending::Terminated),
        }
    }

    /// Range of the observations of some steps.
    const fn observation_range(&self, steps: &Range<usize>) -> Range<usize> {
        steps.start * self.width..steps.end * self.width
    }
}
