//! The policy lag of frames.
//!
//! Frames belong to the model version that collected them. Frames of an older version are stale.
//! PPO corrects for a small lag only, so older frames are dropped.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::lifecycle::report::Stats;

/// Counts of frames of older models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staleness {
    /// Stale frames that were trained on.
    pub stale: u64,
    /// Stale frames that were dropped.
    pub dropped: u64,
    /// Maximum lag in versions.
    pub lag: u64,
}

impl Staleness {
    /// Counts frames with this lag in versions. Returns whether they are trained on: the lag is at
    /// most `most`.
    pub fn admit_frames(&mut self, frames: u64, lag: u64, most: u64) -> bool {
        self.lag = self.lag.max(lag);
        let admitted = lag <= most;
        match (lag, admitted) {
            (0, _) => {}
            (_, true) => self.stale += frames,
            (_, false) => self.dropped += frames,
        }
        admitted
    }

    /// The counts by name.
    pub fn stats(&self) -> Stats {
        Stats::from([
            ("stale_frames".into(), self.stale as f64),
            ("dropped_frames".into(), self.dropped as f64),
            ("policy_lag".into(), self.lag as f64),
        ])
    }
}

impl AddAssign for Staleness {
    fn add_assign(&mut self, other: Self) {
        self.stale += other.stale;
        self.dropped += other.dropped;
        self.lag = self.lag.max(other.lag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_by_policy_lag() {
        let mut staleness = Staleness::default();
        let admitted = [(100, 0), (10, 1), (20, 2), (5, 3), (1, 7)]
            .map(|(frames, lag)| staleness.admit_frames(frames, lag, 2));
        assert_eq!(admitted, [true, true, true, false, false]);
        let counted = Staleness {
            stale: 30,
            dropped: 6,
            lag: 7,
        };
        assert_eq!(staleness, counted);
        staleness += Staleness {
            stale: 1,
            dropped: 1,
            lag: 2,
        };
        assert_eq!(
            (staleness.stale, staleness.dropped, staleness.lag),
            (31, 7, 7)
        );
        assert_eq!(staleness.stats().get("dropped_frames"), Some(&7.0));
    }
}
