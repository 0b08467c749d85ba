use std::ops::Range;

use crate::Result;

/// Those that make the steps of an update together.
pub trait ProcessGroup {
    /// The part of a batch that is computed here.
    fn shard(&self, batch: usize) -> Range<usize>;

    /// Makes of the numbers of each the sums over all, which are the same everywhere.
    fn all_reduce(&mut self, numbers: &mut [f64]) -> Result<()>;
}

/// One that does it all.
#[derive(Clone, Copy, Debug)]
pub struct SingleProcess;

impl ProcessGroup for SingleProcess {
    fn shard(&self, batch: usize) -> Range<usize> {
        0..batch
    }

    fn all_reduce(&mut self, _: &mut [f64]) -> Result<()> {
        Ok(())
    }
}
