//! The trained model: actor, critic and optimiser state.

pub(crate) mod adam;
pub(crate) mod model_file;
pub(crate) mod network;
pub mod policy;

pub use model_file::Model;
