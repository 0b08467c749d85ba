//! End-to-end tests, a module for each suite. `tests/e2e/run` says which run beside each other, and which alone.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod admission;
mod deletion;
mod di_engine;
mod docs;
mod endpoint;
mod lifecycle;
mod nodes;
mod pause;
mod plugin;
mod plugin_exec_and_logs;
mod restart;
mod roles;
mod samples;
mod training;
mod webhook_only;
