//! A server with caches that may be behind, a manager that may die, users, nodes, and somebody else.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    rc::Rc,
};

use di_api::{DIJob, DIJobStatus, EntryState, Phase, PlanEntry, Reason, Role, names};
use di_plan::{
    AggregatorTemplate, End, NodeView, PodPhase, PodView, RandomSuffixes, ServiceView,
    aggregator_of, find, is_whole, members, replace,
};
use jiff::{SignedDuration, Timestamp};

use super::{Fate, Happening, Limits};
use crate::{
    reconcile::only_told,
    status::{is_urgent, stands},
    step::{
        Action, Observed, Step, Trouble, step,
        tests::world::{COORDINATOR, JOB, World, aggregator, exit, made, node, start},
    },
};

/// Looks of one reconcile, as in the driver.
const LOOKS: usize = 6;
/// So often pods and plan answer each other, at most, until nothing is left to do.
const ROUNDS: usize = 8;
/// Longer than any replacement waits.
const ROUND: SignedDuration = SignedDuration::from_secs(600);

/// No cache is further behind than so many happenings.
pub(super) const LONGEST_LAG: usize = 4;

type Objects = (BTreeMap<String, PodView>, BTreeMap<String, ServiceView>);

/// What a process knows.
#[derive(Clone)]
struct Cache {
    job: DIJob,
    pods: BTreeMap<String, PodView>,
    services: BTreeMap<String, ServiceView>,
    asked: HashMap<String, bool>,
}

/// How a reconcile fails.
enum Failure {
    Died,
    Conflict,
    Refused(Reason),
    /// The write of the status, of which nobody can tell whether it stands.
    Unanswered,
}

pub(super) struct Model {
    pub job: DIJob,
    pub deleted: bool,
    /// Whether the status was ever lost.
    pub lost_status: bool,
    pub writes: u32,
    objects: Rc<Objects>,
    past: VecDeque<(DIJob, Rc<Objects>)>,
    nodes: Vec<NodeView>,
    aggregator: AggregatorTemplate,
    quota: bool,
    now: Timestamp,
    serial: u32,
    /// The newest state of the job that the process must know: it has written or listed it.
    known: DIJob,
    trouble: Option<Trouble>,
    /// What befalls the writes of this reconcile, and how many there were.
    fault: Option<(usize, Fate)>,
    sent: usize,
    /// Replicas whose pod the status has told of: their names are used up, unless the job is held.
    told: HashSet<String>,
    /// Coordinators that failed by themselves.
    failures: HashSet<String>,
}

impl Model {
    pub fn new(limits: &Limits) -> Self {
        let World {
            mut job,
            aggregator,
            now,
            ..
        } = World::new(JOB);
        job.metadata.resource_version = Some("1".to_owned());
        job.spec.backoff_limit = limits.backoff;
        job.spec.active_deadline_seconds = limits.deadline;
        job.spec.ttl_seconds_after_finished = limits.ttl;
        job.spec.clean_pod_policy = limits.policy;
        let unit = serde_json::json!([{"name": "unit", "replicas": 1, "resources": {"gpus": "6"}}]);
        job.spec.learner.as_mut().unwrap().groups = serde_json::from_value(unit).unwrap();
        Self {
            known: job.clone(),
            job,
            deleted: false,
            lost_status: false,
            writes: 0,
            objects: Rc::default(),
            past: VecDeque::new(),
            nodes: vec![node(4), node(4), node(1)],
            aggregator,
            quota: false,
            now,
            serial: 0,
            trouble: None,
            fault: None,
            sent: 0,
            told: HashSet::new(),
            failures: HashSet::new(),
        }
    }

    pub fn status(&self) -> &DIJobStatus {
        self.job.status.as_ref().unwrap()
    }

    pub fn objects(&self) -> (&BTreeMap<String, PodView>, &BTreeMap<String, ServiceView>) {
        (&self.objects.0, &self.objects.1)
    }

