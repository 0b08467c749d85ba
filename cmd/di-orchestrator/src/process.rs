//! What both long-running commands share: who they are, their client, their end.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use anyhow::{Context, Result};
use clap::Args;
use kube::{Client, Config};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::info;

/// Which pod this is.
#[derive(Debug, Args)]
pub struct Identity {
    /// Name of this pod
    #[arg(long = "pod-name", env = "POD_NAME", default_value_t = unnamed(), hide_default_value = true)]
    pub name: String,
    /// Namespace of this pod
    #[arg(long = "pod-namespace", env = "POD_NAMESPACE", default_value = di_api::names::SYSTEM_NAMESPACE)]
    pub namespace: String,
}

/// A name that no other process has: of two that hold the Lease by one name, each would take it for its own.
fn unnamed() -> String {
    format!("di-orchestrator-{:08x}", rand::random::<u32>())
}

/// This port of all addresses: those of IPv6 and IPv4, but for a machine that has only the latter, or keeps them apart.
pub fn anywhere(port: u16) -> SocketAddr {
    let takes_both = || {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok()?;
        let taken = socket.local_addr().ok()?.port();
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, taken)).err()
    };
    if takes_both().is_some() {
        (Ipv6Addr::UNSPECIFIED, port).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, port).into()
    }
}

/// A client of the cluster that this runs in, or that the kubeconfig names.
pub async fn client() -> Result<Client> {
    let config = Config::infer()
        .await
        .context("no cluster: neither in-cluster configuration nor kubeconfig")?;
    di_cache::client(config).context("cannot make a client")
}

/// Becomes true at SIGTERM or SIGINT.
pub fn shutdown() -> Result<watch::Receiver<bool>> {
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
        // Held until the process ends: a closed channel must not look like a signal.
        std::future::pending::<()>().await;
    });
    Ok(receiver)
}

/// Resolves once `shutdown` is true.
pub async fn until(mut shutdown: watch::Receiver<bool>) {
    // An error means that the sender is gone, and the process with it.
    shutdown.wait_for(|down| *down).await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_processes_have_one_name() {
        assert_ne!(unnamed(), unnamed());
    }
}
