use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    pin::pin,
    sync::{Arc, Mutex},
};

use di_api::{
    DIJob,
    names::{
        kueue::{CLUSTER_QUEUE_LABEL, POD_SET_LABEL},
        labels,
    },
};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use tokio::task::JoinHandle;

use crate::{
    crds::objects,
    quota::Quota,
    workload::{
        Amounts, MAX_POD_SETS, add_amounts, format_amount, is_true, items, pod_count, pod_requests,
        reclaimed_pods,
    },
};

#[cfg(test)]
mod tests;

/// Kueue puts the name into labels.
const MAX_NAME_LEN: usize = 63;

/// Watches the pods of jobs and the Workloads of a namespace, and records violations until it is
/// dropped.
///
/// Violations: admitted live pods request more than the nominal quota of their ClusterQueue, a live
/// pod of a job in a queue was not admitted, and a Workload breaks a rule of Kueue's webhooks or
/// CRDs. Pods count until they have ended or are gone from the API. The quota is that of the first
/// pod seen; tests that change it later need another monitor.
pub struct QuotaMonitor {
    tasks: [JoinHandle<()>; 2],
    violations: Violations,
}

impl Drop for QuotaMonitor {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl QuotaMonitor {
    /// Starts to watch. The CRDs must be installed, since a failed watch is retried with a growing
    /// delay.
    pub fn start(client: &Client, namespace: &str, version: &str) -> Self {
        let violations = Violations::default();
        let pod = ApiResource::erase::<Pod>(&());
        let pods: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &pod);
        let jobs: Api<DIJob> = Api::namespaced(client.clone(), namespace);
        let queues = objects(client, version, "ClusterQueue", None);
        let workloads = objects(client, version, "Workload", Some(namespace));
        Self {
            tasks: [
                tokio::spawn(watch_pods(pods, jobs, queues, violations.clone())),
                tokio::spawn(watch_workloads(workloads, violations.clone())),
            ],
            violations,
        }
    }

    /// Returns what was violated up to now, each violation once.
    pub fn violations(&self) -> Vec<String> {
        self.violations.0.lock().unwrap().clone()
    }
}

#[derive(Clone, Default)]
struct Violations(Arc<Mutex<Vec<String>>>);

impl Violations {
    fn record(&self, found: Vec<String>) {
        let mut all = self.0.lock().unwrap();
        for violation in found {
            if !all.contains(&violation) {
                all.push(violation);
            }
        }
    }
}

/// An admitted pod that has not ended.
struct LivePod {
    queue: String,
    requests: Amounts,
}

async fn watch_pods(
    pods: Api<DynamicObject>,
    jobs: Api<DIJob>,
    queues: Api<DynamicObject>,
    violations: Violations,
) {
    // By the label of jobs: a pod that was not admitted has no label of Kueue.
    let config = watcher::Config::default().labels(labels::JOB);
    let mut events = pin!(watcher(pods, config).default_backoff());
    let mut live: BTreeMap<String, LivePod> = BTreeMap::new();
    let mut quotas: HashMap<String, Amounts> = HashMap::new();
    // UIDs of the pods that were not admitted and whose job was read.
    let mut checked: HashSet<String> = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => live.clear(),
            Ok(Event::InitApply(pod) | Event::Apply(pod)) if uses_quota(&pod) => {
                let uid = pod.uid().unwrap_or_default();
                if let Some(queue) = admitting_queue(&pod) {
                    let requests = pod_requests(&pod.data["spec"]);
                    read_quota(&queues, &queue, &mut quotas).await;
                    live.insert(pod.name_any(), LivePod { queue, requests });
                } else if !checked.contains(&uid)
                    // A job that cannot be read is read again at the next event of the pod.
                    && let Ok(job) = jobs.get_opt(&pod.labels()[labels::JOB]).await
                {
                    checked.insert(uid);
                    let queue = job.as_ref().and_then(DIJob::queue_name);
                    violations.record(check_unadmitted(&pod, queue));
                }
            }
            Ok(Event::InitApply(pod) | Event::Apply(pod) | Event::Delete(pod)) => {
                live.remove(&pod.name_any());
            }
            // The watcher recovers from errors by itself.
            Ok(Event::InitDone) | Err(_) => {}
        }
        violations.record(check_quotas(&live, &quotas));
    }
}

/// Reads the quota of a ClusterQueue once. One that cannot be read is read again at the next event.
async fn read_quota(
    queues: &Api<DynamicObject>,
    queue: &str,
    quotas: &mut HashMap<String, Amounts>,
) {
    if let Entry::Vacant(entry) = quotas.entry(queue.to_owned())
        && let Ok(object) = queues.get(queue).await
    {
        entry.insert(Quota::parse(&object.data["spec"]).nominal());
    }
}

