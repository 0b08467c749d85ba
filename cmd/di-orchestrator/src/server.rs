//! `di-orchestrator server`: the replica endpoint.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use clap::Args;
use di_replicas::Settings;
use prometheus_client::registry::Registry;

use crate::process;

/// Serves the replica endpoint that coordinators call.
#[derive(Debug, Args)]
pub struct Server {
    /// Address to listen on (HTTP)
    #[arg(long, default_value = "0.0.0.0:8080")]
    address: SocketAddr,
    /// Let everybody call, with neither a pod's address nor a token
    #[arg(long)]
    allow_anonymous: bool,
    /// Longest wait for the scheduling verdicts of new replicas before a POST is answered, in seconds
    #[arg(long, default_value_t = 2)]
    create_wait: u64,
    /// The most replicas that one request may add
    #[arg(long, default_value_t = 1000)]
    max_replicas_per_request: usize,
    /// The most replicas that a job may have; they are all named in its status, which must stay below the 1.5 MiB of an object
    #[arg(long, default_value_t = 4000)]
    max_replicas_per_job: usize,
    /// The most connections at a time
    #[arg(long, default_value_t = 2048)]
    max_connections: usize,
}

impl Server {
    /// Runs until SIGTERM.
    pub async fn run(self) -> Result<()> {
        let client = process::client().await?;
        let shutdown = process::shutdown()?;
        let settings = Settings {
            address: self.address,
            allow_anonymous: self.allow_anonymous,
            create_wait: Duration::from_secs(self.create_wait),
            max_replicas_per_request: self.max_replicas_per_request,
            max_replicas_per_job: self.max_replicas_per_job,
            max_connections: self.max_connections,
            ..Settings::default()
        };
        di_replicas::run(
            client,
            settings,
            Registry::default(),
            process::until(shutdown),
        )
        .await
        .context("replica endpoint failed")
    }
}
