//! A fake cluster in memory, shared by the tests of the step.

use std::collections::{BTreeMap, HashMap};

use di_api::{DIJob, DIJobStatus, Phase, PlanEntry, Role};
use di_fixtures::Job;
use di_plan::{
    AggregatorTemplate, BuildSettings, End, GangScheduler, IMMEDIATE_DEADLINE_SECONDS, NodeView,
    PodPhase, PodView, ServiceView, Suffixes,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::json;

use super::fake_kueue::FakeKueue;
use crate::step::{Action, Observed, ObservedGang, ObservedQueue, ReconcileError, Step, step};

/// A job and its cluster. Actions change it at once; tests start and end pods.
#[derive(Clone)]
pub(super) struct World {
    pub job: DIJob,
    pub nodes: Vec<NodeView>,
    pub aggregator: AggregatorTemplate,
    pub pods: BTreeMap<String, PodView>,
    pub services: BTreeMap<String, ServiceView>,
    pub now: Timestamp,
    pub status_writes: u32,
    pub job_deleted: bool,
    pub live_reads: HashMap<String, bool>,
    pub waiting_since: HashMap<String, Timestamp>,
    pub queue: ObservedQueue,
    pub kueue: FakeKueue,
    pub gang: ObservedGang,
    pub last_error: Option<ReconcileError>,
    pub final_coordinator_state: Option<PodView>,
    /// Pods of the API server.
    objects: BTreeMap<String, Pod>,
    serial: u32,
}

struct Serial<'a>(&'a mut u32);

impl Suffixes for Serial<'_> {
    fn next_suffix(&mut self) -> String {
        *self.0 += 1;
        format!("{:05}", self.0)
    }
}

impl World {
    pub fn new(job: Job) -> Self {
        Self {
            job: job.metadata(json!({"generation": 1})).build(),
            nodes: vec![node(4), node(4)],
            aggregator: aggregator(),
            pods: BTreeMap::new(),
            services: BTreeMap::new(),
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            status_writes: 0,
            job_deleted: false,
            live_reads: HashMap::new(),
            waiting_since: HashMap::new(),
            queue: ObservedQueue::default(),
            kueue: FakeKueue::default(),
            gang: ObservedGang::default(),
            last_error: None,
            final_coordinator_state: None,
            objects: BTreeMap::new(),
            serial: 0,
        }
    }

    /// A cluster with a running job.
    pub fn running(job: Job) -> Self {
        let mut world = Self::new(job);
        world.settle();
        world.run_all();
        world.settle();
        world
    }

    pub fn observe(&self) -> Observed {
        Observed {
            job: self.job.clone().into(),
            pods: self.pods.values().cloned().collect(),
            services: self.services.values().cloned().collect(),
            nodes: Some(self.nodes.as_slice().into()),
            aggregator: self.aggregator.clone(),
            queue: self.queue.clone(),
            gang: self.gang.clone(),
            last_error: self.last_error.clone(),
            final_coordinator_state: self.final_coordinator_state.clone(),
            unlabeled_pods: HashMap::new(),
            waiting_since: self.waiting_since.clone(),
            live_reads: self.live_reads.clone(),
            now: self.now,
        }
    }

    pub fn compute_step(&mut self) -> Step {
        step(&self.observe(), &mut Serial(&mut self.serial))
    }

    /// Reconciles until nothing is left to do.
    pub fn settle(&mut self) {
        // Live reads are valid for one reconcile.
        self.live_reads.clear();
        for _ in 0..20 {
            let step = self.compute_step();
            if !step.needs_live_read.is_empty() {
                let exists = |name: String| (name.clone(), self.pods.contains_key(&name));
                self.live_reads = step
                    .needs_live_read
                    .into_iter()
                    .map(exists)
                    .chain(self.live_reads.drain())
                    .collect();
                continue;
            }
            if self.job.status.as_ref() != Some(&step.status) {
                self.job.status = Some(step.status);
                self.status_writes += 1;
            } else if step.actions.is_empty() || self.job_deleted {
                return;
            } else {
                for action in step.actions {
                    self.apply(action);
                }
            }
        }
        panic!("no fixpoint: {:#?}", self.compute_step());
    }

    pub fn apply(&mut self, action: Action) {
        match action {
            Action::CreatePod(entry) => {
                let planned = self.plan().iter().any(|e| e.name == entry.name);
                assert!(
                    planned || entry.role == Role::Coordinator,
                    "{} is not planned",
                    entry.name
                );
                assert!(
                    !self.pods.contains_key(&entry.name),
                    "{} created twice",
                    entry.name
                );
                self.check_gang(&entry);
                self.serial += 1;
                let gang = self.gang.scheduler.clone();
                let pod = created_pod(&self.job, &entry, &self.aggregator, gang, self.serial);
                self.pods
                    .insert(entry.name.clone(), PodView::new(&pod).unwrap());
                self.objects.insert(entry.name.clone(), pod);
                self.record_quota(&entry);
            }
            Action::CreateService(entry) => {
                assert!(
                    !self.services.contains_key(&entry.name),
                    "{} created twice",
                    entry.name
                );
                let service = di_plan::build_service(&self.job, &entry);
                self.services
                    .insert(entry.name, ServiceView::new(&service).unwrap());
            }
            Action::DeletePod { name, uid } => {
                assert_eq!(self.pods[&name].uid, uid);
                self.pods.get_mut(&name).unwrap().deleting = true;
            }
            Action::StopPod { name, uid } => {
                assert_eq!(self.pods[&name].uid, uid);
                let set_deadline = |pod: &mut Pod| {
                    pod.spec.as_mut().unwrap().active_deadline_seconds =
                        Some(IMMEDIATE_DEADLINE_SECONDS);
                };
                set_deadline(self.objects.get_mut(&name).unwrap());
                self.pods.get_mut(&name).unwrap().deadline_requested = true;
            }
            Action::DeleteService { name, .. } => {
                self.services.remove(&name).unwrap();
            }
            Action::DeleteJob => self.job_deleted = true,
            Action::CreateGroup { .. }
            | Action::UpdateGroup { .. }
            | Action::DeleteGroup { .. }
            | Action::LeaveGroup { .. } => self.apply_group_action(&action),
            other => self.apply_workload_action(&other),
        }
    }

