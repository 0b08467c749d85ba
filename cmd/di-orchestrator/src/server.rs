//! `di-orchestrator server`: the replica endpoint.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use clap::Args;
use di_replicas::{Metrics, Settings, State};

use crate::{
    health::{self, Health},
    process,
};

/// Serves the replica endpoint that coordinators call.
#[derive(Debug, Args)]
pub struct Server {
    /// Address to listen on (HTTP)
    #[arg(long, default_value_t = process::anywhere(8080))]
    address: SocketAddr,
    /// Address of /healthz, /readyz and /metrics for probes and Prometheus, whose connections no client takes
    #[arg(long, default_value_t = process::anywhere(8082))]
    health_addr: SocketAddr,
    /// Let everybody call, with neither a pod's address nor a token
    #[arg(long)]
    allow_anonymous: bool,
    /// Longest wait for the scheduling verdicts of new replicas, before a POST is answered and before a list has them, in seconds
    #[arg(long, default_value_t = 2)]
    create_wait: u64,
    /// The most replicas that one request may add
    #[arg(long, default_value_t = 1000)]
    max_replicas_per_request: usize,
    /// The most replicas that a job may have; they are all named in its status, which must stay below the 1.5 MiB of an object
    #[arg(long, default_value_t = 2000)]
    max_replicas_per_job: usize,
    /// The most requests at a time that change one job; further ones are told to come again
    #[arg(long, default_value_t = 64)]
    max_changes_per_job: usize,
    /// The most connections at a time; further ones wait to be accepted
    #[arg(long, default_value_t = 1024)]
    max_connections: usize,
    /// The most connections of one source address at a time; further ones are closed
    #[arg(long, default_value_t = 128)]
    max_connections_per_address: usize,
    /// The largest body of a request, in bytes
    #[arg(long, default_value_t = 65536)]
    max_body: usize,
    /// How long the head of a request may take to come, in seconds; connections idle for so long are closed too
    #[arg(long, default_value_t = 10)]
    header_timeout: u64,
    /// How long the body of a request may take to come, in seconds
    #[arg(long, default_value_t = 10)]
    body_timeout: u64,
    /// How long a request may take in all, in seconds
    #[arg(long, default_value_t = 30)]
    request_timeout: u64,
    /// How long a request waits for the first lists of jobs and pods, in seconds
    #[arg(long, default_value_t = 3)]
    sync_wait: u64,
    /// How long a request waits for what a kubelet may not have told yet, in seconds: which pod has its address, and that a coordinator which
    /// asks for what it has was restarted in place
    #[arg(long, default_value_t = 5)]
    kubelet_wait: u64,
    /// How long a connection takes requests, in seconds; it ends soon after, also where its client reads no answers
    #[arg(long, default_value_t = 300)]
    longest_connection: u64,
    /// How long requests may still take 5 s after SIGTERM, in seconds; as long as any may, or a client that is cut off has twice what it asked for
    #[arg(long, default_value_t = 30)]
    drain: u64,
}

impl Server {
    /// Runs until SIGTERM.
    pub async fn run(self) -> Result<()> {
        let client = process::client().await?;
        let shutdown = process::shutdown()?;
        let metrics = Metrics::default();
        let endpoint = di_replicas::Server::start(client, self.settings(), metrics.clone())
            .await
            .context("replica endpoint failed")?;
        let health = health::serve(
            self.health_addr,
            health_of(endpoint.state(), metrics),
            process::until(shutdown.clone()),
        );
        let endpoint = endpoint.run(process::until(shutdown));
        tokio::try_join!(
            async { endpoint.await.context("replica endpoint failed") },
            health,
        )?;
        Ok(())
    }

    fn settings(&self) -> Settings {
        Settings {
            address: self.address,
            allow_anonymous: self.allow_anonymous,
            create_wait: Duration::from_secs(self.create_wait),
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
            longest_connection: Duration::from_secs(self.longest_connection),
            drain: Duration::from_secs(self.drain),
        }
    }
}

/// What is told of an endpoint.
pub fn health_of(state: &State, metrics: Metrics) -> Health {
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
    fn defaults_of_flags_are_those_of_the_settings() {
        let settings = Command::parse_from(["server"]).server.settings();
        let defaults = Settings {
            address: process::anywhere(8080),
            ..Settings::default()
        };
        assert_eq!(settings, defaults);
    }

    #[test]
    fn each_flag_sets_what_it_names() {
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
            "--longest-connection=23",
            "--drain=24",
            "--health-addr=127.0.0.1:2",
        ];
        let server = Command::parse_from(["server"].into_iter().chain(flags)).server;
        assert_eq!(server.health_addr, SocketAddr::from(([127, 0, 0, 1], 2)));
        let expected = Settings {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            allow_anonymous: true,
            create_wait: Duration::from_secs(11),
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
            longest_connection: Duration::from_secs(23),
            drain: Duration::from_secs(24),
        };
        assert_eq!(server.settings(), expected);
    }

    /// Its container.
    fn replicas() -> Value {
        let deployment: Value = serde_saphyr::from_str(DEPLOYMENT).unwrap();
        let containers = &deployment["spec"]["template"]["spec"]["containers"];
        let mut containers = containers.as_array().unwrap().iter();
        let replicas = containers.find(|one| one["name"] == "replicas");
        replicas.unwrap().clone()
    }

    #[test]
    fn what_all_connections_may_take_leaves_memory_for_the_caches() {
        let replicas = replicas();
        let limit = replicas["resources"]["limits"]["memory"].as_str().unwrap();
        let limit: usize = limit.strip_suffix("Mi").unwrap().parse().unwrap();
        let settings = Settings::default();
        // Each a body, and no more than that of what is around it.
        let taken = settings.max_connections * settings.max_body * 2;
        assert!(taken <= (limit << 20) / 2, "{taken} bytes");
    }

    #[test]
    fn probes_come_where_they_are_answered() {
        let replicas = replicas();
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
