//! Jobs in queues of Kueue. A stand-in admits and preempts them; if `DI_REAL_KUEUE` is the URL of
//! Kueue's manifest, Kueue itself.

use std::{collections::BTreeSet, slice};

use di_api::{
    ConditionType, DIJob, DIJobStatus, Phase, QueueState, QueueingSpec, find_condition,
    names::kueue,
};
use di_e2e::{
    FOREVER, Namespace, Phases, SYSTEM, client, dry_run, eventually, idle_job, job, kubectl_di,
    logs_so_far, owned_pods, pod_spec, run_kubectl, send_http, status, training, wait_for_phase,
};
use di_queue_stand_in::{
    QueueController, QuotaMonitor, cluster_queue, create, flavor, install, local_queue, objects,
    priority_class,
};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    scheduling::v1::PriorityClass,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    lifecycle::{end_pod, wait_for_running_pods},
    restart::kill_pods,
    training::{logged_iterations, wait_for_samples, wait_until_solved},
};

/// Version of Kueue's API.
const VERSION: &str = "v1beta2";
/// The LocalQueue of each test.
const QUEUE: &str = "queue";
/// The coordinator of the trainings.
const COORDINATOR: &str = "train-coordinator";
/// Port of a coordinator.
const PORT: u16 = 22273;

/// Priority of a preempted replica.
const LOW: i32 = 1;
/// Priority of the job that preempts.
pub(crate) const URGENT: i32 = 10;
/// Priority of a job that is not preempted.
const HIGH: i32 = 100;

/// The manifest of Kueue. `None` if a stand-in is used.
pub(crate) fn kueue_manifest() -> Option<String> {
    std::env::var("DI_REAL_KUEUE")
        .ok()
        .filter(|manifest| !manifest.is_empty())
}

/// Permits the orchestrator to use Kueue, and installs Kueue, once for all tests of this process.
async fn prepare_cluster() {
    static PREPARED: OnceCell<()> = OnceCell::const_new();
    PREPARED
        .get_or_init(async || {
            let system = Namespace {
                client: client().await,
                name: SYSTEM.to_owned(),
            };
            // Before the CRDs: a forbidden request would be repeated only after a minute.
            let granted = kubectl_di(&system, &["install", "--kueue"]).await;
            assert_eq!(granted.code, Some(0), "{granted:?}");
            install_kueue(&system.client).await;
        })
        .await;
}

/// Installs Kueue, or the CRDs of the stand-in. Changes nothing if they are installed.
pub(crate) async fn install_kueue(client: &Client) {
    if let Some(manifest) = kueue_manifest() {
        let applied = run_kubectl(&["apply", "--server-side", "-f", &manifest]).await;
        assert_eq!(applied.code, Some(0), "{applied:?}");
    } else {
        install(client, VERSION).await;
    }
    wait_for_kueue_webhooks(client).await;
}

/// Waits until objects of Kueue are accepted: its webhooks start with a delay.
async fn wait_for_kueue_webhooks(client: &Client) {
    let flavors = objects(client, VERSION, "ResourceFlavor", None);
    let (dry, probe) = (dry_run(), flavor("probe", &[]));
    eventually("accepted", || flavors.create(&dry, &probe), Result::is_ok)
        .await
        .unwrap();
}

/// Admits and preempts the jobs of a namespace until the result is dropped.
pub(crate) async fn start_queues(ns: &Namespace) -> Option<QueueController> {
    prepare_cluster().await;
    start_controller(ns)
}

fn start_controller(ns: &Namespace) -> Option<QueueController> {
    let start = || QueueController::start(ns.client.clone(), &ns.name, VERSION);
    kueue_manifest().is_none().then(start)
}

/// Puts a job into the queue of its namespace.
pub(crate) fn add_queue_label(job: &mut DIJob) {
    let labels = job.metadata.labels.get_or_insert_default();
    labels.insert(kueue::QUEUE_LABEL.to_owned(), QUEUE.to_owned());
}

/// A ClusterQueue with one flavor, and its LocalQueue in the namespace of a test.
pub(crate) struct TestQueue {
    ns: Namespace,
    monitor: QuotaMonitor,
    /// Admits and preempts until it is dropped.
    controller: Option<QueueController>,
}

