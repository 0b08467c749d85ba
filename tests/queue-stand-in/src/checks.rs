use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry},
    future::ready,
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
use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use tokio::task::JoinHandle;

use crate::{
    crds::{objects, wait_until},
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

/// Watches the pods of jobs and the Workloads of some namespaces, and records violations until it
/// is dropped.
///
/// Violations: admitted live pods of all namespaces request more than the nominal quota of their
/// ClusterQueue, a live pod of a job in a queue was not admitted, and a Workload breaks a rule of
/// Kueue's webhooks or CRDs. Pods count until they have ended or are gone from the API. The quota
/// is that of the first pod seen; tests that change it later need another monitor.
pub struct QuotaMonitor {
    tasks: [JoinHandle<()>; 2],
    namespaces: Vec<String>,
    seen: SharedSeen,
}

impl Drop for QuotaMonitor {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl QuotaMonitor {
    /// Starts to watch, and waits until the existing objects are listed. The CRDs must be
    /// installed, since a failed watch is retried with a growing delay.
    pub async fn start(client: &Client, namespaces: &[String], version: &str) -> Self {
        // One watch reports the pods of several namespaces in the order of their changes. Several
        // watches could report a new pod before the end of the one whose quota it got.
        let scope = match namespaces {
            [only] => Some(only.as_str()),
            _ => None,
        };
        let pod = ApiResource::erase::<Pod>(&());
        let pods: Api<DynamicObject> = match scope {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &pod),
            None => Api::all_with(client.clone(), &pod),
        };
        // By the label of jobs: a pod that was not admitted has no label of Kueue.
        let config = watcher::Config::default().labels(labels::JOB);
        let pods = watch_namespaces(pods, config, namespaces);
        let workloads = objects(client, version, "Workload", scope);
        let workloads = watch_namespaces(workloads, watcher::Config::default(), namespaces);
        let queues = objects(client, version, "ClusterQueue", None);
        let seen = SharedSeen::default();
        let monitor = Self {
            tasks: [
                tokio::spawn(watch_pods(pods, client.clone(), queues, seen.clone())),
                tokio::spawn(watch_workloads(workloads, seen.clone())),
            ],
            namespaces: namespaces.to_vec(),
            seen,
        };
        wait_until("the quota monitor has started", async || {
            let seen = monitor.seen.lock().unwrap();
            seen.pods_are_listed && seen.workloads_are_listed
        })
        .await;
        monitor
    }

    /// Checks that nothing was violated up to now. Waits until pods with quota and admissions were
    /// seen in each namespace, since a monitor that sees nothing finds no violation.
    pub async fn check(&self) {
        wait_until("pods and admissions were seen", async || {
            let seen = self.seen.lock().unwrap();
            seen.has_all_of(&self.namespaces)
        })
        .await;
        let violations = self.seen.lock().unwrap().violations.clone();
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

/// What a monitor has seen.
#[derive(Default)]
struct Seen {
    pods_are_listed: bool,
    workloads_are_listed: bool,
    /// Namespaces of the admitted pods whose quota was read.
    pods: BTreeSet<String>,
    /// Namespaces of the admitted Workloads.
    admissions: BTreeSet<String>,
    /// Each violation once.
    violations: Vec<String>,
}

type SharedSeen = Arc<Mutex<Seen>>;

impl Seen {
    /// Whether there were pods with quota and admissions in each of these namespaces.
    fn has_all_of(&self, namespaces: &[String]) -> bool {
        let is_seen = |namespace: &String| {
            self.pods.contains(namespace) && self.admissions.contains(namespace)
        };
        namespaces.iter().all(is_seen)
    }

    fn record(&mut self, found: Vec<String>) {
        for violation in found {
            if !self.violations.contains(&violation) {
                self.violations.push(violation);
            }
        }
    }
}

/// Watches the objects of some namespaces.
fn watch_namespaces(
    objects: Api<DynamicObject>,
    config: watcher::Config,
    namespaces: &[String],
) -> impl Stream<Item = Event<DynamicObject>> + Send + use<> {
    let namespaces = namespaces.to_vec();
    let events = watcher(objects, config).default_backoff();
    // The watcher recovers from errors by itself.
    let events = events.filter_map(|event| ready(event.ok()));
    events.filter(move |event| {
        ready(match event {
            Event::Init | Event::InitDone => true,
            Event::InitApply(object) | Event::Apply(object) | Event::Delete(object) => {
                namespaces.contains(&object.namespace().unwrap_or_default())
            }
        })
    })
}

/// An admitted pod that has not ended.
struct LivePod {
    queue: String,
    requests: Amounts,
}

/// By namespace and name.
type LivePods = BTreeMap<(String, String), LivePod>;

async fn watch_pods(
    events: impl Stream<Item = Event<DynamicObject>>,
    client: Client,
    queues: Api<DynamicObject>,
    seen: SharedSeen,
) {
    let mut events = pin!(events);
    let mut live = LivePods::new();
    let mut quotas: HashMap<String, Amounts> = HashMap::new();
    // UIDs of the pods that were not admitted and whose job was read.
    let mut checked: HashSet<String> = HashSet::new();
    while let Some(event) = events.next().await {
        let mut found = Vec::new();
        match event {
            Event::Init => live.clear(),
            Event::InitApply(pod) | Event::Apply(pod) if uses_quota(&pod) => {
                let uid = pod.uid().unwrap_or_default();
                if let Some(queue) = admitting_queue(&pod) {
                    let requests = pod_requests(&pod.data["spec"]);
                    read_quota(&queues, &queue, &mut quotas).await;
                    live.insert(full_name(&pod), LivePod { queue, requests });
                } else if !checked.contains(&uid)
                    // A job that cannot be read is read again at the next event of the pod.
                    && let Ok(job) = read_job(&client, &pod).await
                {
                    checked.insert(uid);
                    let queue = job.as_ref().and_then(DIJob::queue_name);
                    found = check_unadmitted(&pod, queue);
                }
            }
            Event::InitApply(pod) | Event::Apply(pod) | Event::Delete(pod) => {
                live.remove(&full_name(&pod));
            }
            Event::InitDone => seen.lock().unwrap().pods_are_listed = true,
        }
        found.extend(check_quotas(&live, &quotas));
        let with_quota = live
            .iter()
            .filter(|(_, pod)| quotas.contains_key(&pod.queue));
        let mut seen = seen.lock().unwrap();
        seen.pods
            .extend(with_quota.map(|((namespace, _), _)| namespace.clone()));
        seen.record(found);
    }
}

/// Namespace and name of an object.
fn full_name(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Reads the job of a pod.
async fn read_job(client: &Client, pod: &DynamicObject) -> kube::Result<Option<DIJob>> {
    let namespace = pod.namespace().unwrap_or_default();
    let jobs: Api<DIJob> = Api::namespaced(client.clone(), &namespace);
    jobs.get_opt(&pod.labels()[labels::JOB]).await
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

fn check_quotas(live: &LivePods, quotas: &HashMap<String, Amounts>) -> Vec<String> {
    let mut found = Vec::new();
    for (queue, quota) in quotas {
        let pods = live.iter().filter(|(_, pod)| pod.queue == *queue);
        let mut sum = Amounts::new();
        let mut names = Vec::new();
        for ((namespace, name), pod) in pods {
            add_amounts(&mut sum, &pod.requests);
            names.push(format!("{namespace}/{name}"));
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

async fn watch_workloads(events: impl Stream<Item = Event<DynamicObject>>, seen: SharedSeen) {
    let mut events = pin!(events);
    let mut known: HashMap<String, DynamicObject> = HashMap::new();
    while let Some(event) = events.next().await {
        let mut seen = seen.lock().unwrap();
        match event {
            Event::InitApply(workload) | Event::Apply(workload) => {
                let uid = workload.uid().unwrap_or_default();
                seen.record(check_workload(known.get(&uid), &workload));
                if is_true(&workload, "Admitted") {
                    seen.admissions.extend(workload.namespace());
                }
                known.insert(uid, workload);
            }
            Event::Delete(workload) => {
                known.remove(&workload.uid().unwrap_or_default());
            }
            Event::Init => {}
            Event::InitDone => seen.workloads_are_listed = true,
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
