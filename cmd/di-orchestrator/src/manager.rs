//! `di-orchestrator manager`: webhooks on every replica, the reconciler on the one that leads.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use clap::Args;
use di_api::names;
use di_controller::{Lease, LeaseSettings, lead};
use kube::Client;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::sync::watch;
use tracing::info;

use crate::{
    health::{self, Health},
    process,
};

/// Serves the webhooks and, while it leads, reconciles jobs.
#[derive(Debug, Args)]
pub struct Manager {
    /// Serve the webhooks alone: another operator runs the jobs
    #[arg(long)]
    webhooks_only: bool,
    /// Address of the webhooks (HTTPS)
    #[arg(long, default_value_t = process::anywhere(9443))]
    webhook_addr: SocketAddr,
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, default_value_t = process::anywhere(8081))]
    health_addr: SocketAddr,
    /// Lifetime of the webhooks' certificate, in seconds
    #[arg(long, default_value_t = 90 * 24 * 3600)]
    certificate_lifetime: u64,
    /// How long a user is believed to have the right to create pods that the API server has confirmed, in seconds; 0 asks every time
    #[arg(long, default_value_t = 10)]
    rights_kept: u64,
    /// Folder with a certificate that another program keeps, such as cert-manager: tls.crt and tls.key
    #[arg(long, env = "CERTIFICATE_DIR")]
    certificate_dir: Option<PathBuf>,
    /// Address of the replica endpoint that pods are told, host:port
    #[arg(long, default_value = names::DEFAULT_SERVER_URL)]
    server_url: String,
    /// How many jobs are reconciled at the same time
    #[arg(long, default_value_t = 16)]
    concurrency: u16,
    #[command(flatten)]
    identity: process::Identity,
}

impl Manager {
    /// Runs until SIGTERM, or until the lease is lost.
    pub async fn run(self) -> Result<()> {
        let client = process::client().await?;
        let shutdown = process::shutdown()?;
        let (registry, webhook_metrics, metrics) = self.metrics();
        let (webhooks_ready, ready) = watch::channel(false);
        let webhooks = di_admission::run(
            client.clone(),
            di_admission::Settings {
                addr: self.webhook_addr,
                namespace: self.identity.namespace.clone(),
                certificate_dir: self.certificate_dir.clone(),
                lifetime: Duration::from_secs(self.certificate_lifetime),
                rights_kept: Duration::from_secs(self.rights_kept),
                ..di_admission::Settings::default()
            },
            webhook_metrics,
            webhooks_ready,
            process::until(shutdown.clone()),
        );
        let health = health::serve(
            self.health_addr,
            Health::new(
                move || *ready.borrow(),
                move || {
                    let mut text = String::new();
                    encode(&mut text, &registry)?;
                    Ok(text)
                },
            ),
            process::until(shutdown.clone()),
        );
        let controller = async {
            let Some(metrics) = metrics else {
                process::until(shutdown.clone()).await;
                return Ok(());
            };
            self.lead(client, metrics, shutdown.clone()).await
        };
        tokio::try_join!(
            async { webhooks.await.context("webhooks failed") },
            health,
            controller,
        )?;
        info!("Stopped");
        Ok(())
    }

    /// What `/metrics` shows: nothing of the reconciler where there is none, so that nobody misses a leader.
    pub fn metrics(
        &self,
    ) -> (
        Registry,
        di_admission::Metrics,
        Option<di_controller::Metrics>,
    ) {
        let mut registry = Registry::default();
        let webhooks = di_admission::Metrics::register(&mut registry);
        let reconciler = (!self.webhooks_only).then(|| di_controller::Metrics::new(&mut registry));
        (registry, webhooks, reconciler)
    }

    async fn lead(
        &self,
        client: Client,
        metrics: di_controller::Metrics,
        shutdown: watch::Receiver<bool>,
    ) -> Result<()> {
        let lease = LeaseSettings::new(
            &self.identity.namespace,
            "di-orchestrator",
            &self.identity.name,
        );
        let lease = Lease::new(client.clone(), lease);
        let settings = di_controller::Settings {
            build: di_plan::BuildSettings {
                server_url: self.server_url.clone(),
            },
            concurrency: self.concurrency,
            identity: self.identity.name.clone(),
            ..di_controller::Settings::default()
        };
        let shutdown = process::until(shutdown);
        // When another may lead, the process ends at once, and the kubelet starts it again.
        lead(client, &lease, settings, metrics, shutdown)
            .await
            .context("reconciler failed")
    }
}
