//! What the tests share.

use std::collections::{BTreeMap, HashMap};

use di_api::{DIJob, DIJobStatus, Phase, PlanEntry, Role};
use di_plan::{
    AggregatorTemplate, BuildSettings, END_NOW, End, NodeView, PodPhase, PodView, ServiceView,
    Suffixes,
};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};

use crate::step::{Action, Observed, Step, Trouble, step};

/// A cluster in memory: what the actions say is done, pods start when told to.
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
    pub asked: HashMap<String, bool>,
    pub trouble: Option<Trouble>,
    pub gone: Option<PodView>,
    /// Pods as the server has them.
    objects: BTreeMap<String, Pod>,
    serial: u32,
}

struct Serial<'a>(&'a mut u32);

impl Suffixes for Serial<'_> {
    fn suffix(&mut self) -> String {
        *self.0 += 1;
        format!("{:05}", self.0)
    }
}

impl World {
    pub fn new(yaml: &str) -> Self {
        let mut job: DIJob = serde_saphyr::from_str(yaml).unwrap();
        job.metadata.uid = Some("job-uid".into());
        job.metadata.namespace = Some("rl".into());
        job.metadata.generation = Some(1);
        Self {
            job,
            nodes: vec![node(4), node(4)],
            aggregator: aggregator(),
            pods: BTreeMap::new(),
            services: BTreeMap::new(),
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            status_writes: 0,
            job_deleted: false,
            asked: HashMap::new(),
            trouble: None,
            gone: None,
            objects: BTreeMap::new(),
            serial: 0,
        }
    }

    /// One whose pods all run.
    pub fn running(yaml: &str) -> Self {
        let mut world = Self::new(yaml);
        world.settle();
        world.run_all();
        world.settle();
        world
    }

    pub fn look(&mut self) -> Step {
        let pods: Vec<_> = self.pods.values().cloned().collect();
        let services: Vec<_> = self.services.values().cloned().collect();
        let seen = Observed {
            job: &self.job,
            pods: &pods,
            services: &services,
            nodes: Some(&self.nodes),
            aggregator: &self.aggregator,
            trouble: self.trouble.as_ref(),
            gone: self.gone.as_ref(),
            asked: &self.asked,
            now: self.now,
        };
        step(&seen, &mut Serial(&mut self.serial))
    }

    /// Reconciles until nothing is left to do, as the driver does.
    pub fn settle(&mut self) {
        // What the server said holds for one reconcile.
        self.asked.clear();
        for _ in 0..20 {
            let step = self.look();
            if !step.ask.is_empty() {
                let there = |name: String| (name.clone(), self.pods.contains_key(&name));
                self.asked = step
                    .ask
                    .into_iter()
                    .map(there)
                    .chain(self.asked.drain())
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
                    self.act(action);
                }
            }
        }
        panic!("no fixpoint: {:#?}", self.look());
    }

    pub fn act(&mut self, action: Action) {
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
                    "{} made twice",
                    entry.name
                );
                self.serial += 1;
                let pod = object(&self.job, &entry, &self.aggregator, self.serial);
                self.pods
                    .insert(entry.name.clone(), PodView::new(&pod).unwrap());
                self.objects.insert(entry.name, pod);
            }
            Action::CreateService(entry) => {
                assert!(
                    !self.services.contains_key(&entry.name),
                    "{} made twice",
                    entry.name
                );
                let service = di_plan::service(&self.job, &entry);
                self.services
                    .insert(entry.name, ServiceView::new(&service).unwrap());
            }
            Action::DeletePod { name, uid } => {
                assert_eq!(self.pods[&name].uid, uid);
                self.pods.get_mut(&name).unwrap().deleting = true;
            }
            Action::EndPod { name, uid } => {
                assert_eq!(self.pods[&name].uid, uid);
                let told = |pod: &mut Pod| {
                    pod.spec.as_mut().unwrap().active_deadline_seconds = Some(END_NOW);
                };
                told(self.objects.get_mut(&name).unwrap());
                self.pods.get_mut(&name).unwrap().told_to_end = true;
            }
            Action::DeleteService { name, .. } => {
                self.services.remove(&name).unwrap();
            }
            Action::DeleteJob => self.job_deleted = true,
        }
    }

    /// Pods that were told to go, go.
    pub fn kubelet_ends_deleted(&mut self) {
        self.pods.retain(|_, pod| !pod.deleting);
    }

    /// Suspends the job until none of its pods is left.
    pub fn hold(&mut self) {
        self.job.spec.suspend = true;
        self.settle();
        self.kubelet_ends_deleted();
        self.settle();
        assert_eq!(self.status().phase, Some(Phase::Suspended));
    }

    /// Changes a pod as the server has it, and sees it anew.
    pub fn change(&mut self, name: &str, change: impl FnOnce(&mut Pod)) {
        let view = self.pods.get_mut(name).unwrap();
        let pod = self.objects.get_mut(name).unwrap();
        let deleted = view.deleting.then_some(Time(self.now));
        pod.metadata.deletion_timestamp = deleted;
        change(pod);
        *view = PodView::new(pod).unwrap();
    }

    /// A pod as the server has it.
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

/// The pod of an entry, as it is seen once the server has taken it.
pub(super) fn made(
    job: &DIJob,
    entry: &PlanEntry,
    aggregator: &AggregatorTemplate,
    serial: u32,
) -> PodView {
    PodView::new(&object(job, entry, aggregator, serial)).unwrap()
}

fn object(job: &DIJob, entry: &PlanEntry, aggregator: &AggregatorTemplate, serial: u32) -> Pod {
    let settings = BuildSettings::default();
    let mut pod = di_plan::pod(job, entry, aggregator.found(), &settings).unwrap();
    pod.metadata.uid = Some(format!("uid-{serial}"));
    pod
}

/// The kubelet has started it.
pub(super) fn start(pod: &mut PodView, now: Timestamp) {
    pod.phase = PodPhase::Running;
    pod.ready = true;
    pod.started = Some(now);
}

/// Its main container has ended.
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
    }));
}

/// A node with GPUs.
pub(super) fn node(gpus: i32) -> NodeView {
    NodeView {
        gpus,
        schedulable: true,
        taints: Vec::new(),
    }
}

/// What aggregators are made from.
pub(super) fn aggregator() -> AggregatorTemplate {
    AggregatorTemplate::of(&serde_json::json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "AggregatorConfig",
        "metadata": {"name": "aggregator-config", "namespace": "rl"},
        "spec": {"aggregator": {"template": {"spec": {"containers": [
            {"name": "di-container", "image": "a", "ports": [{"name": "di-port", "containerPort": 5000}]},
        ]}}}},
    }))
}

pub(super) const JOB: &str = r"
apiVersion: diengine.opendilab.org/v1alpha2
kind: DIJob
metadata: {name: cartpole}
spec:
  coordinator: {template: {spec: {containers: [{name: di-container, image: c}]}}}
  collector: {template: {spec: {containers: [{name: di-container, image: k}]}}, replicas: 2}
  learner: {template: {spec: {containers: [{name: di-container, image: l}]}}, replicas: 1}
";

/// Name of the coordinator of [`JOB`].
pub(super) const COORDINATOR: &str = "cartpole-coordinator";