impl TestQueue {
    /// Creates the queue with this CPU quota. All pods of the tests request 10m.
    pub(crate) async fn create(ns: &Namespace, cpu: &str, node_labels: &[(&str, &str)]) -> Self {
        let controller = start_queues(ns).await;
        // Other tests have other queues.
        let (client, name) = (&ns.client, ns.name.as_str());
        let quotas = [("cpu", cpu), ("memory", "1Gi")];
        let flavors = [(name, quotas.as_slice())];
        let queue = Self {
            monitor: QuotaMonitor::start(client, slice::from_ref(&ns.name), VERSION).await,
            controller,
            ns: ns.clone(),
        };
        create(client, flavor(name, node_labels)).await;
        create(client, cluster_queue(name, &flavors, true)).await;
        create(client, local_queue(name, QUEUE, name)).await;
        for priority in [LOW, URGENT, HIGH] {
            let class = queue.class_name(priority);
            create(client, priority_class(&class, priority)).await;
        }
        queue
    }

    /// Name of the WorkloadPriorityClass with this value.
    fn class_name(&self, priority: i32) -> String {
        format!("{}-{priority}", self.ns.name)
    }

    /// Submits a job to the queue. Without a priority it has 0, like any pod.
    pub(crate) async fn submit(&self, mut job: DIJob, priority: Option<i32>) {
        add_queue_label(&mut job);
        if let Some(priority) = priority {
            let class = self.class_name(priority);
            let labels = job.metadata.labels.get_or_insert_default();
            labels.insert(kueue::PRIORITY_CLASS_LABEL.to_owned(), class);
        }
        self.ns.submit(&job).await;
    }

    /// Runs job `urgent`, which preempts. It ends by [`Self::end_urgent_job`].
    async fn start_urgent_job(&self) {
        self.submit(job("urgent", &["hold"]), Some(URGENT)).await;
        wait_for_phase(&self.ns, "urgent", Phase::Running).await;
    }

    pub(crate) async fn end_urgent_job(&self) {
        end_pod(&self.ns, "urgent-coordinator", "0").await;
        wait_for_phase(&self.ns, "urgent", Phase::Succeeded).await;
    }

    /// Kills Kueue, or the stand-in, and waits until another one runs.
    pub(crate) async fn kill_controller(&mut self) {
        let client = &self.ns.client;
        if kueue_manifest().is_some() {
            kill_pods(client, "kueue-system", &ListParams::default()).await;
            wait_for_kueue_webhooks(client).await;
        } else {
            drop(self.controller.take());
            self.controller = start_controller(&self.ns);
        }
    }

    /// Deletes the objects outside the namespace.
    ///
    /// # Panics
    /// If no pod was admitted, the pods exceeded the quota at any time, or a Workload is invalid.
    pub(crate) async fn remove(self) {
        self.monitor.check().await;
        let classes = [LOW, URGENT, HIGH].map(|priority| self.class_name(priority));
        let classes = classes.map(|class| ("WorkloadPriorityClass", class));
        let queue = ["ClusterQueue", "ResourceFlavor"].map(|kind| (kind, self.ns.name.clone()));
        for (kind, name) in queue.into_iter().chain(classes) {
            let api = objects(&self.ns.client, VERSION, kind, None);
            api.delete(&name, &DeleteParams::default()).await.unwrap();
        }
    }
}

/// Declares a collector and a learner.
fn declare_replicas(job: &mut DIJob) {
    job.spec.collector.as_mut().unwrap().replicas = 1;
    job.spec.learner.as_mut().unwrap().replicas = 1;
}

/// Returns the last schedulable worker by name.
pub(crate) async fn find_worker(nodes: &Api<Node>) -> String {
    let all = nodes.list(&ListParams::default()).await.unwrap().items;
    // Nodes that are not ready have a taint, too.
    let workers = all.iter().filter(|node| {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter());
        taints.flatten().next().is_none()
    });
    workers.map(ResourceExt::name_any).max().unwrap()
}

/// Sets a label of a node, or removes it.
async fn label_node(nodes: &Api<Node>, node: &str, label: &str, value: Option<&str>) {
    let patch = Patch::Merge(json!({"metadata": {"labels": {label: value}}}));
    let params = PatchParams::default();
    nodes.patch(node, &params, &patch).await.unwrap();
}

