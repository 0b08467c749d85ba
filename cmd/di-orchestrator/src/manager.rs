//! `di-orchestrator manager`: webhooks on every replica, the reconciler on the leader.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use di_admission::{DryRunSettings, PolicyDenials};
use di_api::names;
use di_controller::{Lease, LeaseSettings, run_with_leader_election};
use di_plan::GangSetting;
use kube::Client;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::{
    health::{self, Health},
    process,
};

/// Serve the admission webhooks, and reconcile jobs while this replica is the leader.
#[derive(Debug, Args)]
pub struct Manager {
    /// Only serve the webhooks: another operator reconciles the jobs
    #[arg(long)]
    webhook_only: bool,
    /// Create the pods of new templates in a dry run, also with --webhook-only; needs the
    /// permission to create pods
    #[arg(long)]
    dry_run: bool,
    /// What the webhooks do if a policy denies a pod in the dry run: warn, or refuse the job
    #[arg(long, value_enum, default_value_t)]
    dry_run_denials: Denials,
    /// Address of the webhook server (HTTPS)
    #[arg(long, default_value_t = process::any_address(9443))]
    webhook_addr: SocketAddr,
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, default_value_t = process::any_address(8081))]
    health_addr: SocketAddr,
    /// Lifetime of the webhook certificate, in seconds
    #[arg(long, default_value_t = 90 * 24 * 3600)]
    certificate_lifetime: u64,
    /// Time for which a permission to create pods is cached, in seconds; 0 disables the cache
    #[arg(long, default_value_t = 10)]
    authorization_cache_ttl: u64,
    /// Directory with tls.crt and tls.key from another program such as cert-manager
    #[arg(long, env = "CERTIFICATE_DIR")]
    certificate_dir: Option<PathBuf>,
    /// Replica endpoint address injected into pods (host:port)
    #[arg(long, default_value = names::DEFAULT_SERVER_URL)]
    server_url: String,
    /// Maximum number of jobs that are reconciled concurrently
    #[arg(long, default_value_t = 16)]
    concurrency: u16,
    /// Scheduler that starts the pods of a gang together: volcano, coscheduling, coscheduling:NAME
    /// with the schedulerName of its pods, yunikorn, kai, kubernetes, or none
    #[arg(
        long,
        env = "GANG_SCHEDULER",
        default_value = "none",
        value_name = "SCHEDULER"
    )]
    gang_scheduler: GangSetting,
    #[command(flatten)]
    identity: process::Identity,
}

/// The values of `--dry-run-denials`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Denials {
    #[default]
    Warn,
    Refuse,
}

impl Manager {
    /// Runs until SIGTERM.
    pub async fn run(self) -> Result<()> {
        let client = process::create_client().await?;
        let shutdown = process::handle_signals()?;
        let (registry, webhook_metrics, metrics) = self.register_metrics();
        let (webhooks_ready, ready) = watch::channel(false);
        let webhooks = di_admission::run(
            client.clone(),
            di_admission::Settings {
                addr: self.webhook_addr,
                namespace: self.identity.namespace.clone(),
                certificate_dir: self.certificate_dir.clone(),
                lifetime: Duration::from_secs(self.certificate_lifetime),
                authorization_cache_ttl: Duration::from_secs(self.authorization_cache_ttl),
                dry_run: self.dry_run_settings(),
                gang: self.gang_scheduler.0.clone(),
                ..di_admission::Settings::default()
            },
            webhook_metrics,
            webhooks_ready,
            process::wait_for_shutdown(shutdown.clone()),
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
            process::wait_for_shutdown(shutdown.clone()),
        );
        let controller = async {
            let Some(metrics) = metrics else {
                process::wait_for_shutdown(shutdown.clone()).await;
                return Ok(());
            };
            self.run_controller(client, metrics, shutdown.clone()).await
        };
        tokio::try_join!(
            async { webhooks.await.context("webhook server failed") },
            health,
            controller,
        )?;
        info!("Stopped");
        Ok(())
    }

    /// Registers the metrics.
    ///
    /// Without a reconciler there are none of the reconciler, so that the alert for a missing
    /// leader does not fire.
    pub fn register_metrics(
        &self,
    ) -> (
        Registry,
        di_admission::Metrics,
        Option<di_controller::Metrics>,
    ) {
        let mut registry = Registry::default();
        let webhooks = di_admission::Metrics::register(&mut registry);
        let reconciler = (!self.webhook_only).then(|| di_controller::Metrics::new(&mut registry));
        (registry, webhooks, reconciler)
    }

    fn build_settings(&self) -> di_plan::BuildSettings {
        di_plan::BuildSettings {
            server_url: self.server_url.clone(),
            gang: self.gang_scheduler.0.clone(),
        }
    }

    /// The dry run of the webhooks. An installation without a reconciler has no permission to
    /// create pods, unless an overlay grants it.
    fn dry_run_settings(&self) -> Option<DryRunSettings> {
        (self.dry_run || !self.webhook_only).then(|| DryRunSettings {
            build: self.build_settings(),
            denials: match self.dry_run_denials {
                Denials::Warn => PolicyDenials::Warn,
                Denials::Refuse => PolicyDenials::Refuse,
            },
        })
    }

    async fn run_controller(
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
            build: self.build_settings(),
            concurrency: self.concurrency,
            identity: self.identity.name.clone(),
            ..di_controller::Settings::default()
        };
        loop {
            let shutdown = process::wait_for_shutdown(shutdown.clone());
            let (settings, metrics) = (settings.clone(), metrics.clone());
            match run_with_leader_election(client.clone(), &lease, settings, metrics, shutdown)
                .await
            {
                // The reconciler has ended with all its tasks. The webhooks continue: a busy API
                // server, which caused the loss, needs them.
                Err(di_controller::Error::LeaseLost(lease)) => {
                    warn!(lease, "Lost the lease, waiting for it again");
                }
                ended => return ended.context("reconciler failed"),
            }
        }
    }
}
