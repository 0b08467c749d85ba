//! The batcher of a learner in its own pod. A process with a sampler uses the batcher of the
//! [`sampler`](crate::sampler).

use crate::{
    Error, Result,
    learner::staleness::Staleness,
    sampler::{collector::MAX_FRAMES, rollout::Trajectory},
    storage::frames::Frames,
};

/// Builds the data set of a task: the trajectories of all frame files, in order.
#[derive(Debug)]
pub(super) struct Batcher {
    /// Version of the model to train.
    version: u64,
    /// Maximum policy lag of frames, in versions.
    max_policy_lag: u64,
    pub(super) trajectories: Vec<Trajectory>,
    /// Frames in the trajectories.
    pub(super) frames: usize,
    /// Counts of stale and dropped frames.
    pub(super) staleness: Staleness,
}

impl Batcher {
    pub(super) fn new(version: u64, max_policy_lag: u64) -> Self {
        Self {
            version,
            max_policy_lag,
            trajectories: Vec::new(),
            frames: 0,
            staleness: Staleness::default(),
        }
    }

    /// Adds frames, unless they are too old.
    pub(super) fn add_frames(&mut self, frames: Frames) -> Result<()> {
        let Frames {
            version,
            trajectories,
        } = frames;
        let lag = self.version.checked_sub(version).ok_or_else(|| {
            Error::BadTask(format!(
                "the frames are of model {version}, newer than model {}",
                self.version
            ))
        })?;
        let steps = trajectories
            .iter()
            .map(|trajectory| trajectory.actions.len());
        let steps = steps.sum::<usize>();
        if !self
            .staleness
            .admit_frames(steps as u64, lag, self.max_policy_lag)
        {
            return Ok(());
        }
        self.frames += steps;
        if self.frames > MAX_FRAMES {
            return Err(Error::BadTask(format!(
                "at most {MAX_FRAMES} frames can be trained on at once"
            )));
        }
        self.trajectories.extend(trajectories);
        Ok(())
    }

    /// Whether no frames were added or dropped.
    pub(super) const fn is_empty(&self) -> bool {
        self.frames == 0 && self.staleness.dropped == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_with(version: u64, steps: usize) -> Frames {
        let one = Trajectory {
            observations: vec![0.0; 4 * (steps + 1)],
            actions: vec![1; steps],
            rewards: vec![1.0; steps],
            log_probabilities: vec![-0.5; steps],
            terminated: false,
        };
        Frames {
            version,
            trajectories: vec![one],
        }
    }

    #[test]
    fn batcher_keeps_order_and_drops_stale_frames() {
        let mut batcher = Batcher::new(5, 1);
        assert!(batcher.is_empty());
        for (version, steps) in [(5, 3), (3, 7), (4, 2)] {
            batcher.add_frames(frames_with(version, steps)).unwrap();
        }
        let lengths: Vec<_> = batcher
            .trajectories
            .iter()
            .map(|played| played.actions.len())
            .collect();
        assert_eq!((lengths, batcher.frames), (vec![3, 2], 5));
        let staleness = Staleness {
            stale: 2,
            dropped: 7,
            lag: 2,
        };
        assert_eq!(batcher.staleness, staleness);

        let mut only_old = Batcher::new(5, 1);
        only_old.add_frames(frames_with(1, 1)).unwrap();
        assert!(!only_old.is_empty());
    }

    #[test]
    fn batcher_rejects_too_many_frames() {
        let mut batcher = Batcher::new(0, 0);
        batcher.add_frames(frames_with(0, MAX_FRAMES)).unwrap();
        let error = batcher
            .add_frames(frames_with(0, 1))
            .unwrap_err()
            .to_string();
        assert!(error.contains("at most"), "{error}");
    }
}