/// Waits until a job waits in its queue for this reason, and returns the message.
pub(crate) async fn wait_until_queued(ns: &Namespace, job: &str, reason: &str) -> String {
    let is_queued = |status: &DIJobStatus| {
        (status.phase, status.reason.as_deref()) == (Some(Phase::Queued), Some(reason))
    };
    let queued = eventually(reason, || status(ns, job), is_queued).await;
    let admitted = find_condition(&queued.conditions, ConditionType::Admitted);
    assert!(owned_pods(ns, job).await.is_empty());
    admitted.unwrap().message.clone()
}

/// Whether a Workload has the condition `Finished`.
fn is_finished(workload: &DynamicObject) -> bool {
    let conditions = workload.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Finished" && condition["status"] == "True")
}

#[tokio::test]
async fn pods_of_queued_job_run_on_node_of_flavor() {
    Namespace::with("flavor", |ns| async move {
        let nodes: Api<Node> = Api::all(ns.client.clone());
        let node = find_worker(&nodes).await;
        let label = format!("di-e2e/{}", ns.name);
        label_node(&nodes, &node, &label, Some("yes")).await;
        let queue = TestQueue::create(&ns, "30m", &[(label.as_str(), "yes")]).await;
        let classes: Api<PriorityClass> = Api::all(ns.client.clone());
        // Pods of this class do not preempt those of other tests.
        let class = json!({"metadata": {"name": ns.name}, "value": 7, "preemptionPolicy": "Never"});
        let class: PriorityClass = serde_json::from_value(class).unwrap();
        classes
            .create(&PostParams::default(), &class)
            .await
            .unwrap();

        let mut job = idle_job("job", 3, 1);
        job.spec.priority_class_name.clone_from(&ns.name);
        queue.submit(job, None).await;
        let is_too_large = |status: &DIJobStatus| {
            let admitted = find_condition(&status.conditions, ConditionType::Admitted);
            let why = admitted.map_or("", |admitted| admitted.message.as_str());
            status.phase == Some(Phase::Queued)
                && status.reason.as_deref() == Some("QueueWaiting")
                && why.contains("quota for cpu in flavor")
        };
        eventually("waiting for quota", || status(&ns, "job"), is_too_large).await;
        assert!(owned_pods(&ns, "job").await.is_empty());
        let smaller = Patch::Merge(json!({"spec": {"collector": {"replicas": 1}}}));
        let (jobs, params) = (ns.api::<DIJob>(), PatchParams::default());
        jobs.patch("job", &params, &smaller).await.unwrap();

        for pod in wait_for_running_pods(&ns, "job", 3).await {
            let name = pod.name_any();
            let runs_on = pod.spec.unwrap().node_name;
            assert_eq!(runs_on.as_ref(), Some(&node), "{name}");
        }
        let admitted = wait_for_phase(&ns, "job", Phase::Running).await;
        let queueing = admitted.queueing.unwrap();
        assert_eq!(queueing.cluster_queue, ns.name);
        let workloads = objects(&ns.client, VERSION, "Workload", Some(ns.name.as_str()));
        let read = || async { workloads.get(&queueing.workload).await.unwrap() };
        assert_eq!(read().await.data["spec"]["priority"], 7);

        end_pod(&ns, "job-coordinator", "0").await;
        wait_for_phase(&ns, "job", Phase::Succeeded).await;
        eventually("finished", read, is_finished).await;
        queue.remove().await;
        let now = DeleteParams::default();
        classes.delete(&ns.name, &now).await.unwrap();
        label_node(&nodes, &node, &label, None).await;
    })
    .await;
}

