//! Explores the step: whatever happens in whatever order, once it stops, the job comes to rest where it should.

use std::collections::{BTreeMap, HashMap, HashSet};

use di_api::{DIJob, DIJobStatus, EntryState, Phase, PlanEntry, Role, names};
use di_plan::{
    AggregatorTemplate, NodeView, PodPhase, PodView, RandomSuffixes, ServiceView, find, is_whole,
    members, replace,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::world::{JOB, World, aggregator, exit, made, node, start};
use crate::step::{Action, Observed, step};

/// Something that happens to a job.
#[derive(Clone, Debug)]
enum Happening {
    /// A reconcile that sees the objects as they were `lag` happenings ago, and dies after `writes` writes.
    Reconcile { lag: usize, writes: usize },
    /// The nth pod starts.
    Start(usize),
    /// The nth pod's main container ends.
    Exit(usize, i32),
    /// Somebody deletes the nth pod.
    Delete(usize),
    /// Somebody deletes the nth service.
    DeleteService(usize),
    /// Pods that were told to go, go.
    Gone,
    /// The user declares as many collectors.
    Declare(i32),
    /// The user declares as many learners of several GPUs.
    DeclareUnits(i32),
    /// The coordinator reports the nth replica of the plan.
    Report(usize),
    /// The nodes have so many GPUs from now on.
    Nodes(Vec<i32>),
    /// There is a configuration for aggregators, or there is none.
    Configured(bool),
    /// Seconds go by.
    Wait(i64),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        5 => (0..4_usize, 0..12_usize).prop_map(|(lag, writes)| Happening::Reconcile { lag, writes }),
        3 => (0..14_usize).prop_map(Happening::Start),
        // The coordinator, the first by name, ends rarely: the rest of a run would be dull.
        2 => (1..14_usize, prop_oneof![Just(0), Just(1)]).prop_map(|(n, code)| Happening::Exit(n, code)),
        1 => (0..14_usize).prop_map(Happening::Delete),
        1 => (0..14_usize).prop_map(Happening::DeleteService),
        2 => Just(Happening::Gone),
        1 => (0..4).prop_map(Happening::Declare),
        1 => (0..3).prop_map(Happening::DeclareUnits),
        1 => (0..14_usize).prop_map(Happening::Report),
        1 => proptest::collection::vec(0..9, 0..4).prop_map(Happening::Nodes),
        1 => any::<bool>().prop_map(Happening::Configured),
        1 => (1..400_i64).prop_map(Happening::Wait),
    ]
}

/// What a watch cache holds of a job.
type Objects = (BTreeMap<String, PodView>, BTreeMap<String, ServiceView>);

/// A server with caches that may be behind.
struct Model {
    job: DIJob,
    objects: Objects,
    past: Vec<Objects>,
    nodes: Vec<NodeView>,
    aggregator: AggregatorTemplate,
    now: Timestamp,
    serial: u32,
    writes: u32,
    /// Replicas whose pod the status has told of: their names are used up.
    told: HashSet<String>,
}

impl Model {
    fn new() -> Self {
        let World {
            mut job,
            aggregator,
            now,
            ..
        } = World::new(JOB);
        job.spec.backoff_limit = 1000;
        let unit = serde_json::json!([{"name": "unit", "replicas": 1, "resources": {"gpus": "6"}}]);
        job.spec.learner.as_mut().unwrap().groups = serde_json::from_value(unit).unwrap();
        Self {
            job,
            objects: Objects::default(),
            past: Vec::new(),
            nodes: vec![node(4), node(4), node(1)],
            aggregator,
            now,
            serial: 0,
            writes: 0,
            told: HashSet::new(),
        }
    }

