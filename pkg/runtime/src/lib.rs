//! The worker runtime of di-worker: reinforcement learning by three roles that share a storage.
//!
//! | what | where |
//! |---|---|
//! | the environments | [`game`] |
//! | the model and how it learns | [`policy`], [`network`], [`adam`], [`ppo`], [`staleness`] |
//! | what is played, and how | [`rollout`], [`sampling`], [`sampler`], on the loops of [`event_loop`] |
//! | what is stored | [`frames`], [`model`], [`storage`], [`run`], [`checkpoint`], [`summary`], waited for in [`mod@blocking`] |
//! | the replicas' side | [`server`], [`tasks`], [`collector`], [`learner`] |
//! | a learner of several GPUs | [`ddp`], behind an [`aggregator`] |
//! | how all of them live | [`lifecycle`], with [`mapping_thread`] for what computes beside it |
//! | the coordinator's side | [`endpoint`], [`replica_table`], [`shared_replicas`], [`dispatch`], [`training`], [`coordinator`], alone in [`serial`], to its [`outcome`] |
//! | who has all of them run, pause and end, and how many there are | [`panel`], [`scale`] |
//! | many seeds, each trained alone | [`sweep`] |
//! | what tests run | [`probe`], [`idle`] |
//! | what goes between them | [`wire`], [`env`](mod@env) |
//!
//! The result of a task depends on the task alone, never on who does it or when: a seed gives the
//! same training with one collector or with five, whether or not some are lost on the way. Only how
//! many environments a collector plays in must be the same in all of them.
#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

pub mod adam;
mod address;
mod advantage;
pub mod aggregator;
pub mod blocking;
pub mod checkpoint;
mod action_choice;
mod codec;
pub mod collector;
pub mod config;
pub mod coordinator;
pub mod ddp;
pub mod dispatch;
pub mod endpoint;
pub mod env;
mod error;
pub mod replica_table;
pub mod frames;
pub mod game;
pub mod idle;
pub mod http;
pub mod learner;
pub mod lifecycle;
pub mod mapping_thread;
pub mod model;
mod network;
pub mod outcome;
pub mod panel;
pub mod policy;
pub mod ppo;
pub mod probe;
pub mod progress;
pub mod rollout;
pub mod shared_replicas;
pub mod run;
pub mod sampler;
pub mod sampling;
pub mod scale;
pub mod serial;
pub mod server;
pub mod shutdown;
pub mod event_loop;
pub mod staleness;
pub mod storage;
pub mod summary;
pub mod sweep;
pub mod tasks;
pub mod training;
pub mod wire;

pub use address::Address;
pub use error::{Error, Result, chain};