    fn objects_mut(&mut self) -> &mut Objects {
        Rc::make_mut(&mut self.objects)
    }

    /// As the driver does it.
    pub fn reconcile(&mut self, lag: usize, hasty: bool, fault: Option<(usize, Fate)>) {
        if self.deleted {
            return;
        }
        let now = || (self.job.clone(), self.objects.clone());
        let past = self.past.get(lag).filter(|_| lag > 0).cloned();
        let (mut job, objects) = past.unwrap_or_else(now);
        let (pods, services) = Objects::clone(&objects);
        if version(&job) < version(&self.known) {
            job = self.known.clone();
        }
        let mut cache = Cache {
            job,
            pods,
            services,
            asked: HashMap::new(),
        };
        (self.fault, self.sent) = (fault, 0);
        match self.looks(&mut cache, hasty) {
            Ok(()) | Err(Failure::Conflict) => {}
            Err(Failure::Died) => {
                self.trouble = None;
                self.known = self.job.clone();
            }
            Err(Failure::Unanswered) => {
                self.trouble = Some(trouble(Reason::Timeout));
                // The server is asked what stands before anything else.
                self.known = self.job.clone();
            }
            Err(Failure::Refused(reason)) => {
                self.trouble = Some(trouble(reason));
                self.tell(&mut cache);
            }
        }
        self.fault = None;
    }

    fn looks(&mut self, cache: &mut Cache, hasty: bool) -> Result<(), Failure> {
        for _ in 0..LOOKS {
            let step = self.look(cache);
            if !step.ask.is_empty() {
                self.ask(cache, step.ask);
                continue;
            }
            let old = cache.job.status.as_ref();
            let acts_first = !step.actions.is_empty() && stands(old, &step.status);
            if old != Some(&step.status) && !acts_first {
                if hasty && !is_urgent(old, &step) {
                    return Ok(());
                }
                self.write(cache, step.status)?;
                continue;
            }
            if step.actions.is_empty() && self.trouble.is_none() {
                return Ok(());
            }
            self.act(cache, step.actions)?;
            self.trouble = None;
            if self.deleted {
                return Ok(());
            }
        }
        Ok(())
    }

    fn look(&self, cache: &Cache) -> Step {
        step(
            &Observed {
                job: &cache.job,
                pods: &cache.pods.values().cloned().collect::<Vec<_>>(),
                services: &cache.services.values().cloned().collect::<Vec<_>>(),
                nodes: Some(&self.nodes),
                aggregator: &self.aggregator,
                trouble: self.trouble.as_ref(),
                asked: &cache.asked,
                now: self.now,
            },
            &mut RandomSuffixes,
        )
    }

    fn ask(&self, cache: &mut Cache, names: Vec<String>) {
        for name in names {
            let pod = self.objects.0.get(&name);
            if let Some(pod) = pod {
                cache.pods.insert(name.clone(), pod.clone());
            }
            cache.asked.insert(name, pod.is_some());
        }
    }

    /// Tells of what went wrong.
    fn tell(&mut self, cache: &mut Cache) {
        cache.asked.clear();
        let mut step = self.look(cache);
        if !step.ask.is_empty() {
            step = only_told(step, &cache.job);
        }
        if cache.job.status.as_ref() != Some(&step.status) {
            // Where that fails too, the next look tells.
            self.write(cache, step.status).ok();
        }
    }

    /// What becomes of the next write.
    fn fate(&mut self) -> Option<Fate> {
        let sent = self.sent;
        self.sent += 1;
        self.fault
            .filter(|(at, _)| *at == sent)
            .map(|(_, fate)| fate)
    }

    /// Guarded by the version that it was derived from.
    fn write(&mut self, cache: &mut Cache, status: DIJobStatus) -> Result<(), Failure> {
        let fate = self.fate();
        match fate {
            Some(Fate::Dies) => return Err(Failure::Died),
            Some(Fate::Refused) => return Err(Failure::Refused(Reason::ApiError)),
            Some(Fate::Unanswered) | None => {}
        }
        self.writes += 1;
        if version(&cache.job) != version(&self.job) {
            return Err(Failure::Conflict);
        }
        self.check(&status);
        self.job.status = Some(status);
        self.job_written();
        if fate.is_some() {
            return Err(Failure::Unanswered);
        }
        self.known = self.job.clone();
        cache.job = self.job.clone();
        Ok(())
    }

