//! Happenings: by pods, users, nodes and other clients. [`Model::settle`] ends them.

use std::{rc::Rc, sync::Arc};

use di_api::{
    DIJobStatus, Origin, PlanEntry, QueueState, QueueingSpec, ReplicaResources, Role, names,
};
use di_plan::{
    AggregatorTemplate, End, PodPhase, PodView, RandomSuffixes, Request, Stage, plan_request,
    replace, scale_down_requested,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{
    Model,
    api_server::{check_groups, created_service},
    queue::set_min_collectors,
};
use crate::step::tests::{
    exploration::{Happening, lagging_caches::Lag},
    fake_cluster::{COORDINATOR, aggregator, created_pod, exit, node, start},
};

/// Maximum number of rounds of the kubelet and the reconciler until the job is settled.
const MAX_ROUNDS: usize = 20;
/// Longer than any backoff.
const ROUND: SignedDuration = SignedDuration::from_secs(600);

impl Model {
    fn nth_pod(&mut self, n: usize) -> Option<&mut PodView> {
        Rc::make_mut(&mut self.pods).values_mut().nth(n)
    }

    fn running(&mut self, n: usize) -> Option<&mut PodView> {
        self.nth_pod(n).filter(|pod| pod.phase == PodPhase::Running)
    }

    pub fn apply_happening(&mut self, happening: &Happening) {
        self.history.record(self.stored());
        let now = self.now;
        match happening {
            Happening::Reconcile {
                lag,
                hasty,
                fault,
                preceded,
            } => {
                self.preceded.clone_from(preceded);
                self.reconcile(*lag, *hasty, *fault);
            }
            Happening::Start(n) => {
                if let Some(pod) = self.nth_pod(*n).filter(|pod| may_start(pod)) {
                    start(pod, now);
                }
            }
            Happening::Exit(n, code) => {
                let others = |pod: &&mut PodView| pod.role != Some(Role::Coordinator);
                if let Some(pod) = self.running(*n).filter(others) {
                    exit(pod, *code, "x", now);
                }
            }
            Happening::EndCoordinator(code) => self.end_coordinator(*code),
            Happening::Evict(n) => {
                if let Some(pod) = self.nth_pod(*n).filter(|pod| pod.end.is_none()) {
                    evict(pod, now);
                }
            }
            Happening::LoseNode(n) => {
                if let Some(pod) = self.running(*n) {
                    pod.phase = PodPhase::Unknown;
                    pod.ready = false;
                }
            }
            Happening::Delete(n) => {
                if let Some(pod) = self.nth_pod(*n) {
                    pod.deleting = true;
                }
            }
            Happening::DeleteService(n) => {
                if let Some(name) = self.services.keys().nth(*n).cloned() {
                    Rc::make_mut(&mut self.services).remove(&name);
                }
            }
            Happening::Terminate => Rc::make_mut(&mut self.pods).retain(|_, pod| !pod.deleting),
            Happening::TakePodName(n) => self.take_pod_name(*n),
            Happening::TakeServiceName(n) => self.take_service_name(*n),
            Happening::DeleteForeign => self.delete_foreign(),
            Happening::Quota(full) => self.quota = *full,
            Happening::Nodes(gpus) => self.nodes = gpus.iter().map(|gpus| node(*gpus)).collect(),
            Happening::Configured(there) => {
                self.aggregator = if *there {
                    aggregator()
                } else {
                    AggregatorTemplate::Missing
                };
            }
            Happening::SetAggregatorCpus(cpus) => self.aggregator = aggregator_with_cpus(cpus),
            Happening::Wait(seconds) => self.now += SignedDuration::from_secs(*seconds),
            Happening::Queue(happening) => self.apply_queue_happening(*happening),
            job_change => {
                self.change_job(job_change);
                self.job_written();
            }
        }
    }

    /// Changes the job itself.
    fn change_job(&mut self, happening: &Happening) {
        let spec = &mut self.job.spec;
        match happening {
            Happening::Declare(n) => {
                spec.collector.as_mut().unwrap().replicas = *n;
                set_min_collectors(spec, None);
            }
            Happening::DeclareGroups(n) => spec.learner.as_mut().unwrap().groups[0].replicas = *n,
            Happening::SetMinCollectors(n) => set_min_collectors(spec, Some(*n)),
            Happening::SetCpus(cpus) => {
                let template = json!({"spec": {"containers": [
                    {"name": "di-container", "image": "i", "resources": request_cpus(cpus)},
                ]}});
                let collector = spec.collector.as_mut().unwrap();
                collector.template = serde_json::from_value(template).unwrap();
            }
            Happening::SetElastic(elastic) => {
                spec.queueing = Some(QueueingSpec {
                    elastic: *elastic,
                    ..QueueingSpec::default()
                });
            }
            Happening::Suspend(suspend) => spec.suspend = *suspend,
            Happening::Restart => {
                let uid = self.pods.get(COORDINATOR).map(|pod| pod.uid.clone());
                let annotation = uid.map(|uid| (names::RESTART_ANNOTATION.to_owned(), uid));
                self.job.metadata.annotations = annotation.map(|annotation| [annotation].into());
            }
            Happening::Report(n) => self.report_failed(*n),
            Happening::Request(role, n) => self.add_replicas(*role, *n),
            Happening::Release(role, n) => self.remove_replicas(*role, *n),
            Happening::LoseStatus => {
                self.job.status = None;
                self.lost_status = true;
                self.kueue.forget_workloads();
                // A restore takes longer than the caches lag. Without the status, only the
                // Workload says how much of its quota is returned.
                self.history.know_workloads_and_groups();
            }
            Happening::Enqueue(is_queued) => self.change_queue(*is_queued),
            Happening::DeleteJob => self.job.metadata.deletion_timestamp = Some(Time(self.now)),
            Happening::Recreate => self.recreate_job(),
            other => unreachable!("{other:?}"),
        }
    }

    fn end_coordinator(&mut self, code: i32) {
        let now = self.now;
        let job = self.job.metadata.uid.clone();
        let coordinator = Rc::make_mut(&mut self.pods).get_mut(COORDINATOR);
        if let Some(pod) = coordinator.filter(|pod| pod.phase == PodPhase::Running) {
            exit(pod, code, "x", now);
            if code != 0 && !pod.deleting && pod.owner == job {
                self.failures.insert(pod.uid.clone());
            }
        }
    }

    /// Recreates the job. The new one shares nothing with the previous one.
    fn recreate_job(&mut self) {
        self.serial += 1;
        let metadata = &mut self.job.metadata;
        // Names of Workloads and groups have the first five characters.
        metadata.uid = Some(format!("{}-job", self.serial));
        (metadata.deletion_timestamp, metadata.annotations) = (None, None);
        self.job.status = None;
        self.lost_status = false;
        self.recorded.clear();
        self.failures.clear();
        self.requested.clear();
        self.kueue.forget_pods();
        self.collect_garbage();
    }

    /// Returns true if the job is being deleted.
    pub(super) fn is_terminating(&self) -> bool {
        self.job.metadata.deletion_timestamp.is_some()
    }

    /// Returns an entry with the nth free name of the plan, for an object of another client.
    fn free_entry(&mut self, n: usize, is_free: impl Fn(&Self, &str) -> bool) -> Option<PlanEntry> {
        let plan = self.job.status.iter().flat_map(|status| &status.plan);
        let names = std::iter::once(COORDINATOR).chain(plan.map(|entry| entry.name.as_str()));
        let name = names.filter(|name| is_free(self, name)).nth(n)?.to_owned();
        self.serial += 1;
        Some(PlanEntry::new(name, Role::Coordinator, Origin::Declared, 0))
    }

    fn take_pod_name(&mut self, n: usize) {
        if let Some(entry) = self.free_entry(n, |model, name| !model.pods.contains_key(name)) {
            let pod = created_pod(&self.job, &entry, &self.aggregator, None, self.serial);
            let mut pod = PodView::new(&pod).unwrap();
            pod.owner = None;
            Rc::make_mut(&mut self.pods).insert(entry.name, pod);
        }
    }

    fn take_service_name(&mut self, n: usize) {
        if let Some(entry) = self.free_entry(n, |model, name| !model.services.contains_key(name)) {
            let mut service = created_service(&self.job, &entry, self.serial);
            service.owner = None;
            Rc::make_mut(&mut self.services).insert(entry.name, service);
        }
    }

    fn delete_foreign(&mut self) {
        let job = self.job.metadata.uid.clone();
        Rc::make_mut(&mut self.pods).retain(|_, pod| pod.owner == job);
        Rc::make_mut(&mut self.services).retain(|_, service| service.owner == job);
        self.collect_garbage();
    }

    /// Reports a replica as failed, as the endpoint does.
    fn report_failed(&mut self, n: usize) {
        let job = self.job.clone();
        let Some(status) = self.job.status.as_mut() else {
            return;
        };
        if let Some(name) = status.plan.get(n).map(|entry| entry.name.clone()) {
            let plan = &mut status.plan;
            replace(&job, plan, &name, None, &mut RandomSuffixes, self.now);
            check_groups(status);
        }
    }

    /// Returns true if the endpoint may change the plan.
    fn is_active(&self) -> bool {
        let ended = self.job.status.as_ref().is_some_and(DIJobStatus::has_ended);
        !self.is_terminating() && !ended && !self.job.spec.suspend && !self.waits_in_queue()
    }

    /// Adds replicas, as the endpoint does. It plans no aggregator without a known port.
    fn add_replicas(&mut self, role: Role, count: usize) {
        let port = self.aggregator.pod_port();
        let is_group = role == Role::Aggregator;
        if !self.is_active() || is_group && port.is_none() {
            return;
        }
        let coordinator = self.own_pods().find(|pod| pod.name == COORDINATOR);
        let coordinator_instance = coordinator.map(PodView::coordinator_instance);
        let job = self.job.clone();
        let group = &job.spec.learner.as_ref().unwrap().groups[0];
        let new = Request {
            count,
            resources: if is_group {
                group.resources.clone()
            } else {
                ReplicaResources::default()
            },
            coordinator_instance,
            aggregator_port: port,
            queue: job.queue_name().map(|_| QueueState::Waiting),
            ..Request::default()
        };
        let pods = self.pods.clone();
        let is_over = |name: &str| {
            let pod = pods.get(name);
            pod.is_some_and(|pod| pod.stage() == Stage::Succeeded)
        };
        let status = self.job.status.get_or_insert_default();
        let (plan, role) = (&mut status.plan, role.counted_as());
        plan_request(
            &job,
            plan,
            role,
            &new,
            is_over,
            &mut RandomSuffixes,
            self.now,
        );
        self.record_requested();
    }

    /// Removes requested replicas, as the endpoint does.
    fn remove_replicas(&mut self, role: Role, count: usize) {
        let pods: Vec<_> = self.pods.values().cloned().collect();
        if self.is_active()
            && let Some(status) = self.job.status.as_mut()
        {
            scale_down_requested(&mut status.plan, &pods, role, count);
            self.record_requested();
        }
    }

    /// Records the requested replicas after a change by the coordinator.
    fn record_requested(&mut self) {
        let status = self.job.status.as_ref().unwrap();
        check_groups(status);
        self.requested.clear();
        let requested = status.plan.iter().filter(|e| e.origin == Origin::Requested);
        for entry in requested.filter(|entry| entry.is_wanted() && entry.is_replica()) {
            *self.requested.entry(entry.role).or_default() += 1;
        }
    }

    /// Reconciles without faults until nothing is left to do: caches are current, Kueue admits all,
    /// pods are placed, start and terminate, and no other client acts.
    pub fn settle(&mut self) {
        self.aggregator = aggregator();
        self.quota = false;
        self.delete_foreign();
        self.end_queue_faults();
        // With `Whole`, added replicas wait for ever.
        if self.job.spec.queueing.take().is_some() {
            self.job_written();
        }
        for _ in 0..MAX_ROUNDS {
            self.now += ROUND;
            let writes = self.writes;
            self.reconcile(Lag::default(), false, None);
            if self.is_terminating() {
                assert_eq!(writes, self.writes, "a terminating job is not changed");
                self.deleted = true;
            }
            let has_admitted = self.admit_all();
            self.schedule(usize::MAX);
            if !self.run_kubelet() && !has_admitted && writes == self.writes {
                return;
            }
        }
        panic!(
            "not settled after {MAX_ROUNDS} rounds: {:#?}",
            self.job.status
        );
    }

    /// Starts and removes pods. Returns true if any changed.
    fn run_kubelet(&mut self) -> bool {
        let now = self.now;
        let pods = Rc::make_mut(&mut self.pods);
        let before = pods.len();
        pods.retain(|_, pod| !pod.deleting);
        let is_waiting = |pod: &&mut PodView| may_start(pod) && pod.phase != PodPhase::Running;
        let started = pods
            .values_mut()
            .filter(is_waiting)
            .map(|pod| start(pod, now));
        started.count() > 0 || pods.len() < before
    }
}

/// The resources of a container that requests these CPUs.
fn request_cpus(cpus: &str) -> Value {
    json!({"requests": {"cpu": cpus}})
}

/// The template of aggregators that request these CPUs.
fn aggregator_with_cpus(cpus: &str) -> AggregatorTemplate {
    let mut template = aggregator().pod_template().unwrap().clone();
    template.0["spec"]["containers"][0]["resources"] = request_cpus(cpus);
    AggregatorTemplate::Found(Arc::new(template))
}

/// Whether a kubelet can start a pod. One in a gang needs a node first.
fn may_start(pod: &PodView) -> bool {
    pod.end.is_none() && (!pod.in_gang || pod.is_on_node())
}

fn evict(pod: &mut PodView, now: Timestamp) {
    pod.phase = PodPhase::Failed;
    pod.ready = false;
    pod.disrupted = true;
    pod.end = Some(Box::new(End {
        exit_code: None,
        reason: "Evicted".to_owned(),
        message: None,
        at: Some(now),
        log_tail: None,
    }));
}
