use std::collections::{BTreeMap, HashMap};

use di_api::{CleanPodPolicy, DIJob, EntryState, Origin, Phase, Role, names};
use di_plan::{
    AggregatorTemplate, BuildSettings, End, NodeView, PodPhase, PodView, ServiceView, Suffixes,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;

mod coordinator;

/// A cluster in memory: what the actions say is done, pods start when told to.
pub(super) struct World {
    pub job: DIJob,
    pub nodes: Vec<NodeView>,
    pub aggregator: AggregatorTemplate,
    pub pods: BTreeMap<String, PodView>,
    pub services: BTreeMap<String, ServiceView>,
    pub now: Timestamp,
    serial: u32,
    status_writes: u32,
    job_deleted: bool,
    asked: HashMap<String, bool>,
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
            serial: 0,
            status_writes: 0,
            job_deleted: false,
            asked: HashMap::new(),
        }
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
            trouble: None,
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
            } else if step.actions.is_empty() {
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
                let mut pod = di_plan::pod(
                    &self.job,
                    &entry,
                    self.aggregator.found(),
                    &BuildSettings::default(),
                )
                .unwrap();
                self.serial += 1;
                pod.metadata.uid = Some(format!("uid-{}", self.serial));
                self.pods.insert(entry.name, PodView::new(&pod).unwrap());
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

    pub fn run(&mut self, name: &str) {
        let now = self.now;
        let pod = self.pods.get_mut(name).unwrap();
        pod.phase = PodPhase::Running;
        pod.ready = true;
        pod.started = Some(now);
    }

    pub fn run_all(&mut self) {
        let names: Vec<_> = self.pods.keys().cloned().collect();
        for name in &names {
            self.run(name);
        }
    }

    pub fn exit(&mut self, name: &str, code: i32, reason: &str) {
        let now = self.now;
        let pod = self.pods.get_mut(name).unwrap();
        pod.phase = if code == 0 {
            PodPhase::Succeeded
        } else {
            PodPhase::Failed
        };
        pod.ready = false;
        pod.end = Some(Box::new(End {
            exit_code: Some(code),
            reason: reason.into(),
            at: Some(now),
        }));
    }

    pub fn status(&self) -> &di_api::DIJobStatus {
        self.job.status.as_ref().unwrap()
    }

    pub fn plan(&self) -> &[di_api::PlanEntry] {
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

const COORDINATOR: &str = "cartpole-coordinator";

fn running() -> World {
    let mut world = World::new(JOB);
    world.settle();
    world.run_all();
    world.settle();
    world
}

#[test]
fn a_job_goes_from_created_to_running_to_succeeded() {
    let mut world = World::new(JOB);
    let first = world.look();
    assert_eq!(first.status.plan.len(), 3, "names are planned first");
    assert_eq!(first.status.phase, None);
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert_eq!(world.pods.len(), 4);
    assert_eq!(world.services.len(), 4);
    assert_eq!(world.status_writes, 2, "the plan, then Created");
    world.run_all();
    world.settle();
    let status = world.status();
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(status.collectors_ready.as_deref(), Some("2/2"));
    assert_eq!(status.replica_status["Collector"].active, 2);
    world.exit(COORDINATOR, 0, "Completed");
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Succeeded));
    assert_eq!(world.pod_names(), [COORDINATOR]);
    assert!(world.services.is_empty());
    assert_eq!(
        world.status().replica_status.len(),
        1,
        "nobody is counted as active any more"
    );
    let types: Vec<_> = world
        .status()
        .conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str()))
        .collect();
    for expected in [
        ("Created", "True"),
        ("Running", "False"),
        ("Succeeded", "True"),
    ] {
        assert!(types.contains(&expected), "{types:?}");
    }
}

#[test]
fn the_end_is_written_before_anything_is_cleaned_up() {
    let mut world = running();
    world.exit(COORDINATOR, 0, "Completed");
    let step = world.look();
    assert_eq!(step.status.phase, Some(Phase::Succeeded));
    assert_ne!(
        world.job.status.as_ref(),
        Some(&step.status),
        "so the driver writes it first"
    );
}

#[test]
fn an_ended_job_is_never_run_again() {
    for policy in [
        CleanPodPolicy::None,
        CleanPodPolicy::Running,
        CleanPodPolicy::All,
    ] {
        let mut world = running();
        world.job.spec.clean_pod_policy = policy;
        world.exit(COORDINATOR, 1, "Error");
        world.settle();
        world.pods.clear();
        world.settle();
        assert_eq!(world.status().phase, Some(Phase::Failed));
        assert!(world.pods.is_empty(), "{policy:?}");
        // Even if the phase alone were lost.
        world.job.status.as_mut().unwrap().phase = None;
        world.settle();
        assert!(world.pods.is_empty(), "{policy:?}");
    }
}