/// Waits until the three pods of a training run, and returns their names.
async fn running_names(ns: &Namespace) -> BTreeSet<String> {
    let pods = wait_for_running_pods(ns, "train", 3).await;
    pods.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn preempted_training_resumes_from_checkpoint() {
    Namespace::with("preempted", |ns| async move {
        let queue = TestQueue::create(&ns, "30m", &[]).await;
        // It saves only when it is terminated, and has the grace period to do so.
        let flags = ["--declared", "--save-every", "1h", "--pace", "3s"];
        let mut job = training("train", &flags);
        declare_replicas(&mut job);
        let coordinator = &mut job.spec.coordinator.template;
        pod_spec(coordinator)["terminationGracePeriodSeconds"] = json!(60);
        queue.submit(job, None).await;
        let before = running_names(&ns).await;
        let log = || logs_so_far(&ns, COORDINATOR);
        let has_learned = |log: &String| logged_iterations(log).any(|iteration| iteration > 0);
        eventually("training", log, has_learned).await;

        queue.start_urgent_job().await;
        wait_until_queued(&ns, "train", "QueuePreempted").await;
        queue.end_urgent_job().await;

        assert_eq!(running_names(&ns).await, before);
        let again = wait_for_phase(&ns, "train", Phase::Running).await;
        assert_eq!(again.restarts, 0, "a preemption is no failure");
        let log = wait_until_solved(&ns, "train").await;
        assert!(log.contains("resuming from "), "{log}");
        let begun = logged_iterations(&log).next();
        assert!(begun > Some(0), "{log}");
        queue.remove().await;
    })
    .await;
}

/// Returns name and state of the only replica of job `train` with quota of its own.
async fn elastic_replica(ns: &Namespace) -> (String, QueueState) {
    let plan = status(ns, "train").await.plan.into_iter();
    let wanted = plan.filter(di_api::PlanEntry::is_wanted);
    let elastic = wanted.filter_map(|entry| Some((entry.name, entry.queue?)));
    let elastic: Vec<_> = elastic.collect();
    let [replica] = &elastic[..] else {
        panic!("not one: {elastic:?}");
    };
    replica.clone()
}

#[tokio::test]
async fn preempted_collector_returns_while_training_continues() {
    Namespace::with("shrunk", |ns| async move {
        let queue = TestQueue::create(&ns, "40m", &[]).await;
        let flags = ["--collectors", "1", "--learners", "0", "--pace", "500ms"];
        let mut job = training("train", &[&flags[..], &FOREVER].concat());
        declare_replicas(&mut job);
        job.spec.queueing = Some(QueueingSpec {
            elastic_priority_class: Some(queue.class_name(LOW)),
            ..QueueingSpec::default()
        });
        let phases = Phases::watch(&ns, "train");
        queue.submit(job, Some(HIGH)).await;
        wait_for_samples(&ns, "train", 4).await;
        let (collector, state) = elastic_replica(&ns).await;
        assert_eq!(state, QueueState::Admitted);
        let log = || logs_so_far(&ns, COORDINATOR);
        let removed = format!("replica {collector} is no longer listed");

        let before = log().await;
        queue.start_urgent_job().await;
        let has_shrunk =
            |log: &String| log.matches(&removed).count() > before.matches(&removed).count();
        let shrunk = eventually("without the collector", log, has_shrunk).await;
        let (next, state) = elastic_replica(&ns).await;
        assert_eq!(state, QueueState::Waiting);
        assert_ne!(next, collector, "another process");
        let last = logged_iterations(&shrunk).last();
        let has_continued = |log: &String| logged_iterations(log).last() > last;
        eventually("training continues", log, has_continued).await;
        queue.end_urgent_job().await;

        let connected = format!("connected to {next}");
        let has_grown = |log: &String| log.contains(&connected);
        eventually("with the collector", log, has_grown).await;
        let states = wait_for_samples(&ns, "train", 4).await;
        assert!(states.contains_key(&next), "{states:?}");
        let admitted = (next, QueueState::Admitted);
        assert_eq!(elastic_replica(&ns).await, admitted);

        let (pods, path, body) = (ns.api::<Pod>(), "/lifecycle/exit", json!({}));
        let answer = send_http(&pods, COORDINATOR, PORT, "POST", path, None, &body).await;
        assert_eq!(answer.unwrap().status, 200);
        let ended = wait_for_phase(&ns, "train", Phase::Succeeded).await;
        assert_eq!(ended.restarts, 0);
        let is_last = |phases: &Vec<Phase>| phases.last() == Some(&Phase::Succeeded);
        let phases = eventually("the last phase", || async { phases.seen() }, is_last).await;
        let start = phases.iter().position(|phase| *phase == Phase::Running);
        let since_start = &phases[start.unwrap()..];
        assert_eq!(since_start, [Phase::Running, Phase::Succeeded]);
        queue.remove().await;
    })
    .await;
}
