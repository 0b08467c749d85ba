//! A learner of several GPUs: ranks that train one model together. Each rank is a thread; a learner
//! group may have several pods.
//!
//! The ranks rendezvous at the address that the orchestrator sets ([`RankConfig`]): rank 0 listens,
//! the others connect and stay connected. Rank 0 gets tasks from its aggregator and forwards them.
//! All ranks load the model and the frames and compute their shard of each batch. Rank 0 adds the
//! gradients in rank order and broadcasts the sum; all ranks make the same step. So the result
//! equals that of one process except for rounding, and is reproducible. Rank 0 stores it.
//!
//! See docs/decisions/0021.
//!
//! A rank that cannot load a task, or is paused, fails the task. A lost rank ends all ranks: their
//! processes fail, and the orchestrator replaces the learner group.

pub mod aggregator;
mod connection;
pub(crate) mod process_group;
pub(crate) mod rank_config;
mod rank_worker;
mod rank_zero;
mod rendezvous;

use std::future::pending;

use tokio::{net::TcpListener, task::JoinSet};

pub use process_group::TcpProcessGroup;
pub use rank_config::{RankConfig, Timeouts};

use crate::{
    Error, Result,
    learner::Learner,
    protocol::{
        env::Environment,
        server::{listen, serve, serve_handles},
    },
};
use rank_worker::{NoConfig, RankWorker};
use rank_zero::RankZeroWorker;

/// Trains as all ranks of this pod until all have ended, rank 0 has ended, or one has failed.
pub async fn train_ranks(
    config: RankConfig,
    environment: Environment,
    learner: Learner,
    timeouts: Timeouts,
) -> Result<()> {
    let mut ranks = JoinSet::new();
    for rank in config.local_ranks() {
        let (config, learner, port) = (config.clone(), learner.clone(), environment.port);
        ranks.spawn(async move {
            let group = tokio::task::spawn_blocking(move || {
                TcpProcessGroup::rendezvous(&config, rank, timeouts)
            });
            let group = group.await.map_err(Error::TaskLost)??;
            let port = u32::from(port) + rank;
            let port = u16::try_from(port).map_err(|_| Error::InvalidVariable {
                name: "LEARNER_PORT",
                expected: "a port number with one for each rank after it",
            })?;
            let listener = listen(port).await?;
            tracing::info!("rank {rank} has joined the other ranks and listens on port {port}");
            let trained = train_as_rank(listener, learner, group).await;
            trained.map(|()| rank)
        });
    }
    // A rank that ends early is still needed by ranks of other pods. Rank 0 is stopped last.
    while let Some(ended) = ranks.join_next().await {
        if ended.map_err(Error::TaskLost)?? == 0 {
            break;
        }
    }
    Ok(())
}

/// Trains as one rank until an exit call or until another rank is lost.
pub async fn train_as_rank(
    listener: TcpListener,
    learner: Learner,
    group: TcpProcessGroup,
) -> Result<()> {
    let forever = pending();
    if group.rank() == 0 {
        serve(listener, RankZeroWorker::new(learner, group), forever).await
    } else {
        let follower = RankWorker::new(learner, group);
        serve_handles(listener, follower, NoConfig {}, forever).await
    }
}

#[cfg(test)]
mod tests;
