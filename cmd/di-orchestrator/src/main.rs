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

/// The client of kube would log what it cannot decode, and with it the environment of containers.
const LOGGED: &str = "info,kube=warn,kube_client::client=error";

/// DI Orchestrator: runs reinforcement-learning jobs on Kubernetes.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// What is logged, as in RUST_LOG
    #[arg(
        long,
        env = "RUST_LOG",
        default_value = LOGGED,
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

#[cfg(test)]
mod tests {
    use axum::Router;
    use kube::{Client, Config};
    use tempfile::NamedTempFile;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn answers_that_cannot_be_decoded_are_not_logged() {
        let router = Router::new().fallback(|| async { r#"{"major": ["s3cret"]}"# });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();

        let log = NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::try_new(LOGGED).unwrap())
            .with_writer(log.reopen().unwrap())
            .finish();
        let logging = tracing::subscriber::set_default(subscriber);
        tracing::warn!("told");
        assert!(client.apiserver_version().await.is_err());
        drop(logging);
        let log = std::fs::read_to_string(log.path()).unwrap();
        assert!(log.contains("told") && !log.contains("s3cret"), "{log}");
    }
}