/// Returns the ClusterQueue of a pod that has the labels of an admission.
fn admitting_queue(pod: &DynamicObject) -> Option<String> {
    let labels = pod.labels();
    let queue = labels.get(CLUSTER_QUEUE_LABEL);
    queue
        .filter(|_| labels.contains_key(POD_SET_LABEL))
        .cloned()
}

/// Returns the violation of a live pod that was not admitted. `queue` is the LocalQueue of its job
/// when the pod was first seen: users may change it only while the job has no pods.
fn check_unadmitted(pod: &DynamicObject, queue: Option<&str>) -> Vec<String> {
    let violation = queue.map(|queue| {
        let name = pod.name_any();
        format!(
            "pod {name} of a job in queue {queue} lacks {POD_SET_LABEL} or {CLUSTER_QUEUE_LABEL}"
        )
    });
    violation.into_iter().collect()
}

fn uses_quota(pod: &DynamicObject) -> bool {
    let phase = &pod.data["status"]["phase"];
    phase != "Succeeded" && phase != "Failed"
}

fn check_quotas(
    live: &BTreeMap<String, LivePod>,
    quotas: &HashMap<String, Amounts>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (queue, quota) in quotas {
        let pods = live.iter().filter(|(_, pod)| pod.queue == *queue);
        let mut sum = Amounts::new();
        let mut names = Vec::new();
        for (name, pod) in pods {
            add_amounts(&mut sum, &pod.requests);
            names.push(name.as_str());
        }
        let names = names.join(" ");
        for (resource, quota) in quota {
            let requested = sum.get(resource).copied().unwrap_or_default();
            if requested > *quota {
                let [requested, quota] = [requested, *quota].map(format_amount);
                found.push(format!(
                    "ClusterQueue {queue}: pods request {requested} of {resource}, \
                     its quota is {quota}: {names}"
                ));
            }
        }
    }
    found
}

async fn watch_workloads(workloads: Api<DynamicObject>, violations: Violations) {
    let mut events = pin!(watcher(workloads, watcher::Config::default()).default_backoff());
    let mut seen: HashMap<String, DynamicObject> = HashMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::InitApply(workload) | Event::Apply(workload)) => {
                let uid = workload.uid().unwrap_or_default();
                violations.record(check_workload(seen.get(&uid), &workload));
                seen.insert(uid, workload);
            }
            Ok(Event::Delete(workload)) => {
                seen.remove(&workload.uid().unwrap_or_default());
            }
            Ok(Event::Init | Event::InitDone) | Err(_) => {}
        }
    }
}

/// Returns the rules of Kueue's webhooks and CRDs that a Workload breaks.
fn check_workload(before: Option<&DynamicObject>, workload: &DynamicObject) -> Vec<String> {
    let name = workload.name_any();
    let spec = &workload.data["spec"];
    let mut found = Vec::new();
    let mut require = |holds: bool, violation: &str| {
        if !holds {
            found.push(format!("Workload {name}: {violation}"));
        }
    };
    require(name.len() <= MAX_NAME_LEN, "name over 63 characters");
    let pod_sets = items(&spec["podSets"]);
    require(pod_sets.len() <= MAX_POD_SETS, "more than 8 pod sets");
    let counts = pod_sets
        .clone()
        .map(|pod_set| (pod_set["name"].as_str(), pod_count(pod_set)));
    let counts: BTreeMap<Option<&str>, i64> = counts.collect();
    require(counts.len() == pod_sets.len(), "pod sets with one name");
    let has_env = pod_sets.clone().any(|pod_set| {
        let pod = &pod_set["template"]["spec"];
        let containers = items(&pod["containers"]).chain(items(&pod["initContainers"]));
        let mut lists = containers.flat_map(|container| [&container["env"], &container["envFrom"]]);
        lists.any(|list| items(list).next().is_some())
    });
    require(!has_env, "env in a template");
    let reclaimed = reclaimed_pods(workload);
    let fits = reclaimed.iter().all(|(pod_set, reclaimed)| {
        let count = counts.get(&Some(*pod_set));
        count.is_some_and(|count| reclaimed <= count)
    });
    require(fits, "more reclaimable pods than pods");
    let is_reserved = |workload| is_true(workload, "QuotaReserved");
    if let Some(before) = before
        && is_reserved(before)
        && is_reserved(workload)
    {
        for field in ["podSets", "queueName"] {
            let is_same = before.data["spec"][field] == spec[field];
            require(is_same, &format!("{field} changed while quota is reserved"));
        }
        let rises = reclaimed_pods(before).iter().all(|(pod_set, before)| {
            let now = reclaimed.get(pod_set);
            now.copied().unwrap_or_default() >= *before
        });
        require(rises, "fewer reclaimable pods while quota is reserved");
    }
    found
}