#[test]
fn a_failed_collector_is_replaced_under_a_fresh_name_and_kept_for_its_logs() {
    let mut world = running();
    let first = world.wanted(Role::Collector)[0].clone();
    world.exit(&first, 137, "OOMKilled");
    world.settle();
    assert_eq!(
        world.status().phase,
        Some(Phase::Running),
        "others never change the phase"
    );
    assert!(world.pods.contains_key(&first));
    let plan = world.plan();
    let second = plan
        .iter()
        .find(|e| e.replaces.as_ref() == Some(&first))
        .unwrap();
    assert_eq!((second.index, second.origin), (0, Origin::Declared));
    let second = second.name.clone();
    assert!(
        world.pods.contains_key(&second),
        "the first replacement is immediate"
    );

    world.run(&second);
    world.exit(&second, 1, "Error");
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    assert!(
        !world.pods.contains_key(&first),
        "one failed pod per index is kept"
    );
    assert!(world.pods.contains_key(&second));
    let third = world
        .plan()
        .iter()
        .find(|e| e.replaces.as_ref() == Some(&second))
        .unwrap();
    let (third, wait) = (third.name.clone(), third.not_before.clone().unwrap().0);
    assert!(!world.pods.contains_key(&third), "further ones back off");
    assert_eq!(
        wait.duration_since(world.now),
        SignedDuration::from_secs(10)
    );
    world.now = wait;
    world.settle();
    assert!(world.pods.contains_key(&third));
}

#[test]
fn a_deleted_replica_is_replaced_and_a_finished_one_is_not() {
    let mut world = running();
    let all = world.wanted(Role::Collector);
    world.pods.remove(&all[0]);
    world.exit(&all[1], 0, "Completed");
    world.settle();
    assert!(!world.wanted(Role::Collector).contains(&all[0]));
    assert!(world.wanted(Role::Collector).contains(&all[1]));
    assert_eq!(world.wanted(Role::Collector).len(), 2);
}

#[test]
fn a_pod_that_only_the_cache_lacks_is_not_replaced() {
    let mut world = running();
    let name = world.wanted(Role::Collector)[0].clone();
    let pod = world.pods.remove(&name).unwrap();
    let step = world.look();
    assert_eq!(
        step.ask,
        std::slice::from_ref(&name),
        "the server is asked first"
    );
    world.pods.insert(name.clone(), pod);
    world.settle();
    assert!(world.wanted(Role::Collector).contains(&name));
}

#[test]
fn fewer_declared_lets_the_not_ready_go_first_then_the_newest() {
    let mut world = running();
    world.job.spec.collector.as_mut().unwrap().replicas = 4;
    world.now += SignedDuration::from_secs(5);
    world.settle();
    let all = world.wanted(Role::Collector);
    world.run_all();
    world.pods.get_mut(&all[0]).unwrap().ready = false;
    world.settle();
    world.job.spec.collector.as_mut().unwrap().replicas = 2;
    world.settle();
    assert_eq!(
        world.wanted(Role::Collector),
        [all[1].clone(), all[2].clone()]
    );
    assert_eq!(
        world
            .plan()
            .iter()
            .filter(|e| e.state == EntryState::Removing)
            .count(),
        2
    );
    assert_eq!(
        world.services.len(),
        6,
        "services stay until their pods are gone"
    );
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!((world.services.len(), world.plan().len()), (4, 3));
}

#[test]
fn a_failed_coordinator_is_started_again_within_its_limit_and_counted_once() {
    let mut world = running();
    world.job.spec.backoff_limit = 1;
    world.exit(COORDINATOR, 1, "Error");
    world.settle();
    assert_eq!(world.status().restarts, 1);
    world.settle();
    assert_eq!(
        world.status().restarts,
        1,
        "the same failure is counted once"
    );
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert!(world.pods.contains_key(COORDINATOR));
    world.run(COORDINATOR);
    world.exit(COORDINATOR, 1, "Error");
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Failed));
}

#[test]
fn an_evicted_coordinator_is_started_again_uncounted() {
    let mut world = running();
    let pod = world.pods.get_mut(COORDINATOR).unwrap();
    pod.phase = PodPhase::Failed;
    pod.disrupted = true;
    pod.end = Some(Box::new(End {
        exit_code: None,
        reason: "Evicted".into(),
        at: None,
    }));
    world.settle();
    world.kubelet_ends_deleted();
    world.settle();
    assert!(world.pods.contains_key(COORDINATOR));
    assert_eq!(
        (world.status().restarts, world.status().phase),
        (0, Some(Phase::Created))
    );
}

#[test]
fn pods_of_an_older_job_of_the_same_name_are_not_touched() {
    let mut world = World::new(JOB);
    let mut old = running();
    old.exit(COORDINATOR, 0, "Completed");
    for (name, mut pod) in old.pods {
        pod.owner = Some("old-uid".into());
        world.pods.insert(name, pod);
    }
    let step = world.look();
    assert_eq!(step.status.phase, None);
    assert!(
        !step
            .actions
            .iter()
            .any(|a| matches!(a, Action::DeletePod { .. }))
    );
}

#[test]
fn strangers_are_adopted_and_counted() {
    let mut world = running();
    let plan = world.plan().to_vec();
    world.job.status.as_mut().unwrap().plan.clear();
    world.settle();
    let names = |plan: &[di_api::PlanEntry]| {
        let mut names: Vec<_> = plan.iter().map(|e| (e.name.clone(), e.origin)).collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        names
    };
    assert_eq!(
        names(world.plan()),
        names(&plan),
        "a lost plan is found again"
    );
}

