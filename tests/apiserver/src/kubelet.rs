use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Binding, Pod};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use crate::Space;

/// Acts as a kubelet: removes terminating pods, and optionally runs the others.
pub struct Kubelet(JoinHandle<()>);

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Kubelet {
    /// Runs every pod. Those of another scheduler run once it has bound them.
    pub fn running(space: &Space) -> Self {
        Self::start(space, true)
    }

    /// Removes terminating pods only; the test runs the others.
    pub fn reaping(space: &Space) -> Self {
        Self::start(space, false)
    }

    fn start(space: &Space, runs: bool) -> Self {
        let client = space.server.client("kubelet");
        let pods: Api<Pod> = Api::namespaced(client, &space.namespace);
        Self(tokio::spawn(async move {
            watcher(pods.clone(), watcher::Config::default())
                .default_backoff()
                .applied_objects()
                // The watcher recovers from errors by itself.
                .filter_map(|pod| std::future::ready(pod.ok()))
                .for_each_concurrent(16, |pod: Pod| {
                    let pods = pods.clone();
                    async move {
                        if pod.metadata.deletion_timestamp.is_some() {
                            reap_pod(&pods, &pod).await;
                        } else if runs && should_start(&pod) {
                            run(&pods, &pod.name_any()).await;
                        }
                    }
                })
                .await;
        }))
    }
}

/// Whether a pod waits for its kubelet. Those of the default scheduler have no node yet, because it
/// does not run.
fn should_start(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref().unwrap();
    let is_bound = spec.node_name.is_some();
    if spec.scheduler_name.as_deref() == Some("default-scheduler") {
        return !is_bound;
    }
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    is_bound && phase == Some("Pending")
}

async fn reap_pod(pods: &Api<Pod>, pod: &Pod) {
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    loop {
        match pods.delete(&pod.name_any(), &params).await {
            Err(error) if is_retryable(&error) => sleep(RETRY_INTERVAL).await,
            // Another client may have deleted the pod already.
            _ => return,
        }
    }
}

/// Delay before a failed request is sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Whether the error is transient.
fn is_retryable(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || status.code == 429,
        _ => true,
    }
}

async fn set_status(pods: &Api<Pod>, name: &str, status: Value) {
    let patch = Patch::Strategic(json!({ "status": status }));
    let params = PatchParams::default();
    loop {
        match pods.patch_status(name, &params, &patch).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => return,
            Err(error) if is_retryable(&error) => sleep(RETRY_INTERVAL).await,
            other => return drop(other.unwrap()),
        }
    }
}

fn conditions(ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!([{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}])
}

fn main_container(ready: bool, state: &Value) -> Value {
    json!([{"name": "di-container", "image": "none", "imageID": "", "ready": ready, "restartCount": 0, "state": state}])
}

/// Sets the pod IP.
pub async fn give_address(pods: &Api<Pod>, name: &str, address: &str) {
    let addresses = json!({"podIP": address, "podIPs": [{"ip": address}]});
    set_status(pods, name, addresses).await;
}

/// Sets the restart count of the main container.
pub async fn report_restarts(pods: &Api<Pod>, name: &str, restarts: u32) {
    let mut containers = main_container(true, &json!({"running": {"startedAt": STARTED_AT}}));
    containers[0]["restartCount"] = restarts.into();
    set_status(pods, name, json!({"containerStatuses": containers})).await;
}

const STARTED_AT: &str = "2020-01-01T00:00:00Z";

/// Binds a pod to a node and sets its status to running and ready. Ignores a pod that is gone.
pub async fn run(pods: &Api<Pod>, name: &str) {
    let binding: Binding = serde_json::from_value(json!({
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
    }))
    .unwrap();
    let params = PostParams::default();
    // The binding fails if the pod is bound already.
    let bound: kube::Result<Value> = pods
        .create_subresource("binding", name, &params, &binding)
        .await;
    drop(bound);
    let state = json!({"running": {"startedAt": STARTED_AT}});
    let status = json!({
        "phase": "Running", "conditions": conditions(true), "containerStatuses": main_container(true, &state),
    });
    set_status(pods, name, status).await;
}

/// Terminates the main container, and so the pod.
pub async fn exit(pods: &Api<Pod>, name: &str, code: i32) {
    let (phase, reason) = if code == 0 {
        ("Succeeded", "Completed")
    } else {
        ("Failed", "Error")
    };
    let ended = json!({
        "exitCode": code, "reason": reason, "startedAt": STARTED_AT, "finishedAt": STARTED_AT, "containerID": "containerd://1",
    });
    let state = json!({"terminated": ended, "running": null});
    let status = json!({
        "phase": phase, "conditions": conditions(false), "containerStatuses": main_container(false, &state),
    });
    set_status(pods, name, status).await;
}

/// Sets the status of a pod whose image cannot be pulled.
pub async fn fail_to_pull(pods: &Api<Pod>, name: &str) {
    let state = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
    let status = json!({
        "phase": "Pending", "conditions": conditions(false), "containerStatuses": main_container(false, &state),
    });
    set_status(pods, name, status).await;
}

/// Sets the status of a pod whose node is lost.
pub async fn report_node_lost(pods: &Api<Pod>, name: &str) {
    let lost = json!({"phase": "Unknown", "reason": "NodeLost", "conditions": conditions(false)});
    set_status(pods, name, lost).await;
}

/// Sets the status of a pod that the scheduler cannot place.
pub async fn report_unschedulable(pods: &Api<Pod>, name: &str) {
    let unschedulable = json!([{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available",
    }]);
    set_status(pods, name, json!({"conditions": unschedulable})).await;
}

/// Deletes an object without grace, as a kubelet or the garbage collector would.
pub async fn remove<K>(api: &Api<K>, name: &str)
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let params = DeleteParams::default().grace_period(0);
    api.delete(name, &params).await.unwrap();
}
