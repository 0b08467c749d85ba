//! The runtime of di-worker: reinforcement learning by three roles that share a storage.
//!
//! | Subject | Modules |
//! |---|---|
//! | environments | [`game`] |
//! | model and optimiser | [`policy`], [`network`], [`adam`], [`ppo`], [`staleness`] |
//! | sampling | [`rollout`], [`sampling`], [`sampler`], on the loops of [`event_loop`] |
//! | stored files | [`frames`], [`model`], [`storage`], [`run`], [`checkpoint`], [`summary`]; blocking calls in [`blocking`] |
//! | collectors and learners | [`server`], [`tasks`], [`collector`], [`learner`] |
//! | a learner of several GPUs | [`ddp`], behind an [`aggregator`] |
//! | life cycle of all workers | [`lifecycle`], [`mapping_thread`] |
//! | coordinator | [`endpoint`], [`replica_table`], [`shared_replicas`], [`dispatch`], [`training`], [`coordinator`]; [`serial`] in one process; [`outcome`] |
//! | control of replicas: pause, start, scale | [`panel`], [`scale`] |
//! | one training per seed | [`sweep`] |
//! | helpers of tests | [`probe`], [`idle`] |
//! | protocol and environment variables | [`wire`], [`env`](mod@env) |
//!
//! The result of a task depends only on the task, not on the replica that runs it. A seed gives the
//! same training with one collector or with five, also if collectors are lost. Only the number of
//! environments per collector must be the same in all collectors.
#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

mod action_choice;
pub mod adam;
mod address;
mod advantage;
pub mod aggregator;
pub mod blocking;
pub mod checkpoint;
mod codec;
pub mod collector;
pub mod config;
pub mod coordinator;
pub mod ddp;
pub mod dispatch;
pub mod endpoint;
pub mod env;
mod error;
pub mod event_loop;
pub mod frames;
pub mod game;
pub mod http;
pub mod idle;
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
pub mod replica_table;
pub mod rollout;
pub mod run;
pub mod sampler;
pub mod sampling;
pub mod scale;
pub mod serial;
pub mod server;
pub mod shared_replicas;
pub mod shutdown;
pub mod staleness;
pub mod storage;
pub mod summary;
pub mod sweep;
pub mod tasks;
pub mod training;
pub mod wire;

pub use address::Address;
pub use error::{Error, Result, chain};
