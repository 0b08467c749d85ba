//! Recognises repeated requests, so that they change a job only once. See docs/decisions/0009.

pub(crate) mod history;
pub(crate) mod keys;
pub(crate) mod recorded_scale_down;
