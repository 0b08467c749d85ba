//! The in-cluster program: manager, server, crds.

mod crds;
mod health;
mod manager;
#[cfg(test)]
mod monitoring_tests;
mod process;
mod server;

use anyhow::{Result, anyhow};
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// The default log filter. Warnings of kube_client contain undecodable responses, which may have
/// secrets in the environment of containers.
const DEFAULT_LOG_FILTER: &str = "info,kube=warn,kube_client::client=error";

/// DI Orchestrator: runs reinforcement-learning jobs on Kubernetes.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Log filter in the format of RUST_LOG
    #[arg(
        long,
        env = "RUST_LOG",
        default_value = DEFAULT_LOG_FILTER,
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
    // See docs/decisions/0006.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| {
            anyhow!("cannot install the TLS provider: another one is already installed")
        })?;
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
    async fn undecodable_responses_are_not_logged() {
        let router = Router::new().fallback(|| async { r#"{"major": ["s3cret"]}"# });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = Client::try_from(Config::new(url.parse().unwrap())).unwrap();

        let log = NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::try_new(DEFAULT_LOG_FILTER).unwrap())
            .with_writer(log.reopen().unwrap())
            .finish();
        let logging = tracing::subscriber::set_default(subscriber);
        tracing::warn!("logged");
        assert!(client.apiserver_version().await.is_err());
        drop(logging);
        let log = std::fs::read_to_string(log.path()).unwrap();
        assert!(log.contains("logged") && !log.contains("s3cret"), "{log}");
    }
}
