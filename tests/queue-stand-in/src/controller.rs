use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::{
    Client, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    crds::objects,
    quota::{Decision, Quota, decide},
    status_draft::StatusDraft,
    workload::{WorkloadView, is_true},
};

#[cfg(test)]
mod tests;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Acts as Kueue's controller for the Workloads of some namespaces, until it is dropped.
///
/// Like Kueue, it evicts by conditions only: the operator releases the quota. It ignores cohorts,
/// admission checks, `stopPolicy` and `minCount`. Quota counts only for Workloads of these
/// namespaces.
pub struct QueueController(JoinHandle<()>);

impl Drop for QueueController {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl QueueController {
    /// Starts the controller for one namespace. It waits for CRDs that are not installed.
    pub fn start(client: Client, namespace: &str, version: &str) -> Self {
        Self::start_for_namespaces(client, vec![namespace.to_owned()], version)
    }

    /// The same as `start` for several namespaces, whose LocalQueues can share a ClusterQueue.
    pub fn start_for_namespaces(client: Client, namespaces: Vec<String>, version: &str) -> Self {
        let cluster = Cluster {
            client,
            namespaces,
            version: version.to_owned(),
        };
        Self(tokio::spawn(async move {
            loop {
                // Before the first round, too: a write of a controller that was just aborted may
                // still arrive.
                sleep(POLL_INTERVAL).await;
                if let Err(error) = cluster.run_round().await {
                    eprintln!("queue stand-in: round failed: {error} (retrying)");
                }
            }
        }))
    }
}

struct Cluster {
    client: Client,
    namespaces: Vec<String>,
    version: String,
}

/// Objects of one round.
struct Listed {
    workloads: Vec<DynamicObject>,
    local_queues: Vec<DynamicObject>,
    cluster_queues: Vec<DynamicObject>,
}

impl Cluster {
    async fn run_round(&self) -> kube::Result<()> {
        let mut listed = Listed {
            workloads: Vec::new(),
            local_queues: Vec::new(),
            cluster_queues: self.list("ClusterQueue", None).await?,
        };
        for namespace in &self.namespaces {
            let namespace = Some(namespace.as_str());
            let workloads = self.list("Workload", namespace).await?;
            listed.workloads.extend(workloads);
            let local_queues = self.list("LocalQueue", namespace).await?;
            listed.local_queues.extend(local_queues);
        }
        let params = PatchParams::apply("kueue-admission").force();
        for (name, draft) in plan_round(&listed, now()) {
            let Some(patch) = draft.into_patch(&self.version) else {
                continue;
            };
            let namespace = patch["metadata"]["namespace"].as_str();
            let api = objects(&self.client, &self.version, "Workload", namespace);
            let patch = Patch::Apply(&patch);
            let written = api.patch_status(&name, &params, &patch).await;
            // If the Workload has changed since the list, the next round decides again.
            if let Err(error) = written
                && !is_outdated(&error)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Lists a kind; empty if its CRD is not installed.
    async fn list(&self, kind: &str, namespace: Option<&str>) -> kube::Result<Vec<DynamicObject>> {
        let api = objects(&self.client, &self.version, kind, namespace);
        match api.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(Vec::new()),
            other => other.map(|list| list.items),
        }
    }
}

/// Whether the object of a write was changed or deleted by another client.
fn is_outdated(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.is_not_found())
}

/// The current time in whole seconds, as in Kubernetes objects.
fn now() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap()
}

/// Returns the status of each unfinished Workload after this round, by name. Names have a part of
/// the UID of their job, so they differ between namespaces.
fn plan_round(listed: &Listed, now: Timestamp) -> BTreeMap<String, StatusDraft<'_>> {
    let quotas = listed.cluster_queues.iter();
    let quotas: BTreeMap<String, Quota> = quotas
        .map(|queue| (queue.name_any(), Quota::parse(&queue.data["spec"])))
        .collect();
    let mut drafts = BTreeMap::new();
    let mut members: BTreeMap<String, Vec<WorkloadView>> = BTreeMap::new();
    for workload in &listed.workloads {
        if is_true(workload, "Finished") {
            continue;
        }
        let mut draft = StatusDraft::new(workload, now);
        let mut view = WorkloadView::new(workload);
        let is_active = workload.data["spec"]["active"] != false;
        if !is_active {
            view.is_evicting = true;
            let message = "The workload is deactivated";
            draft.set("Evicted", "True", "Deactivated", message);
        }
        if view.reserved.is_some() {
            let queue = &workload.data["status"]["admission"]["clusterQueue"];
            let queue = queue.as_str().unwrap_or_default().to_owned();
            members.entry(queue).or_default().push(view);
        } else if is_active && draft.end_backoff() {
            match find_cluster_queue(workload, &listed.local_queues, &quotas) {
                Ok(queue) => members.entry(queue).or_default().push(view),
                Err(message) => draft.set("QuotaReserved", "False", "Inadmissible", &message),
            }
        }
        drafts.insert(workload.name_any(), draft);
    }
    for (queue, views) in &members {
        let Some(quota) = quotas.get(queue) else {
            continue;
        };
        for (name, decision) in decide(quota, views) {
            let Some(draft) = drafts.get_mut(&name) else {
                continue;
            };
            match decision {
                Decision::Admit(assignments) => draft.admit(queue, &assignments),
                Decision::Wait(message) => {
                    draft.set("QuotaReserved", "False", "Pending", &message);
                }
                Decision::Preempt(message) => {
                    draft.set("Evicted", "True", "Preempted", &message);
                    draft.set("Preempted", "True", "InClusterQueue", &message);
                }
            }
        }
    }
    drafts
}

/// Returns the name of the ClusterQueue in which a Workload waits.
///
/// # Errors
///
/// The message of Kueue if a queue is missing.
fn find_cluster_queue(
    workload: &DynamicObject,
    local_queues: &[DynamicObject],
    quotas: &BTreeMap<String, Quota>,
) -> Result<String, String> {
    let name = workload.data["spec"]["queueName"].as_str();
    let name = name.unwrap_or_default();
    let mut local_queues = local_queues.iter();
    let local_queue = local_queues
        .find(|queue| queue.name_any() == name && queue.namespace() == workload.namespace())
        .ok_or_else(|| format!("LocalQueue {name} doesn't exist"))?;
    let name = local_queue.data["spec"]["clusterQueue"].as_str();
    let name = name.unwrap_or_default();
    if quotas.contains_key(name) {
        Ok(name.to_owned())
    } else {
        Err(format!("ClusterQueue {name} doesn't exist"))
    }
}