    fn job_written(&mut self) {
        self.job.metadata.resource_version = Some((version(&self.job) + 1).to_string());
    }

    /// What holds of every status that is written.
    fn check(&mut self, new: &DIJobStatus) {
        let held = self.job.spec.suspend;
        if let Some(old) = &self.job.status {
            if old.phase.is_some_and(Phase::is_terminal) {
                assert_eq!(old.phase, new.phase, "it ended, and goes on");
            }
            for entry in new.plan.iter().filter(|entry| entry.uid.is_none()) {
                let before = find(&old.plan, &entry.name).and_then(|entry| entry.uid.as_ref());
                assert!(
                    held || before.is_none(),
                    "{} is to be made twice",
                    entry.name
                );
            }
        }
        let failed = i32::try_from(self.failures.len()).unwrap();
        let most = failed.min(self.job.spec.backoff_limit);
        assert!(
            new.restarts <= most,
            "{} of {failed} failures",
            new.restarts
        );
        check_units(new);
        for entry in &new.plan {
            if entry.uid.is_some() {
                self.told.insert(entry.name.clone());
            } else {
                self.told.remove(&entry.name);
            }
        }
    }

    /// All are tried, and the first failure is told of.
    fn act(&mut self, cache: &mut Cache, actions: Vec<Action>) -> Result<(), Failure> {
        let mut first = None;
        for action in actions {
            let fate = self.fate();
            let result = match fate {
                Some(Fate::Dies) => return Err(Failure::Died),
                Some(Fate::Refused) => Err(Reason::ApiError),
                Some(Fate::Unanswered) => {
                    let mut nobodys = cache.clone();
                    self.carry_out(&mut nobodys, action)
                        .and(Err(Reason::Timeout))
                }
                None => self.carry_out(cache, action),
            };
            first = first.or(result.err());
        }
        first.map_or(Ok(()), |reason| Err(Failure::Refused(reason)))
    }

    fn carry_out(&mut self, cache: &mut Cache, action: Action) -> Result<(), Reason> {
        self.writes += 1;
        let (pods, services) = Rc::make_mut(&mut self.objects);
        match action {
            Action::CreatePod(entry) => {
                let pod = self.create(&cache.job, &entry)?;
                cache.pods.insert(entry.name, pod);
            }
            Action::CreateService(entry) => {
                let service = ServiceView::new(&di_plan::service(&cache.job, &entry)).unwrap();
                services.insert(entry.name.clone(), service.clone());
                cache.services.insert(entry.name, service);
            }
            Action::DeletePod { name, uid } => {
                for pods in [pods, &mut cache.pods] {
                    if let Some(pod) = pods.get_mut(&name).filter(|pod| pod.uid == uid) {
                        pod.deleting = true;
                    }
                }
            }
            Action::EndPod { name, uid } => {
                for pods in [pods, &mut cache.pods] {
                    if let Some(pod) = pods.get_mut(&name).filter(|pod| pod.uid == uid) {
                        pod.told_to_end = true;
                    }
                }
            }
            Action::DeleteService { name, .. } => {
                services.remove(&name);
                cache.services.remove(&name);
            }
            Action::DeleteJob => {
                let status = self.status();
                let ended = status.completion_time.as_ref().unwrap().0;
                let kept = self.now.duration_since(ended).as_secs();
                let ttl = self.job.spec.ttl_seconds_after_finished.unwrap();
                assert!(status.phase.unwrap().is_terminal() && kept >= i64::from(ttl));
                self.deleted = true;
            }
        }
        Ok(())
    }