#[test]
fn an_invalid_job_fails_before_anything_is_made() {
    let mut world = World::new(&JOB.replace(
        "[{name: di-container, image: c}]",
        "[{name: main, image: c}]",
    ));
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Failed));
    assert_eq!(world.status().reason.as_deref(), Some("InvalidSpec"));
    assert!(world.pods.is_empty());
}

#[test]
fn deadline_and_ttl_are_kept() {
    let mut world = running();
    world.job.spec.active_deadline_seconds = Some(60);
    world.job.spec.ttl_seconds_after_finished = Some(30);
    assert_eq!(world.look().again, Some(Duration::from_secs(60)));
    world.now += SignedDuration::from_secs(60);
    world.settle();
    assert_eq!(world.status().reason.as_deref(), Some("DeadlineExceeded"));
    assert!(!world.job_deleted);
    world.kubelet_ends_deleted();
    world.now += SignedDuration::from_secs(30);
    let step = world.look();
    assert!(
        step.actions.contains(&Action::DeleteJob) || {
            world.job.status = Some(step.status);
            world.look().actions.contains(&Action::DeleteJob)
        }
    );
}

#[test]
fn a_suspended_job_frees_everything_and_goes_on_with_its_plan() {
    let mut world = running();
    let plan = world.wanted(Role::Collector);
    world.job.spec.suspend = true;
    world.settle();
    assert_ne!(
        world.status().phase,
        Some(Phase::Suspended),
        "not before its pods are gone"
    );
    world.kubelet_ends_deleted();
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Suspended));
    assert!(world.services.is_empty());
    world.job.spec.suspend = false;
    world.settle();
    assert_eq!(world.status().phase, Some(Phase::Created));
    assert_eq!(world.wanted(Role::Collector), plan);
    assert_eq!(world.pods.len(), 4);
}

#[test]
fn a_job_that_is_being_deleted_is_left_alone() {
    let mut world = running();
    world.pods.clear();
    world.job.metadata.deletion_timestamp = Some(
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now),
    );
    let step = world.look();
    assert!(step.actions.is_empty());
    assert_eq!(Some(&step.status), world.job.status.as_ref());
}

fn phases() -> impl Strategy<Value = (PodPhase, Option<i32>, bool)> {
    prop_oneof![
        Just((PodPhase::Pending, None, false)),
        Just((PodPhase::Running, None, false)),
        Just((PodPhase::Running, None, true)),
        Just((PodPhase::Running, Some(0), false)),
        Just((PodPhase::Running, Some(1), false)),
        Just((PodPhase::Succeeded, Some(0), false)),
        Just((PodPhase::Failed, Some(137), false)),
    ]
}

proptest! {
    /// What remains is exactly what the policy says, whatever state the pods were in when the job ended.
    #[test]
    fn what_remains_is_what_the_policy_says(
        policy in prop_oneof![Just(CleanPodPolicy::None), Just(CleanPodPolicy::Running), Just(CleanPodPolicy::All)],
        states in proptest::collection::vec(phases(), 3),
        succeeds in any::<bool>(),
        sidecar in any::<bool>(),
    ) {
        let mut world = running();
        world.job.spec.clean_pod_policy = policy;
        let workers: Vec<String> = world.pods.keys().filter(|n| *n != COORDINATOR).cloned().collect();
        for (name, (phase, code, deleting)) in workers.iter().zip(&states) {
            let pod = world.pods.get_mut(name).unwrap();
            pod.phase = *phase;
            pod.deleting = *deleting;
            pod.end = code.map(|code| Box::new(End { exit_code: Some(code), reason: "x".into(), at: None }));
        }
        world.exit(COORDINATOR, i32::from(!succeeds), "x");
        if sidecar {
            world.pods.get_mut(COORDINATOR).unwrap().phase = PodPhase::Running;
        }
        let before: Vec<String> = world.pods.values().filter(|p| !p.deleting).map(|p| p.name.clone()).collect();
        let over = |world: &World, n: &str| matches!(world.pods[n].phase, PodPhase::Succeeded | PodPhase::Failed);
        let expected: Vec<String> = before.into_iter().filter(|name| match policy {
            CleanPodPolicy::None => true,
            CleanPodPolicy::Running => name == COORDINATOR || over(&world, name),
            CleanPodPolicy::All => false,
        }).collect();
        world.settle();
        world.kubelet_ends_deleted();
        world.settle();
        prop_assert_eq!(world.pod_names(), expected);
        prop_assert!(world.services.is_empty());
        prop_assert_eq!(world.status().phase, Some(if succeeds { Phase::Succeeded } else { Phase::Failed }));
        let writes = world.status_writes;
        world.settle();
        prop_assert_eq!(writes, world.status_writes, "nothing is written when nothing changed");
    }
}

#[test]
fn names_in_tests_are_those_of_the_api() {
    assert_eq!(names::coordinator("cartpole"), COORDINATOR);
}
