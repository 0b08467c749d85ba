//! A learner of several GPUs: ranks that train one model together, a thread for each here, and a pod for several.
//!
//! They meet at the address that the orchestrator gives to all ([`RankConfig`]): rank 0 listens, the others connect to it and stay connected.
//! Rank 0 takes the tasks, from its aggregator, and calls the others to each. What is done then is the same everywhere: model and frames are
//! loaded, of every batch a rank computes its part of the gradient, rank 0 adds the parts up in the order of the ranks and sends the sum back,
//! and all make the same step. So the result is that of one process but for how sums are rounded, and the same each time. Rank 0 stores it.
//!
//! A rank that cannot do a task, or is paused, fails the task. One that is lost ends all: their process fails, and the orchestrator replaces
//! the unit.

mod rank_worker;
mod group;
mod rank_zero;
mod link;
mod rendezvous;
mod rank_config;

use std::{future::pending, time::Duration};

use tokio::{net::TcpListener, task::JoinSet};

pub use group::Group;
pub use rank_config::RankConfig;

use crate::{
    Error, Result,
    env::Environment,
    learner::Learner,
    server::{listen, serve, serve_handles},
};
use rank_worker::{RankWorker, NoConfig};
use rank_zero::RankZeroWorker;

/// How long ranks wait for each other.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until all have met: some may have to be scheduled, and their image pulled.
    pub meet: Duration,
    /// For the word that one has heard of a task.
    pub hear: Duration,
    /// For all else that one does.
    pub step: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            meet: Duration::from_secs(300),
            hear: Duration::from_secs(10),
            step: Duration::from_secs(60),
        }
    }
}

/// Trains as all ranks of this pod, until all of them have ended, rank 0 has, or one has failed.
pub async fn train_ranks(
    place: RankConfig,
    environment: Environment,
    learner: Learner,
    limits: Limits,
) -> Result<()> {
    let mut ranks = JoinSet::new();
    for rank in place.local_ranks() {
        let (place, learner, port) = (place.clone(), learner.clone(), environment.port);
        ranks.spawn(async move {
            let group = tokio::task::spawn_blocking(move || Group::rendezvous(&place, rank, limits));
            let group = group.await.map_err(Error::TaskLost)??;
            let port = u32::from(port) + rank;
            let port = u16::try_from(port).map_err(|_| Error::InvalidVariable {
                name: "LEARNER_PORT",
                expected: "a port number with one for each rank after it",
            })?;
            let listener = listen(port).await?;
            tracing::info!("rank {rank} has met all others, and listens on port {port}");
            let trained = train_as_rank(listener, learner, group).await;
            trained.map(|()| rank)
        });
    }
    // One that has ended first leaves the others to the ranks of other pods, which would miss them. Rank 0 is told to end as the last of all.
    while let Some(ended) = ranks.join_next().await {
        if ended.map_err(Error::TaskLost)?? == 0 {
            break;
        }
    }
    Ok(())
}

/// Trains as one rank, until it is told to end or another one is lost.
pub async fn train_as_rank(listener: TcpListener, learner: Learner, group: Group) -> Result<()> {
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
