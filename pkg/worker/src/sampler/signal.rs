//! The signals between the components of the sampler.

/// The signals between components. A number is that of a split, a buffer or a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// An order is published.
    Begin,
    /// The observations of a split wait for actions.
    Observed(usize),
    /// The actions of a split are chosen.
    Acted(usize),
    /// A trajectory buffer is full.
    Filled(usize),
    /// A trajectory buffer is forwarded unchanged.
    Passed(usize),
    /// A data set is complete.
    Dataset(usize),
    /// A trajectory buffer is free.
    Freed(usize),
    /// A split has finished its share of the order.
    Finished(usize),
    /// A training batch for this data set is published.
    Learn(usize),
    /// The next gradient step is due.
    Step,
    /// This buffer contains newer weights.
    Published(usize),
    /// The training batch is done.
    Learned,
    /// A component failed.
    Failed,
    /// A component panicked; its thread has ended.
    Lost(&'static str),
}