    /// As the driver does it; `writes` is how many come through before the process dies.
    fn reconcile(&mut self, lag: usize, mut writes: usize) {
        let seen = self
            .past
            .iter()
            .rev()
            .nth(lag)
            .cloned()
            .unwrap_or_else(|| self.objects.clone());
        // A process that starts anew lists first: a cache is never older than what its owner has written.
        let (mut pods, mut services) = if lag == 0 { self.objects.clone() } else { seen };
        let mut asked = HashMap::new();
        for _ in 0..6 {
            let step = step(
                &Observed {
                    job: &self.job,
                    pods: &pods.values().cloned().collect::<Vec<_>>(),
                    services: &services.values().cloned().collect::<Vec<_>>(),
                    nodes: Some(&self.nodes),
                    aggregator: &self.aggregator,
                    trouble: None,
                    asked: &asked,
                    now: self.now,
                },
                &mut RandomSuffixes,
            );
            if !step.ask.is_empty() {
                for name in step.ask {
                    let pod = self.objects.0.get(&name);
                    if let Some(pod) = pod {
                        pods.insert(name.clone(), pod.clone());
                    }
                    asked.insert(name, pod.is_some());
                }
                continue;
            }
            if self.job.status.as_ref() != Some(&step.status) {
                if writes == 0 {
                    return;
                }
                writes -= 1;
                self.writes += 1;
                let made = step.status.plan.iter().filter(|entry| entry.uid.is_some());
                self.told.extend(made.map(|entry| entry.name.clone()));
                check_units(&step.status);
                self.job.status = Some(step.status);
                continue;
            }
            if step.actions.is_empty() {
                return;
            }
            for action in step.actions {
                if writes == 0 {
                    return;
                }
                writes -= 1;
                self.writes += 1;
                self.act(action, &mut pods, &mut services);
            }
        }
    }

    fn act(
        &mut self,
        action: Action,
        pods: &mut BTreeMap<String, PodView>,
        services: &mut BTreeMap<String, ServiceView>,
    ) {
        match action {
            Action::CreatePod(entry) => {
                if !self.objects.0.contains_key(&entry.name) {
                    self.serial += 1;
                    let pod = made(&self.job, &entry, &self.aggregator, self.serial);
                    self.objects.0.insert(entry.name.clone(), pod);
                    assert!(
                        !self.told.contains(&entry.name),
                        "{} made twice",
                        entry.name
                    );
                }
                pods.insert(entry.name.clone(), self.objects.0[&entry.name].clone());
            }
            Action::CreateService(entry) => {
                let service = ServiceView::new(&di_plan::service(&self.job, &entry)).unwrap();
                self.objects.1.insert(entry.name.clone(), service.clone());
                services.insert(entry.name, service);
            }
            Action::DeletePod { name, uid } => {
                if let Some(pod) = self.objects.0.get_mut(&name).filter(|pod| pod.uid == uid) {
                    pod.deleting = true;
                }
                if let Some(pod) = pods.get_mut(&name) {
                    pod.deleting = true;
                }
            }
            Action::DeleteService { name, .. } => {
                self.objects.1.remove(&name);
                services.remove(&name);
            }
            Action::DeleteJob => unreachable!("no time to live is set"),
        }
    }

    fn nth_pod(&mut self, n: usize) -> Option<&mut PodView> {
        self.objects.0.values_mut().nth(n)
    }

    fn happens(&mut self, happening: &Happening) {
        self.past.push(self.objects.clone());
        let now = self.now;
        match happening {
            Happening::Reconcile { lag, writes } => self.reconcile(*lag, *writes),
            Happening::Start(n) => {
                if let Some(pod) = self.nth_pod(*n).filter(|pod| pod.end.is_none()) {
                    start(pod, now);
                }
            }
            Happening::Exit(n, code) => {
                if let Some(pod) = self
                    .nth_pod(*n)
                    .filter(|pod| pod.phase == PodPhase::Running)
                {
                    exit(pod, *code, "x", now);
                }
            }
            Happening::Delete(n) => {
                if let Some(pod) = self.nth_pod(*n) {
                    pod.deleting = true;
                }
            }
            Happening::DeleteService(n) => {
                if let Some(name) = self.objects.1.keys().nth(*n).cloned() {
                    self.objects.1.remove(&name);
                }
            }
            Happening::Gone => self.objects.0.retain(|_, pod| !pod.deleting),
            Happening::Declare(n) => self.job.spec.collector.as_mut().unwrap().replicas = *n,
            Happening::DeclareUnits(n) => self.units().replicas = *n,
            Happening::Report(n) => self.report(*n),
            Happening::Nodes(gpus) => self.nodes = gpus.iter().map(|gpus| node(*gpus)).collect(),
            Happening::Configured(there) => {
                self.aggregator = if *there {
                    aggregator()
                } else {
                    AggregatorTemplate::Missing
                };
            }
            Happening::Wait(seconds) => self.now += SignedDuration::from_secs(*seconds),
        }
    }

    fn units(&mut self) -> &mut di_api::ReplicaGroup {
        &mut self.job.spec.learner.as_mut().unwrap().groups[0]
    }

