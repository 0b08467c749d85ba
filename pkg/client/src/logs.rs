//! Logs of the pods of a job.

pub(crate) mod follow;
pub(crate) mod read;
