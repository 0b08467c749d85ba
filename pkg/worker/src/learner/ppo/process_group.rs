use std::ops::Range;

use crate::Result;

/// The ranks that make an update together.
pub trait ProcessGroup {
    /// The shard of a batch that this rank computes.
    fn shard(&self, batch: usize) -> Range<usize>;

    /// Replaces the numbers by their sums over all ranks.
    fn all_reduce(&mut self, numbers: &mut [f64]) -> Result<()>;
}

/// A process group of one process.
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