    fn create(&mut self, job: &DIJob, entry: &PlanEntry) -> Result<PodView, Reason> {
        if let Some(there) = self.objects.0.get(&entry.name) {
            let ours = there.belongs_to(job.metadata.uid.as_deref().unwrap());
            return ours.then(|| there.clone()).ok_or(Reason::NameTaken);
        }
        if self.quota {
            return Err(Reason::QuotaExceeded);
        }
        assert!(
            !self.told.contains(&entry.name),
            "{} made twice",
            entry.name
        );
        self.serial += 1;
        let pod = made(job, entry, &self.aggregator, self.serial);
        self.objects_mut().0.insert(entry.name.clone(), pod.clone());
        Ok(pod)
    }

    fn nth_pod(&mut self, n: usize) -> Option<&mut PodView> {
        self.objects_mut().0.values_mut().nth(n)
    }

    fn running(&mut self, n: usize) -> Option<&mut PodView> {
        self.nth_pod(n).filter(|pod| pod.phase == PodPhase::Running)
    }

    pub fn happens(&mut self, happening: &Happening) {
        self.past
            .push_front((self.job.clone(), self.objects.clone()));
        self.past.truncate(LONGEST_LAG);
        let now = self.now;
        match happening {
            Happening::Reconcile { lag, hasty, fault } => self.reconcile(*lag, *hasty, *fault),
            Happening::Start(n) => {
                if let Some(pod) = self.nth_pod(*n).filter(|pod| pod.end.is_none()) {
                    start(pod, now);
                }
            }
            Happening::Exit(n, code) => {
                let others = |pod: &&mut PodView| pod.role != Some(Role::Coordinator);
                if let Some(pod) = self.running(*n).filter(others) {
                    exit(pod, *code, "x", now);
                }
            }
            Happening::End(code) => self.end(*code),
            Happening::Evict(n) => {
                if let Some(pod) = self.nth_pod(*n).filter(|pod| pod.end.is_none()) {
                    evict(pod, now);
                }
            }
            Happening::Silent(n) => {
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
                if let Some(name) = self.objects.1.keys().nth(*n).cloned() {
                    self.objects_mut().1.remove(&name);
                }
            }
            Happening::Gone => self.objects_mut().0.retain(|_, pod| !pod.deleting),
            Happening::Usurp(n) => self.usurp(*n),
            Happening::Clear => self.clear(),
            Happening::Quota(full) => self.quota = *full,
            Happening::Nodes(gpus) => self.nodes = gpus.iter().map(|gpus| node(*gpus)).collect(),
            Happening::Configured(there) => {
                self.aggregator = if *there {
                    aggregator()
                } else {
                    AggregatorTemplate::Missing
                };
            }
            Happening::Wait(seconds) => self.now += SignedDuration::from_secs(*seconds),
            of_the_job => {
                self.change(of_the_job);
                self.job_written();
            }
        }
    }

