use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional},
    time::sleep,
};

use crate::{
    Change, Choice, Cluster, Deadline, Error, Job, Result, exec::stream_error, started_pod,
    target::watch_pod,
};

/// Carries one connection to a port of a pod, until either side ends it.
///
/// # Errors
/// [`Error::Replica`] when nothing listens there.
pub async fn forward(
    cluster: &Cluster,
    pod: &Pod,
    port: u16,
    mut connection: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<()> {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let mut forwarder = match api.portforward(&name, &[port]).await {
        Ok(forwarder) => forwarder,
        Err(error) => return Err(stream_error(cluster, error, &name)),
    };
    let refused = forwarder.take_error(port);
    if let Some(mut stream) = forwarder.take_stream(port) {
        // Either side may go when it has enough; that is no fault of ours.
        copy_bidirectional(&mut connection, &mut stream).await.ok();
    }
    forwarder.abort();
    let refused = match refused {
        Some(refused) => refused.await,
        None => None,
    };
    match refused {
        Some(why) => Err(Error::Replica(format!(
            "an error occurred forwarding to port {port} of pod {name}: {why}"
        ))),
        None => Ok(()),
    }
}

/// Waits until a pod has ended or is gone.
pub async fn await_loss(cluster: &Cluster, pod: &Pod) -> Result<()> {
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

/// The pod that takes the place of a lost one, once it runs; nothing when the job ends before that, or none does within this time, which
/// begins once the lost one is gone: until then it may save what it has.
pub async fn successor(
    cluster: &Cluster,
    job: &Job,
    choice: &Choice,
    lost: &Pod,
    patience: Duration,
) -> Result<Option<Pod>> {
    const PAUSE: Duration = Duration::from_millis(500);
    let mut deadline = Deadline::after(Some(patience));
    loop {
        let now = match crate::job(cluster, job.name()).await {
            Err(error) if error.is_not_found() => return Ok(None),
            now => now?,
        };
        if now.has_ended() || now.metadata.uid != job.metadata.uid {
            return Ok(None);
        }
        match started_pod(cluster, &now, choice, deadline).await {
            Ok(pod) if pod.uid() != lost.uid() && is_running(&pod) => return Ok(Some(pod)),
            Ok(pod) if pod.uid() == lost.uid() && pod.metadata.deletion_timestamp.is_some() => {
                deadline = Deadline::after(Some(patience));
            }
            // The next one is not there yet.
            Ok(_) | Err(Error::Replica(_)) => {}
            Err(error) => return Err(error),
        }
        if deadline.comes_within(PAUSE) {
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

/// The port of a pod that one of its containers calls so.
pub fn port_named(pod: &Pod, name: &str) -> Option<u16> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(name))?;
    u16::try_from(port.container_port).ok()
}
