//! The protocol of replicas: tasks, reports, environment variables; and the process that serves it.

pub(crate) mod address;
pub mod env;
pub mod http;
pub mod idle;
pub mod probe;
pub mod server;
pub mod shutdown;
pub mod tasks;
pub mod wire;

pub use address::Address;
