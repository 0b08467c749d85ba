//! A mock of kubelets: pods run as soon as they exist, without nodes or containers.

use std::{collections::HashSet, future::ready};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{
    calls::Call,
    cluster::Space,
    fleet::{pod_status, replica_address},
};

/// Runs the pods of a namespace until it is dropped.
pub struct Kubelet {
    _task: JoinSet<()>,
}

/// Number of concurrent starts.
const AT_ONCE: usize = 16;

impl Kubelet {
    /// Runs those that are there, and those that come.
    pub fn start(space: &Space) -> Result<Self> {
        let status = running(true)?;
        let space = space.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut seen = HashSet::new();
            let pods: Api<PartialObjectMeta<Pod>> =
                Api::namespaced(space.client.clone(), &space.name);
            watcher(pods, watcher::Config::default())
                .default_backoff()
                .applied_objects()
                // The watcher recovers from errors.
                .filter_map(|pod| ready(pod.ok()))
                .filter(|pod| ready(seen.insert(pod.uid())))
                .for_each_concurrent(AT_ONCE, |pod| {
                    let call = Call::status(&space.pods_path(), &pod.name_any(), &status);
                    let client = space.client.clone();
                    async move {
                        if let Ok(call) = call {
                            // The pod may be gone already.
                            call.make(&client).await.ok();
                        }
                    }
                })
                .await;
        });
        Ok(Self { _task: task })
    }
}

/// Status of a pod that runs.
pub fn running(is_ready: bool) -> Result<Value> {
    Ok(json!(pod_status(replica_address(0), is_ready)?))
}

/// Status of a pod whose container does not run yet.
pub fn pending() -> Result<Value> {
    let mut status = running(false)?;
    status["phase"] = "Pending".into();
    let container = &mut status["containerStatuses"][0];
    container["state"] = json!({"waiting": {"reason": "ContainerCreating"}});
    container["started"] = false.into();
    Ok(status)
}

/// Status of a pod whose main container ended well.
pub fn succeeded() -> Result<Value> {
    let mut status = running(false)?;
    status["phase"] = "Succeeded".into();
    let ended =
        json!({"exitCode": 0, "reason": "Completed", "startedAt": WHEN, "finishedAt": WHEN});
    status["containerStatuses"][0]["state"] = json!({"terminated": ended, "running": null});
    Ok(status)
}

const WHEN: &str = "2026-01-01T00:00:00Z";
