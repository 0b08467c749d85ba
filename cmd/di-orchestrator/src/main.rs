//! The in-cluster program: manager, server, crds.

mod crds;
mod health;
mod manager;
#[cfg(test)]
mod monitoring;
mod process;
mod server;

use anyhow::{Result, anyhow};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// DI Orchestrator: runs reinforcement-learning jobs on Kubernetes.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// What is logged, as in RUST_LOG
    #[arg(
        long,
        env = "RUST_LOG",
        default_value = "info,kube=warn",
        global = true
    )]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Manager(manager::Manager),
    Server(server::Server),
    Crds(crds::Crds),
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_env_filter(EnvFilter::try_new(&args.log)?)
        .init();
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a TLS provider was installed before"))?;
    match args.command {
        Command::Manager(manager) => Box::pin(manager.run()).await,
        Command::Server(server) => Box::pin(server.run()).await,
        Command::Crds(crds) => crds.run(),
    }
}
