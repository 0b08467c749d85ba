//! `di-orchestrator server`: the replica endpoint.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use clap::Args;
use di_replicas::{Metrics, Settings, State};

use crate::{
    health::{self, Health},
    process,
};

/// Serve the replica endpoint for coordinators.
#[derive(Debug, Args)]
pub struct Server {
    /// Address to listen on (HTTP)
    #[arg(long, default_value_t = process::any_address(8080))]
    address: SocketAddr,
    /// Address of /healthz, /readyz and /metrics, separate from the connections of clients
    #[arg(long, default_value_t = process::any_address(8082))]
    health_addr: SocketAddr,
    /// Allow requests without a known pod address or a token
    #[arg(long)]
    allow_anonymous: bool,
    /// Maximum wait for the scheduler before a POST returns or a list includes new replicas, in
    /// seconds
    #[arg(long, default_value_t = 2)]
    create_wait: u64,
    /// Maximum number of replicas that one request may add
    #[arg(long, default_value_t = 1000)]
    max_replicas_per_request: usize,
    /// Maximum number of replicas of a job; its status lists all of them and must stay below the
    /// object size limit of 1.5 MiB
    #[arg(long, default_value_t = 2000)]
    max_replicas_per_job: usize,
    /// Maximum number of concurrent requests that change one job; further requests get 429
    #[arg(long, default_value_t = 64)]
    max_changes_per_job: usize,
    /// Maximum number of open connections; further connections wait
    #[arg(long, default_value_t = 1024)]
    max_connections: usize,
    /// Maximum number of open connections per source address; further connections are closed
    #[arg(long, default_value_t = 128)]
    max_connections_per_address: usize,
    /// Maximum size of a request body, in bytes; larger requests get 413
    #[arg(long, default_value_t = 65536)]
    max_body: usize,
    /// Timeout for reading the header of a request and for idle connections, in seconds
    #[arg(long, default_value_t = 10)]
    header_timeout: u64,
    /// Timeout for reading the body of a request, in seconds
    #[arg(long, default_value_t = 10)]
    body_timeout: u64,
    /// Timeout for a whole request, in seconds
    #[arg(long, default_value_t = 30)]
    request_timeout: u64,
    /// Maximum wait for the initial lists of jobs and pods, in seconds
    #[arg(long, default_value_t = 3)]
    sync_wait: u64,
    /// Maximum wait for a kubelet to report the address of a pod or the restart of a coordinator,
    /// in seconds
    #[arg(long, default_value_t = 5)]
    kubelet_wait: u64,
    /// Time for which a connection accepts requests, in seconds; it is closed soon after
    #[arg(long, default_value_t = 300)]
    max_connection_age: u64,
    /// Maximum wait for requests in flight after SIGTERM, in seconds. At least --request-timeout: a
    /// client that gets no response may add its replicas twice
    #[arg(long, default_value_t = 30)]
    drain_timeout: u64,
}

impl Server {
    /// Runs until SIGTERM.
    pub async fn run(self) -> Result<()> {
        let client = process::create_client().await?;
        let shutdown = process::handle_signals()?;
        let metrics = Metrics::default();
        let endpoint =
            di_replicas::Server::start(client, self.endpoint_settings(), metrics.clone())
                .await
                .context("replica endpoint failed")?;
        let health = health::serve(
            self.health_addr,
            build_health(endpoint.state(), metrics),
            process::wait_for_shutdown(shutdown.clone()),
        );
        let endpoint = endpoint.run(process::wait_for_shutdown(shutdown));
        tokio::try_join!(
            async { endpoint.await.context("replica endpoint failed") },
            health,
        )?;
        Ok(())
    }

    fn endpoint_settings(&self) -> Settings {
        Settings {
            address: self.address,
            allow_anonymous: self.allow_anonymous,
            scheduling_wait: Duration::from_secs(self.create_wait),
            max_replicas_per_request: self.max_replicas_per_request,
            max_replicas_per_job: self.max_replicas_per_job,
            max_changes_per_job: self.max_changes_per_job,
            max_connections: self.max_connections,
            max_connections_per_address: self.max_connections_per_address,
            max_body: self.max_body,
            header_timeout: Duration::from_secs(self.header_timeout),
            body_timeout: Duration::from_secs(self.body_timeout),
            request_timeout: Duration::from_secs(self.request_timeout),
            sync_wait: Duration::from_secs(self.sync_wait),
            kubelet_wait: Duration::from_secs(self.kubelet_wait),
            max_connection_age: Duration::from_secs(self.max_connection_age),
            drain_timeout: Duration::from_secs(self.drain_timeout),
        }
    }
}

