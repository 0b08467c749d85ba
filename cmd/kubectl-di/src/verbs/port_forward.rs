//! `kubectl di port-forward`: forwards local ports to a replica.

mod ports;

use std::{io::Write, net::IpAddr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Args;
use di_api::names::PORT_NAME;
use di_client::{
    Cluster, Deadline, find_port, forward_connection, get_job, wait_for_pod_end,
    wait_for_started_pod, wait_for_successor,
};
use k8s_openapi::api::core::v1::Pod;
use tokio::{net::TcpListener, sync::mpsc, time::sleep};

use crate::{
    flags::{globals::Globals, names::JobAndReplica, parsers::parse_duration, role::RoleName},
    output::report_error,
    signals::{exit_code_for, wait_for_signal},
};

use ports::{Port, Ports};

/// Forward one or more local ports to a replica; by default to the coordinator.
///
/// Runs until it is interrupted or the job ends. If the pod is lost, forwarding continues with its
/// replacement, unless the replica is given by name.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Forward the default port of the coordinator
  kubectl di port-forward cartpole

  # Listen on port 8080 locally, forwarding to the TensorBoard of a learner
  kubectl di port-forward cartpole --role learner 8080:6006

  # Listen on port 8080 locally, forwarding to the named port of the coordinator
  kubectl di port-forward cartpole 8080:di-port

  # Listen on a random port locally, forwarding to a port of the replica with this name
  kubectl di port-forward cartpole/cartpole-collector-x7k2p :22270")]
pub struct PortForward {
    /// Name of the job, or of the job and one of its replicas: NAME/REPLICA
    #[arg(value_name = "NAME[/REPLICA]")]
    target: JobAndReplica,
    /// Ports as [LOCAL:]REMOTE; REMOTE is a number or a port name. Without ports, forward a random
    /// local port to di-port
    #[arg(value_name = "[LOCAL:]REMOTE")]
    ports: Vec<Ports>,
    /// Role of the replica
    #[arg(long, value_enum)]
    role: Option<RoleName>,
    /// Index of the replica within its role
    #[arg(long, value_name = "N", requires = "role")]
    index: Option<i32>,
    /// The length of time (like 5s, 2m, or 3h) to wait until the pod of the replica is running
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration)]
    pod_running_timeout: Duration,
    /// Addresses to listen on (comma separated). Only accepts IP addresses or localhost as a value
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "localhost",
        value_name = "ADDRESS"
    )]
    address: Vec<String>,
}

impl PortForward {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let job = get_job(&cluster, &self.target.job).await?;
        let deadline = Deadline::after(Some(self.pod_running_timeout));
        let choice = self.target.to_choice(self.role.map(Into::into), self.index);
        let mut pod = Arc::new(wait_for_started_pod(&cluster, &job, &choice, deadline).await?);
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        ensure!(
            phase.as_deref() == Some("Running"),
            "unable to forward port because pod is not running. Current status={}",
            phase.unwrap_or_default()
        );
        let mut ports = self.ports.clone();
        if ports.is_empty() {
            ensure!(
                find_port(&pod, PORT_NAME).is_some(),
                "the replica has no port named {PORT_NAME}; specify the port as [LOCAL:]REMOTE"
            );
            ports.push(Ports {
                local: Some(0),
                remote: Port::Named(PORT_NAME.to_owned()),
            });
        }
        let (send, mut accepted) = mpsc::channel(16);
        for Ports { local, remote } in ports {
            let remote = resolve_port(&pod, &remote)?;
            for (listener, local) in listen_on(&self.address, local.unwrap_or(remote)).await? {
                writeln!(out, "Forwarding from {local} -> {remote}")?;
                let send = send.clone();
                tokio::spawn(async move {
                    loop {
                        match listener.accept().await {
                            Ok((connection, _)) => {
                                let accepted = (connection, remote, local.port());
                                if send.send(accepted).await.is_err() {
                                    return;
                                }
                            }
                            // For example too many open files: retry when connections have ended.
                            Err(error) => {
                                report_error(&error.into());
                                sleep(Duration::from_secs(1)).await;
                            }
                        }
                    }
                });
            }
        }
        out.flush()?;
        let mut lost = Box::pin(pod_lost(cluster.clone(), pod.clone()));
        let mut ended = std::pin::pin!(wait_for_signal(false));
        loop {
            tokio::select! {
                Some((connection, remote, local)) = accepted.recv() => {
                    writeln!(out, "Handling connection for {local}")?;
                    out.flush()?;
                    let (cluster, pod) = (cluster.clone(), pod.clone());
                    tokio::spawn(async move {
                        if let Err(error) = forward_connection(&cluster, &pod, remote, connection).await {
                            report_error(&error.into());
                        }
                    });
                }
                result = &mut lost => {
                    result?;
                    ensure!(self.target.replica.is_none(), LOST);
                    eprintln!("{LOST} {}; waiting for its replacement", pod_name(&pod));
                    let timeout = self.pod_running_timeout;
                    let next = tokio::select! {
                        next = wait_for_successor(&cluster, &job, &choice, &pod, timeout) => next?,
                        code = &mut ended => return Ok(exit_code_for(code)),
                    };
                    pod = Arc::new(next.context(LOST)?);
                    eprintln!("connected to pod {}", pod_name(&pod));
                    lost = Box::pin(pod_lost(cluster.clone(), pod.clone()));
                }
                code = &mut ended => return Ok(exit_code_for(code)),
            }
        }
    }
}

const LOST: &str = "lost connection to pod";

async fn pod_lost(cluster: Cluster, pod: Arc<Pod>) -> di_client::Result<()> {
    wait_for_pod_end(&cluster, &pod).await
}

fn pod_name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn resolve_port(pod: &Pod, port: &Port) -> Result<u16> {
    match port {
        Port::Number(number) => Ok(*number),
        Port::Named(name) => find_port(pod, name).with_context(|| {
            format!(
                "Pod '{}' does not have a named port '{name}'",
                pod_name(pod)
            )
        }),
    }
}

/// Listens on every address. As in kubectl, one of the two addresses of localhost is enough.
async fn listen_on(
    addresses: &[String],
    local: u16,
) -> Result<Vec<(TcpListener, std::net::SocketAddr)>> {
    let mut listeners: Vec<(TcpListener, std::net::SocketAddr)> = Vec::new();
    for address in addresses {
        let ips: Vec<IpAddr> = match address.as_str() {
            "localhost" => vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()],
            other => vec![other.parse().with_context(|| {
                format!("{other} is not a valid IP address for --address, and not localhost")
            })?],
        };
        let before = listeners.len();
        let mut failed = None;
        for ip in ips {
            // Use the same port on both addresses.
            let chosen = listeners.get(before).map_or(local, |(_, at)| at.port());
            match TcpListener::bind((ip, chosen)).await {
                Ok(listener) => {
                    let at = listener.local_addr()?;
                    listeners.push((listener, at));
                }
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed.filter(|_| listeners.len() == before) {
            return Err(error)
                .with_context(|| format!("unable to listen on port {local}: {address}"));
        }
    }
    Ok(listeners)
}
