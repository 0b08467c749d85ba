//! The common part of both servers: pod identity, Kubernetes client and shutdown.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use clap::Args;
use kube::{Client, Config};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::info;

/// The identity of this pod.
#[derive(Debug, Args)]
pub struct Identity {
    /// Name of this pod
    #[arg(long = "pod-name", env = "POD_NAME", default_value_t = random_name(), hide_default_value = true)]
    pub name: String,
    /// Namespace of this pod
    #[arg(long = "pod-namespace", env = "POD_NAMESPACE", default_value = di_api::names::SYSTEM_NAMESPACE)]
    pub namespace: String,
}

/// A unique name for the Lease: two processes with the same holder identity would both be leaders.
fn random_name() -> String {
    format!("di-orchestrator-{:08x}", rand::random::<u32>())
}

/// The port on all addresses: IPv6 and IPv4 if the machine has dual-stack sockets, otherwise IPv4.
pub fn any_address(port: u16) -> SocketAddr {
    let binds_both = || {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok()?;
        let port = socket.local_addr().ok()?.port();
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).err()
    };
    if binds_both().is_some() {
        (Ipv6Addr::UNSPECIFIED, port).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, port).into()
    }
}

/// Creates a client from the in-cluster configuration or the kubeconfig.
pub async fn create_client() -> Result<Client> {
    let config = Config::infer()
        .await
        .context("cannot find a cluster: no in-cluster configuration and no kubeconfig")?;
    di_cache::build_client(config).context("cannot create a Kubernetes client")
}

/// Returns a value that becomes true on SIGTERM or SIGINT.
pub fn handle_signals() -> Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("Shutting down");
        sender.send_replace(true);
        // Keep the sender: a closed channel would end `wait_for_shutdown`.
        std::future::pending::<()>().await;
    });
    Ok(receiver)
}

/// Resolves once `shutdown` is true.
pub async fn wait_for_shutdown(mut shutdown: watch::Receiver<bool>) {
    // An error means that the sender was dropped because the process ends.
    shutdown.wait_for(|down| *down).await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_names_are_unique() {
        assert_ne!(random_name(), random_name());
    }
}