/// The health of an endpoint.
pub fn build_health(state: &State, metrics: Metrics) -> Health {
    let state = state.clone();
    Health::new(move || state.is_ready(), move || metrics.text())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;

    const DEPLOYMENT: &str = include_str!("../../../manifests/default/deployment.yaml");

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        server: Server,
    }

    #[test]
    fn flag_defaults_equal_the_default_settings() {
        let settings = Command::parse_from(["server"]).server.endpoint_settings();
        let defaults = Settings {
            address: process::any_address(8080),
            ..Settings::default()
        };
        assert_eq!(settings, defaults);
    }

    #[test]
    fn flags_set_their_settings() {
        let flags = [
            "--address=127.0.0.1:1",
            "--allow-anonymous",
            "--create-wait=11",
            "--max-replicas-per-request=12",
            "--max-replicas-per-job=13",
            "--max-changes-per-job=14",
            "--max-connections=15",
            "--max-connections-per-address=16",
            "--max-body=17",
            "--header-timeout=18",
            "--body-timeout=19",
            "--request-timeout=20",
            "--sync-wait=21",
            "--kubelet-wait=22",
            "--max-connection-age=23",
            "--drain-timeout=24",
            "--health-addr=127.0.0.1:2",
        ];
        let server = Command::parse_from(["server"].into_iter().chain(flags)).server;
        assert_eq!(server.health_addr, SocketAddr::from(([127, 0, 0, 1], 2)));
        let expected = Settings {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            allow_anonymous: true,
            scheduling_wait: Duration::from_secs(11),
            max_replicas_per_request: 12,
            max_replicas_per_job: 13,
            max_changes_per_job: 14,
            max_connections: 15,
            max_connections_per_address: 16,
            max_body: 17,
            header_timeout: Duration::from_secs(18),
            body_timeout: Duration::from_secs(19),
            request_timeout: Duration::from_secs(20),
            sync_wait: Duration::from_secs(21),
            kubelet_wait: Duration::from_secs(22),
            max_connection_age: Duration::from_secs(23),
            drain_timeout: Duration::from_secs(24),
        };
        assert_eq!(server.endpoint_settings(), expected);
    }

    /// The container of the endpoint in the manifest.
    fn replicas_container() -> Value {
        let deployment: Value = serde_saphyr::from_str(DEPLOYMENT).unwrap();
        let containers = &deployment["spec"]["template"]["spec"]["containers"];
        let mut containers = containers.as_array().unwrap().iter();
        let replicas = containers.find(|one| one["name"] == "replicas");
        replicas.unwrap().clone()
    }

    #[test]
    fn request_bodies_leave_memory_for_the_caches() {
        let replicas = replicas_container();
        let limit = replicas["resources"]["limits"]["memory"].as_str().unwrap();
        let limit: usize = limit.strip_suffix("Mi").unwrap().parse().unwrap();
        let settings = Settings::default();
        // Each connection uses a body, and at most as much again for its buffers.
        let used = settings.max_connections * settings.max_body * 2;
        assert!(used <= (limit << 20) / 2, "{used} bytes");
    }

    #[test]
    fn probe_ports_are_those_of_the_health_server() {
        let replicas = replicas_container();
        let server = Command::parse_from(["server"]).server;
        for (name, address) in [("replicas", server.address), ("health", server.health_addr)] {
            let mut ports = replicas["ports"].as_array().unwrap().iter();
            let port = ports.find(|port| port["name"] == name).unwrap();
            assert_eq!(port["containerPort"], address.port(), "{name}");
        }
        for probe in ["readinessProbe", "livenessProbe"] {
            assert_eq!(replicas[probe]["httpGet"]["port"], "health");
        }
    }
}