    /// What others write of the job itself.
    fn change(&mut self, happening: &Happening) {
        let spec = &mut self.job.spec;
        match happening {
            Happening::Declare(n) => spec.collector.as_mut().unwrap().replicas = *n,
            Happening::DeclareUnits(n) => spec.learner.as_mut().unwrap().groups[0].replicas = *n,
            Happening::Suspend(hold) => spec.suspend = *hold,
            Happening::Restart => {
                let uid = self.objects.0.get(COORDINATOR).map(|pod| pod.uid.clone());
                let wish = uid.map(|uid| (names::RESTART_ANNOTATION.to_owned(), uid));
                self.job.metadata.annotations = wish.map(|wish| [wish].into());
            }
            Happening::Report(n) => self.report(*n),
            Happening::LoseStatus => {
                self.job.status = None;
                self.lost_status = true;
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn end(&mut self, code: i32) {
        let now = self.now;
        let coordinator = Rc::make_mut(&mut self.objects).0.get_mut(COORDINATOR);
        if let Some(pod) = coordinator.filter(|pod| pod.phase == PodPhase::Running) {
            exit(pod, code, "x", now);
            if code != 0 && !pod.deleting {
                self.failures.insert(pod.uid.clone());
            }
        }
    }

    /// Somebody else's pod has a name that is to be ours, or was.
    fn usurp(&mut self, n: usize) {
        let plan = self.job.status.iter().flat_map(|status| &status.plan);
        let planned = plan.map(|entry| entry.name.as_str());
        let mut free = std::iter::once(COORDINATOR)
            .chain(planned)
            .filter(|name| !self.objects.0.contains_key(*name));
        if let Some(name) = free.nth(n).map(str::to_owned) {
            self.serial += 1;
            let entry = PlanEntry::new(name, Role::Coordinator, di_api::Origin::Declared, 0);
            let mut pod = made(&self.job, &entry, &self.aggregator, self.serial);
            pod.owner = None;
            self.objects_mut().0.insert(entry.name, pod);
        }
    }

    fn clear(&mut self) {
        self.objects_mut().0.retain(|_, pod| pod.owner.is_some());
    }

    /// As the endpoint does it, which writes the plan and nothing else.
    fn report(&mut self, n: usize) {
        let job = self.job.clone();
        let Some(status) = self.job.status.as_mut() else {
            return;
        };
        if let Some(name) = status.plan.get(n).map(|entry| entry.name.clone()) {
            let plan = &mut status.plan;
            replace(&job, plan, &name, None, &mut RandomSuffixes, self.now);
            check_units(status);
        }
    }

    /// No more faults: caches are up to date, pods run, those told to go go, and nobody else does anything.
    pub fn rest(&mut self) {
        self.aggregator = aggregator();
        self.quota = false;
        self.clear();
        for _ in 0..ROUNDS {
            self.now += ROUND;
            let writes = self.writes;
            self.reconcile(0, false, None);
            if !self.kubelet() && writes == self.writes {
                return;
            }
        }
        panic!("no rest within {ROUNDS} rounds: {:#?}", self.job.status);
    }

    /// Whether there was something to do.
    fn kubelet(&mut self) -> bool {
        let now = self.now;
        let pods = &mut Rc::make_mut(&mut self.objects).0;
        let before = pods.len();
        pods.retain(|_, pod| !pod.deleting);
        let waits = |pod: &&mut PodView| pod.end.is_none() && pod.phase != PodPhase::Running;
        let started = pods.values_mut().filter(waits).map(|pod| start(pod, now));
        started.count() > 0 || pods.len() < before
    }
}

fn version(job: &DIJob) -> u32 {
    job.metadata
        .resource_version
        .as_ref()
        .unwrap()
        .parse()
        .unwrap()
}

fn trouble(reason: Reason) -> Trouble {
    Trouble {
        reason,
        message: "it was refused".to_owned(),
    }
}

fn evict(pod: &mut PodView, now: Timestamp) {
    pod.phase = PodPhase::Failed;
    pod.ready = false;
    pod.disrupted = true;
    pod.end = Some(Box::new(End {
        exit_code: None,
        reason: "Evicted".to_owned(),
        at: Some(now),
    }));
}

/// A unit is never half replaced or half let go of: a ddp learner is wanted while its aggregator is, and then all of them are there.
fn check_units(status: &DIJobStatus) {
    let plan = &status.plan;
    let aggregators = plan.iter().filter(|e| e.role == Role::Aggregator);
    for unit in aggregators.filter(|e| e.is_wanted()) {
        let bare = members(plan, &unit.name).next().is_none();
        assert!(bare || is_whole(plan, &unit.name), "{plan:#?}");
    }
    for member in plan.iter().filter(|e| e.role == Role::DdpLearner) {
        let leader = aggregator_of(member).and_then(|name| find(plan, name));
        let leader = leader.map_or(EntryState::Removing, |leader| leader.state);
        let follows = member.state == leader
            || member.state == EntryState::Removing && leader != EntryState::Wanted;
        assert!(follows, "{member:?} {leader:?}");
    }
}
