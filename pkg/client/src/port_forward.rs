use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};

use crate::{Change, Cluster, Error, Result, exec::stream_error, target::watch_pod};

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

/// The port of a pod that one of its containers calls so.
pub fn port_named(pod: &Pod, name: &str) -> Option<u16> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(name))?;
    u16::try_from(port.container_port).ok()
}
