//! `kubectl di port-forward`: a replica's ports on this machine.

mod ports;

use std::{io::Write, net::IpAddr, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Args;
use di_api::names::PORT_NAME;
use di_client::{Cluster, Deadline, await_loss, forward, job, port_named, started_pod, successor};
use k8s_openapi::api::core::v1::Pod;
use tokio::{net::TcpListener, sync::mpsc, time::sleep};

use crate::{
    args::duration, exec::ended, globals::Globals, names::JobAndReplica, output::report,
    role::RoleName,
};

use ports::{Port, Ports};

/// Reach ports of a replica on this machine; the coordinator's unless told otherwise.
///
/// Goes on until it is interrupted, or the job ends; a pod that is lost meanwhile gives way to the one that takes its place, but where the
/// replica was named.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # The coordinator's own port
  kubectl di port-forward cartpole

  # A learner's TensorBoard, at 8080 here
  kubectl di port-forward cartpole --role learner 8080:6006

  # The coordinator's own port by its name, at 8080 here
  kubectl di port-forward cartpole 8080:di-port

  # A port of a replica, wherever there is one free here
  kubectl di port-forward cartpole/cartpole-collector-x7k2p :22270")]
pub struct PortForward {
    /// Name of the job, or of the job and one of its replicas: NAME/REPLICA
    #[arg(value_name = "NAME[/REPLICA]")]
    target: JobAndReplica,
    /// Ports as [LOCAL:]REMOTE, where REMOTE is a number or a port's name; without any, the replica's own, at a free one here
    #[arg(value_name = "[LOCAL:]REMOTE")]
    ports: Vec<Ports>,
    /// Of a replica of this role
    #[arg(long, value_enum)]
    role: Option<RoleName>,
    /// Of the replica of this index within its role
    #[arg(long, value_name = "N", requires = "role")]
    index: Option<i32>,
    /// How long to wait for the replica's pod to run
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    pod_running_timeout: Duration,
    /// Addresses to listen at here, as localhost or 0.0.0.0
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
        let job = job(&cluster, &self.target.job).await?;
        let deadline = Deadline::after(Some(self.pod_running_timeout));
        let choice = self.target.choice(self.role.map(Into::into), self.index);
        let mut pod = Arc::new(started_pod(&cluster, &job, &choice, deadline).await?);
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
        ensure!(
            phase.as_deref() == Some("Running"),
            "unable to forward port because pod is not running. Current status={}",
            phase.unwrap_or_default()
        );
        let mut ports = self.ports.clone();
        if ports.is_empty() {
            ensure!(
                port_named(&pod, PORT_NAME).is_some(),
                "the replica names no port {PORT_NAME}; say which: [LOCAL:]REMOTE"
            );
            ports.push(Ports {
                local: Some(0),
                remote: Port::Named(PORT_NAME.to_owned()),
            });
        }
        let (send, mut accepted) = mpsc::channel(16);
        for Ports { local, remote } in ports {
            let remote = number(&pod, &remote)?;
            for (listener, local) in listen(&self.address, local.unwrap_or(remote)).await? {
                writeln!(out, "Forwarding from {local} -> {remote}")?;
                let send = send.clone();
                tokio::spawn(async move {
                    loop {
                        match listener.accept().await {
                            Ok((connection, _)) => {
                                let here = (connection, remote, local.port());
                                if send.send(here).await.is_err() {
                                    return;
                                }
                            }
                            // Out of file descriptors, perhaps: they come back as connections end.
                            Err(error) => {
                                report(&error.into());
                                sleep(Duration::from_secs(1)).await;
                            }
                        }
                    }
                });
            }
        }
        out.flush()?;
        let mut lost = Box::pin(loss(cluster.clone(), pod.clone()));
        let mut ended = std::pin::pin!(ended(false));
        loop {
            tokio::select! {
                Some((connection, remote, local)) = accepted.recv() => {
                    writeln!(out, "Handling connection for {local}")?;
                    out.flush()?;
                    let (cluster, pod) = (cluster.clone(), pod.clone());
                    tokio::spawn(async move {
                        if let Err(error) = forward(&cluster, &pod, remote, connection).await {
                            report(&error.into());
                        }
                    });
                }
                result = &mut lost => {
                    result?;
                    ensure!(self.target.replica.is_none(), LOST);
                    eprintln!("{LOST} {}; waiting for the one that takes its place", name_of(&pod));
                    let patience = self.pod_running_timeout;
                    let next = tokio::select! {
                        next = successor(&cluster, &job, &choice, &pod, patience) => next?,
                        code = &mut ended => return Ok(code_of(code)),
                    };
                    pod = Arc::new(next.context(LOST)?);
                    eprintln!("connected to pod {}", name_of(&pod));
                    lost = Box::pin(loss(cluster.clone(), pod.clone()));
                }
                code = &mut ended => return Ok(code_of(code)),
            }
        }
    }
}

const LOST: &str = "lost connection to pod";

async fn loss(cluster: Cluster, pod: Arc<Pod>) -> di_client::Result<()> {
    await_loss(&cluster, &pod).await
}

/// Interrupted, it has done what it was asked for.
fn code_of(signal: i32) -> ExitCode {
    match u8::try_from(signal) {
        Ok(130) => ExitCode::SUCCESS,
        code => ExitCode::from(code.unwrap_or(1)),
    }
}

fn name_of(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn number(pod: &Pod, port: &Port) -> Result<u16> {
    match port {
        Port::Number(number) => Ok(*number),
        Port::Named(name) => port_named(pod, name)
            .with_context(|| format!("Pod '{}' does not have a named port '{name}'", name_of(pod))),
    }
}

/// Listens at every address that there is; kubectl takes one of localhost's two for enough.
async fn listen(
    addresses: &[String],
    local: u16,
) -> Result<Vec<(TcpListener, std::net::SocketAddr)>> {
    let mut listeners: Vec<(TcpListener, std::net::SocketAddr)> = Vec::new();
    for address in addresses {
        let ips: Vec<IpAddr> = match address.as_str() {
            "localhost" => vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()],
            other => vec![other.parse().with_context(|| {
                format!("{other} is not a valid IP for --address, nor localhost")
            })?],
        };
        let before = listeners.len();
        let mut failed = None;
        for ip in ips {
            // The same port at both addresses.
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
