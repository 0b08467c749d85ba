//! Checkpoints, from which an interrupted training resumes.
//!
//! All randomness of an iteration is derived from the seed and the iteration number. So a resumed
//! training ends like an uninterrupted one, unless it collects ahead: frames of the previous model
//! are then collected again with the current one. The coordinator, or the single process of a
//! serial training, stores checkpoints. A learner keeps no state between two tasks: the optimiser
//! state is stored with each model.

pub(crate) mod checkpoint_file;
pub mod run;
pub(crate) mod store;

pub use checkpoint_file::Checkpoint;
pub use store::{CheckpointPolicy, CheckpointStore};
