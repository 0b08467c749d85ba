//! Queues of Kueue.

mod install;
mod list;
