use std::ops::Range;

use crate::Result;

/// Those that make the steps of an update together.
pub trait Ranks {
    /// The part of a batch that is computed here.
    fn part(&self, batch: usize) -> Range<usize>;

    /// Makes of the numbers of each the sums over all, which are the same everywhere.
    fn add_up(&mut self, numbers: &mut [f64]) -> Result<()>;
}

/// One that does it all.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Ranks for Alone {
    fn part(&self, batch: usize) -> Range<usize> {
        0..batch
    }

    fn add_up(&mut self, _: &mut [f64]) -> Result<()> {
        Ok(())
    }
}
