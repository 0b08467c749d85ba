//! One file for each benchmark. `docs/benchmarks.md` says what they measure.

pub mod burst;
pub mod churn;
pub mod cold;
pub mod dashboard;
pub mod first_step;
pub mod get;
pub mod latency;
pub mod memory;
pub mod namespace;
pub mod plugin;
pub mod polls;
pub mod post;
pub mod rate;
pub mod ready;
pub mod recovery;
pub mod remove;
pub mod sampling;
pub mod signals;
pub mod storm;
pub mod webhook;
