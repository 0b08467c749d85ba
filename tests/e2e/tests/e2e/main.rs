//! End-to-end tests, one module for each suite. `tests/e2e/run` defines which suites run in
//! parallel.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod admission;
mod dashboard;
mod deletion;
mod di_engine;
mod docs;
mod endpoint;
mod failures;
mod gang;
mod kueue_install;
mod lifecycle;
mod nodes;
mod pause;
mod plugin;
mod plugin_exec_and_logs;
mod python;
mod queueing;
mod restart;
mod roles;
mod samples;
mod training;
mod units;
mod webhook_only;
