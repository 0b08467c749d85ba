//! Queues of Kueue.

mod gang;
mod install;
mod list;
