use std::ops::Range;

use rand::{Rng, seq::SliceRandom};

use crate::learner::settings::Settings;

/// Yields the frame indices of each gradient step: data set by data set, each shuffled again for
/// each epoch.
#[derive(Debug)]
pub(super) struct Batches {
    order: Vec<usize>,
    dataset: usize,
    batch: usize,
    epochs: usize,
    /// Begin of the data set, the epoch, and begin of the next batch.
    begin: usize,
    epoch: usize,
    next: usize,
}

impl Batches {
    pub(super) fn new(frames: usize, settings: &Settings) -> Self {
        let batches = settings.num_batches_per_epoch.unwrap_or(frames.max(1));
        Self {
            order: (0..frames).collect(),
            dataset: settings.batch_size.saturating_mul(batches),
            batch: settings.batch_size,
            epochs: settings.num_epochs,
            begin: 0,
            epoch: 0,
            next: 0,
        }
    }

    /// The frame indices of the next step; none when all are done.
    pub(super) fn next_batch(&mut self, rng: &mut impl Rng) -> Option<&[usize]> {
        let frames = self.order.len();
        let end = |begin: usize, length| begin.saturating_add(length).min(frames);
        let dataset = self.begin..end(self.begin, self.dataset);
        if dataset.is_empty() {
            return None;
        }
        if self.next == dataset.start {
            self.order[dataset.clone()].shuffle(rng);
        }
        let batch = self.next..end(self.next, self.batch).min(dataset.end);
        self.advance_to(batch.end, &dataset);
        Some(&self.order[batch])
    }

    const fn advance_to(&mut self, next: usize, dataset: &Range<usize>) {
        self.next = next;
        if next < dataset.end {
            return;
        }
        self.epoch += 1;
        if self.epoch == self.epochs {
            (self.begin, self.epoch) = (dataset.end, 0);
        }
        self.next = self.begin;
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn dataset_is_repeated_once_per_epoch() {
        let steps = |num_batches_per_epoch| {
            let settings = Settings {
                num_epochs: 2,
                batch_size: 3,
                num_batches_per_epoch,
                ..Settings::default()
            };
            let mut rng = StdRng::seed_from_u64(1);
            let mut batches = Batches::new(10, &settings);
            let mut steps = Vec::new();
            while let Some(batch) = batches.next_batch(&mut rng) {
                steps.push(batch.to_vec());
            }
            steps
        };
        let sorted = |batches: &[Vec<usize>]| {
            let mut frames = batches.concat();
            frames.sort_unstable();
            frames
        };
        let all: Vec<usize> = (0..10).collect();
        let one = steps(None);
        assert_eq!(
            one.iter().map(Vec::len).collect::<Vec<_>>(),
            [3, 3, 3, 1, 3, 3, 3, 1]
        );
        assert_eq!((sorted(&one[..4]), sorted(&one[4..])), (all.clone(), all));
        assert_ne!(one[..4], one[4..], "in another order");

        let two = steps(Some(2));
        assert_eq!(
            two.iter().map(Vec::len).collect::<Vec<_>>(),
            [3, 3, 3, 3, 3, 1, 3, 1]
        );
        let first = (sorted(&two[..2]), sorted(&two[2..4]));
        assert_eq!(first, ((0..6).collect(), (0..6).collect()));
        let second = (sorted(&two[4..6]), sorted(&two[6..]));
        assert_eq!(second, ((6..10).collect(), (6..10).collect()));
    }
}
