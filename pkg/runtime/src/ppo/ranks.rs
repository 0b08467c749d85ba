use std::{convert::Infallible, ops::Range};

/// Those that make the steps of an update together.
pub trait Ranks {
    /// Why they cannot.
    type Error;

    /// The part of a batch that is computed here.
    fn part(&self, batch: usize) -> Range<usize>;

    /// Makes of the numbers of each the sums over all, which are the same everywhere.
    fn add_up(&mut self, numbers: &mut [f64]) -> Result<(), Self::Error>;
}

/// One that does it all.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Ranks for Alone {
    type Error = Infallible;

    fn part(&self, batch: usize) -> Range<usize> {
        0..batch
    }

    fn add_up(&mut self, _: &mut [f64]) -> Result<(), Infallible> {
        Ok(())
    }
}
