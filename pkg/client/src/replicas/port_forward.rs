use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional},
    time::sleep,
};

use crate::{
    Change, Cluster, Deadline, Error, Job, PodChoice, Result,
    replicas::{exec::stream_open_error, pod_choice::watch_pod},
    wait_for_started_pod,
};

/// Forwards one connection to a port of a pod until either side closes it.
///
/// # Errors
/// [`Error::Refused`] if no process listens on the port.
pub async fn forward_connection(
    cluster: &Cluster,
    pod: &Pod,
    port: u16,
    mut connection: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<()> {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let mut forwarder = match api.portforward(&name, &[port]).await {
        Ok(forwarder) => forwarder,
        Err(error) => return Err(stream_open_error(cluster, error, &name)),
    };
    let port_error = forwarder.take_error(port);
    if let Some(mut stream) = forwarder.take_stream(port) {
        // Either side may close the connection at any time, so ignore copy errors.
        copy_bidirectional(&mut connection, &mut stream).await.ok();
    }
    forwarder.abort();
    let port_error = match port_error {
        Some(error) => error.await,
        None => None,
    };
    match port_error {
        Some(error) => Err(Error::Refused(format!(
            "an error occurred forwarding to port {port} of pod {name}: {error}"
        ))),
        None => Ok(()),
    }
}

/// Waits until a pod has ended or is deleted.
pub async fn wait_for_pod_end(cluster: &Cluster, pod: &Pod) -> Result<()> {
    let mut changes = watch_pod(cluster, pod);
    while let Some(change) = changes.next().await {
        let Change::Applied(object) = change? else {
            return Ok(());
        };
        let ended = matches!(
            object["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        );
        if ended || object["metadata"]["uid"].as_str() != pod.metadata.uid.as_deref() {
            return Ok(());
        }
    }
    Ok(())
}

/// Waits until the replacement of a lost pod runs.
///
/// Returns `None` if the job ends, or after `limit`. The limit restarts while the lost pod
/// terminates:
/// it may save data during its grace period.
pub async fn wait_for_successor(
    cluster: &Cluster,
    job: &Job,
    choice: &PodChoice,
    lost: &Pod,
    limit: Duration,
) -> Result<Option<Pod>> {
    const PAUSE: Duration = Duration::from_millis(500);
    let mut deadline = Deadline::after(Some(limit));
    loop {
        let current = match crate::get_job(cluster, job.name()).await {
            Err(error) if error.is_not_found() => return Ok(None),
            current => current?,
        };
        if current.has_ended() || current.metadata.uid != job.metadata.uid {
            return Ok(None);
        }
        match wait_for_started_pod(cluster, &current, choice, deadline).await {
            Ok(pod) if pod.uid() != lost.uid() && is_running(&pod) => return Ok(Some(pod)),
            Ok(pod) if pod.uid() == lost.uid() && pod.metadata.deletion_timestamp.is_some() => {
                deadline = Deadline::after(Some(limit));
            }
            // The replacement does not exist yet.
            Ok(_) | Err(Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        if deadline.ends_within(PAUSE) {
            return Ok(None);
        }
        sleep(PAUSE).await;
    }
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Running")
}

/// Finds a container port by its name.
pub fn find_port(pod: &Pod, name: &str) -> Option<u16> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(name))?;
    u16::try_from(port.container_port).ok()
}