    /// As the endpoint does it, which writes the plan and nothing else.
    fn report(&mut self, n: usize) {
        let job = self.job.clone();
        let Some(status) = self.job.status.as_mut() else {
            return;
        };
        if let Some(name) = status.plan.get(n).map(|entry| entry.name.clone()) {
            replace(
                &job,
                &mut status.plan,
                &name,
                None,
                &mut RandomSuffixes,
                self.now,
            );
            check_units(status);
        }
    }

    /// No more faults: caches are up to date, pods run, those told to go go.
    fn rest(&mut self) {
        self.aggregator = aggregator();
        for _ in 0..6 {
            self.now += SignedDuration::from_secs(600);
            self.reconcile(0, usize::MAX);
            self.objects.0.retain(|_, pod| !pod.deleting);
            for n in 0..self.objects.0.len() {
                self.happens(&Happening::Start(n));
            }
        }
        self.reconcile(0, usize::MAX);
    }
}

/// A unit is never half replaced or half let go of: a ddp learner is wanted while its aggregator is, and then all of them are there.
fn check_units(status: &DIJobStatus) {
    let plan = &status.plan;
    for unit in plan
        .iter()
        .filter(|e| e.role == Role::Aggregator && e.is_wanted())
    {
        let bare = members(plan, &unit.name).next().is_none();
        assert!(bare || is_whole(plan, &unit.name), "{plan:#?}");
    }
    for member in plan.iter().filter(|e| e.role == Role::DdpLearner) {
        let leader = member
            .ddp
            .as_ref()
            .and_then(|place| find(plan, &place.aggregator));
        let leader = leader.map_or(EntryState::Removing, |leader| leader.state);
        let follows = member.state == leader
            || member.state == EntryState::Removing && leader != EntryState::Wanted;
        assert!(follows, "{member:?} {leader:?}");
    }
}

/// Names of the wanted of one role.
fn wanted(plan: &[PlanEntry], role: Role) -> HashSet<String> {
    let of_role = |entry: &&PlanEntry| entry.role == role && entry.is_wanted();
    plan.iter()
        .filter(of_role)
        .map(|entry| entry.name.clone())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn once_faults_stop_the_job_rests_where_it_should(happenings in proptest::collection::vec(happening(), 0..60)) {
        let mut model = Model::new();
        for happening in &happenings {
            model.happens(happening);
        }
        model.rest();

        let status = model.job.status.clone().unwrap();
        let ended = status.phase.is_some_and(Phase::is_terminal);
        let (pods, services) = &model.objects;
        let live: Vec<_> = pods.values().filter(|pod| pod.end.is_none() && !pod.deleting).collect();
        if ended {
            prop_assert!(live.is_empty() && services.is_empty());
        } else {
            prop_assert_eq!(status.phase, Some(Phase::Running));
            for role in [Role::Collector, Role::Learner, Role::Aggregator, Role::DdpLearner] {
                let wanted = wanted(&status.plan, role);
                let declared = match role {
                    Role::Aggregator => Some(model.job.spec.learner.as_ref().unwrap().groups[0].replicas),
                    role => model.job.spec.declared(role).map(|part| part.replicas),
                };
                if let Some(declared) = declared {
                    prop_assert_eq!(i32::try_from(wanted.len()).unwrap(), declared);
                }
                let there: HashSet<_> = pods
                    .values()
                    .filter(|pod| pod.role == Some(role) && wanted.contains(&pod.name))
                    .map(|pod| pod.name.clone())
                    .collect();
                prop_assert_eq!(&there, &wanted, "every wanted replica is there, running or done");
                for name in &wanted {
                    prop_assert!(services.contains_key(name));
                }
                prop_assert!(live.iter().filter(|pod| pod.role == Some(role)).all(|pod| wanted.contains(&pod.name)), "nobody else runs");
            }
            for unit in wanted(&status.plan, Role::Aggregator) {
                prop_assert!(is_whole(&status.plan, &unit), "every aggregator has all its ddp learners");
            }
            let indices: HashSet<_> = status.plan.iter().filter(|e| e.is_wanted()).map(|e| (e.role, e.index)).collect();
            prop_assert_eq!(indices.len(), status.plan.iter().filter(|e| e.is_wanted()).count(), "numbers are one's own");
            prop_assert!(services.contains_key(&names::coordinator("cartpole")));
            for service in services.keys() {
                prop_assert!(pods.contains_key(service), "no service without its pod: {}", service);
            }
        }
        let writes = model.writes;
        model.reconcile(0, usize::MAX);
        prop_assert_eq!(writes, model.writes, "at rest, nothing is written");
    }
}
