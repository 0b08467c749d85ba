//! Jobs: manifests, reads, writes, waits and events.

pub(crate) mod convert;
pub(crate) mod create;
pub(crate) mod deletion;
pub(crate) mod events;
pub(crate) mod guarded_patch;
pub(crate) mod job;
pub(crate) mod job_options;
pub(crate) mod live_view;
pub mod manifest;
pub(crate) mod prepare;
pub(crate) mod suspend;
pub(crate) mod wait;
pub(crate) mod wait_condition;