    /// Removes all terminating pods, as their kubelets do.
    pub fn remove_terminating_pods(&mut self) {
        self.pods.retain(|_, pod| !pod.deleting);
    }

    /// Suspends the job and waits until its pods are gone.
    pub fn suspend_and_settle(&mut self) {
        self.job.spec.suspend = true;
        self.settle();
        self.remove_terminating_pods();
        self.settle();
        assert_eq!(self.status().phase, Some(Phase::Suspended));
    }

    /// Changes the pod of the API server, and updates its view.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        let view = self.pods.get_mut(name).unwrap();
        let pod = self.objects.get_mut(name).unwrap();
        let deleted = view.deleting.then_some(Time(self.now));
        pod.metadata.deletion_timestamp = deleted;
        change(pod);
        *view = PodView::new(pod).unwrap();
    }

    /// Changes the pod of the API server without its view.
    pub fn object_mut(&mut self, name: &str) -> &mut Pod {
        self.objects.get_mut(name).unwrap()
    }

    /// Returns the pod of the API server.
    pub fn object(&self, name: &str) -> &Pod {
        &self.objects[name]
    }

    pub fn run(&mut self, name: &str) {
        start(self.pods.get_mut(name).unwrap(), self.now);
    }

    pub fn run_all(&mut self) {
        let names: Vec<_> = self.pods.keys().cloned().collect();
        for name in &names {
            self.run(name);
        }
    }

    pub fn exit(&mut self, name: &str, code: i32, reason: &str) {
        exit(self.pods.get_mut(name).unwrap(), code, reason, self.now);
    }

    pub fn status(&self) -> &DIJobStatus {
        self.job.status.as_ref().unwrap()
    }

    pub fn plan(&self) -> &[PlanEntry] {
        self.job.status.as_ref().map_or(&[], |status| &status.plan)
    }

    pub fn wanted(&self, role: Role) -> Vec<String> {
        let wanted = self
            .plan()
            .iter()
            .filter(|e| e.role == role && e.is_wanted());
        wanted.map(|e| e.name.clone()).collect()
    }

    pub fn pod_names(&self) -> Vec<&str> {
        self.pods.keys().map(String::as_str).collect()
    }
}

/// Returns the pod of an entry as the API server stores it.
pub(super) fn created_pod(
    job: &DIJob,
    entry: &PlanEntry,
    aggregator: &AggregatorTemplate,
    gang: Option<GangScheduler>,
    serial: u32,
) -> Pod {
    let settings = BuildSettings {
        gang,
        ..BuildSettings::default()
    };
    let pod = di_plan::build_pod(job, entry, aggregator.pod_template(), &settings);
    let mut pod = pod.unwrap().decode().unwrap();
    pod.metadata.uid = Some(format!("uid-{serial}"));
    pod
}

/// Marks a pod as running and ready.
pub(super) fn start(pod: &mut PodView, now: Timestamp) {
    pod.phase = PodPhase::Running;
    pod.scheduled = Ok(true);
    pod.ready = true;
    pod.started = Some(now);
}

/// Ends the main container of a pod.
pub(super) fn exit(pod: &mut PodView, code: i32, reason: &str, now: Timestamp) {
    pod.phase = if code == 0 {
        PodPhase::Succeeded
    } else {
        PodPhase::Failed
    };
    pod.ready = false;
    pod.end = Some(Box::new(End {
        exit_code: Some(code),
        reason: reason.into(),
        message: None,
        at: Some(now),
        log_tail: None,
    }));
}

/// Returns a node with GPUs.
pub(super) fn node(gpus: i32) -> NodeView {
    NodeView {
        gpus,
        schedulable: true,
        taints: Vec::new(),
    }
}

/// Returns the template of aggregators.
pub(super) fn aggregator() -> AggregatorTemplate {
    AggregatorTemplate::from_config(&json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "AggregatorConfig",
        "metadata": {"name": "aggregator-config", "namespace": "rl"},
        "spec": {"aggregator": {"template": {"spec": {"containers": [
            {"name": "di-container", "image": "a", "ports": [{"name": "di-port", "containerPort": 5000}]},
        ]}}}},
    }))
}

/// A job with two collectors and a learner.
pub(super) fn job() -> Job {
    Job::test().collectors(2).learners(1)
}

/// Name of the coordinator of [`job`].
pub(super) const COORDINATOR: &str = "j-coordinator";
