//! A server with caches that may be behind, a manager that may die, users, nodes, and somebody else.

use std::{
    collections::{BTreeMap, HashSet},
    rc::Rc,
};

use di_api::{DIJob, DIJobStatus, EntryState, Origin, Phase, PlanEntry, Reason, Role, names};
use di_plan::{
    AggregatorTemplate, End, NodeView, PodPhase, PodView, RandomSuffixes, ServiceView,
    aggregator_of, find, is_whole, members, replace,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Fate, Happening, Limits,
    past::{Cache, Lag, Past, Stored},
    truth::check_told,
};
use crate::{
    reconcile::only_told,
    status::{is_urgent, is_written, stands},
    step::{
        Action, Observed, Step, Trouble, has_ended, step,
        tests::world::{COORDINATOR, JOB, World, aggregator, exit, made, node, start},
    },
};

/// Looks of one reconcile, as in the driver.
const LOOKS: usize = 6;
/// So often pods and plan answer each other, at most, until nothing is left to do.
const ROUNDS: usize = 8;
/// Longer than any replacement waits.
const ROUND: SignedDuration = SignedDuration::from_secs(600);

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
    pods: Rc<BTreeMap<String, PodView>>,
    services: Rc<BTreeMap<String, ServiceView>>,
    past: Past,
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
            pods: Rc::default(),
            services: Rc::default(),
            past: Past::default(),
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
        (&self.pods, &self.services)
    }

    fn uid(&self) -> &str {
        self.job.metadata.uid.as_deref().unwrap()
    }

    /// Pods of this very job.
    pub fn own_pods(&self) -> impl Iterator<Item = &PodView> {
        let own = |pod: &&PodView| pod.belongs_to(self.uid());
        self.pods.values().filter(own)
    }

    fn stored(&self) -> Stored {
        Stored {
            job: self.job.clone(),
            pods: self.pods.clone(),
            services: self.services.clone(),
        }
    }

    /// As the driver does it.
    pub fn reconcile(&mut self, lag: Lag, hasty: bool, fault: Option<(usize, Fate)>) {
        if self.deleted {
            return;
        }
        let mut cache = self.past.seen(lag, &self.stored());
        if version(&cache.job) < version(&self.known) {
            cache.job = self.known.clone();
        }
        if cache.job.metadata.uid != self.known.metadata.uid {
            // What befell another of its name is forgotten.
            self.trouble = None;
        }
        self.known = cache.job.clone();
        let sees_all = lag == Lag::default() && !hasty && fault.is_none();
        (self.fault, self.sent) = (fault, 0);
        match self.looks(&mut cache, hasty) {
            Ok(rests) => {
                if rests && sees_all && !self.deleted && !self.goes() {
                    check_told(self);
                }
            }
            Err(Failure::Conflict) => {}
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

    /// Whether nothing was left to do.
    fn looks(&mut self, cache: &mut Cache, hasty: bool) -> Result<bool, Failure> {
        for _ in 0..LOOKS {
            let step = self.look(cache);
            if !step.ask.is_empty() {
                self.ask(cache, step.ask);
                continue;
            }
            let old = cache.job.status.as_ref();
            let acts_first = !step.actions.is_empty() && stands(old, &step.status);
            if !is_written(old, &step.status) && !acts_first {
                if hasty && !is_urgent(old, &step) {
                    return Ok(false);
                }
                self.write(cache, step.status)?;
                continue;
            }
            if step.actions.is_empty() && self.trouble.is_none() {
                return Ok(true);
            }
            self.act(cache, step.actions)?;
            self.trouble = None;
            if self.deleted {
                return Ok(true);
            }
        }
        Ok(false)
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
            let pod = self.pods.get(&name);
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
        if !is_written(cache.job.status.as_ref(), &step.status) {
            // Where that fails too, the next look tells.
            self.write(cache, step.status).ok();
        }
    }

    /// What becomes of the next write.
    fn fate(&mut self) -> Option<Fate> {
        let sent = self.sent;
        self.sent += 1;
        let (_, fate) = self.fault.take_if(|(at, _)| *at == sent)?;
        if let Fate::Overtaken(happening) = fate {
            self.happens(&happening);
            return None;
        }
        Some(fate)
    }

    /// Guarded by the version that it was derived from.
    fn write(&mut self, cache: &mut Cache, status: DIJobStatus) -> Result<(), Failure> {
        let fate = self.fate();
        match fate {
            Some(Fate::Dies) => return Err(Failure::Died),
            Some(Fate::Refused) => return Err(Failure::Refused(Reason::ApiError)),
            Some(Fate::Unanswered | Fate::Overtaken(_)) | None => {}
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
                Some(Fate::Overtaken(_)) | None => self.carry_out(cache, action),
            };
            first = first.or(result.err());
        }
        first.map_or(Ok(()), |reason| Err(Failure::Refused(reason)))
    }

    fn carry_out(&mut self, cache: &mut Cache, action: Action) -> Result<(), Reason> {
        self.writes += 1;
        let job = cache.job.metadata.uid.clone();
        match action {
            Action::CreatePod(entry) => {
                if let Some(pod) = self.create(&cache.job, &entry)? {
                    cache.pods.insert(entry.name, pod);
                }
            }
            Action::CreateService(entry) => {
                let service = self.create_service(&cache.job, &entry)?;
                cache.services.insert(entry.name, service);
            }
            Action::DeletePod { name, uid } => {
                for pods in [Rc::make_mut(&mut self.pods), &mut cache.pods] {
                    if let Some(pod) = pods.get_mut(&name).filter(|pod| pod.uid == uid) {
                        assert_eq!(pod.owner, job, "{name} is deleted");
                        pod.deleting = true;
                    }
                }
            }
            Action::EndPod { name, uid } => {
                for pods in [Rc::make_mut(&mut self.pods), &mut cache.pods] {
                    if let Some(pod) = pods.get_mut(&name).filter(|pod| pod.uid == uid) {
                        assert_eq!(pod.owner, job, "{name} is ended");
                        pod.told_to_end = true;
                    }
                }
            }
            Action::DeleteService { name, uid } => {
                let hit = |service: &ServiceView| service.uid == uid;
                if self.services.get(&name).is_some_and(hit) {
                    assert!(!self.is_heard(&cache.job, &name), "{name} is not heard");
                }
                for services in [Rc::make_mut(&mut self.services), &mut cache.services] {
                    if let Some(service) = services.get(&name).filter(|s| s.uid == uid) {
                        assert_eq!(service.owner, job, "service {name} is deleted");
                        services.remove(&name);
                    }
                }
            }
            Action::DeleteJob if job == self.job.metadata.uid => {
                // It ended so, even if that was lost since.
                let status = cache.job.status.as_ref().unwrap();
                let ended = status.completion_time.as_ref().unwrap().0;
                let kept = self.now.duration_since(ended).as_secs();
                let ttl = cache.job.spec.ttl_seconds_after_finished.unwrap();
                assert!(status.phase.unwrap().is_terminal() && kept >= i64::from(ttl));
                self.deleted = true;
            }
            Action::DeleteJob => {}
        }
        Ok(())
    }

    /// Whoever has a place in the job is to be heard, as long as nobody has seen it end or held.
    fn is_heard(&self, seen: &DIJob, name: &str) -> bool {
        let ended = seen.status.as_ref().is_some_and(has_ended);
        let same = seen.metadata.uid == self.job.metadata.uid;
        let mut plan = self.job.status.iter().flat_map(|status| &status.plan);
        let wanted = |entry: &PlanEntry| entry.name == name && entry.is_wanted();
        same && !ended && !seen.spec.suspend && (name == COORDINATOR || plan.any(wanted))
    }

    fn create(&mut self, job: &DIJob, entry: &PlanEntry) -> Result<Option<PodView>, Reason> {
        if entry.role == Role::Aggregator && self.aggregator.found().is_none() {
            // The next look will tell.
            return Ok(None);
        }
        if let Some(there) = self.pods.get(&entry.name) {
            let ours = there.owner == job.metadata.uid;
            return ours.then(|| Some(there.clone())).ok_or(Reason::NameTaken);
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
        Rc::make_mut(&mut self.pods).insert(entry.name.clone(), pod.clone());
        Ok(Some(pod))
    }

    fn create_service(&mut self, job: &DIJob, entry: &PlanEntry) -> Result<ServiceView, Reason> {
        if let Some(there) = self.services.get(&entry.name) {
            let ours = there.owner == job.metadata.uid;
            return ours.then(|| there.clone()).ok_or(Reason::NameTaken);
        }
        self.serial += 1;
        let service = listening(job, entry, self.serial);
        let services = Rc::make_mut(&mut self.services);
        services.insert(entry.name.clone(), service.clone());
        Ok(service)
    }

    fn nth_pod(&mut self, n: usize) -> Option<&mut PodView> {
        Rc::make_mut(&mut self.pods).values_mut().nth(n)
    }

    fn running(&mut self, n: usize) -> Option<&mut PodView> {
        self.nth_pod(n).filter(|pod| pod.phase == PodPhase::Running)
    }

    pub fn happens(&mut self, happening: &Happening) {
        self.past.keep(self.stored());
        let now = self.now;
        match happening {
            Happening::Reconcile { lag, hasty, fault } => {
                self.reconcile(*lag, *hasty, fault.clone());
            }
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
                if let Some(name) = self.services.keys().nth(*n).cloned() {
                    Rc::make_mut(&mut self.services).remove(&name);
                }
            }
            Happening::Gone => Rc::make_mut(&mut self.pods).retain(|_, pod| !pod.deleting),
            Happening::Usurp(n) => self.usurp(*n),
            Happening::UsurpService(n) => self.usurp_service(*n),
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
                let uid = self.pods.get(COORDINATOR).map(|pod| pod.uid.clone());
                let wish = uid.map(|uid| (names::RESTART_ANNOTATION.to_owned(), uid));
                self.job.metadata.annotations = wish.map(|wish| [wish].into());
            }
            Happening::Report(n) => self.report(*n),
            Happening::LoseStatus => {
                self.job.status = None;
                self.lost_status = true;
            }
            Happening::DeleteJob => self.job.metadata.deletion_timestamp = Some(Time(self.now)),
            Happening::MakeAgain => self.make_again(),
            other => unreachable!("{other:?}"),
        }
    }

    fn end(&mut self, code: i32) {
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

    /// What is to come, or was there before, has nothing to do with what the job is from now on.
    fn make_again(&mut self) {
        self.serial += 1;
        let metadata = &mut self.job.metadata;
        metadata.uid = Some(format!("job-{}", self.serial));
        (metadata.deletion_timestamp, metadata.annotations) = (None, None);
        self.job.status = None;
        self.lost_status = false;
        self.told.clear();
        self.failures.clear();
    }

    /// Whether the job is being deleted.
    fn goes(&self) -> bool {
        self.job.metadata.deletion_timestamp.is_some()
    }

    /// For somebody else, the nth of the names that are to be ours, or were, that is free.
    fn free(&mut self, n: usize, is_free: impl Fn(&Self, &str) -> bool) -> Option<PlanEntry> {
        let plan = self.job.status.iter().flat_map(|status| &status.plan);
        let names = std::iter::once(COORDINATOR).chain(plan.map(|entry| entry.name.as_str()));
        let name = names.filter(|name| is_free(self, name)).nth(n)?.to_owned();
        self.serial += 1;
        Some(PlanEntry::new(name, Role::Coordinator, Origin::Declared, 0))
    }

    fn usurp(&mut self, n: usize) {
        if let Some(entry) = self.free(n, |model, name| !model.pods.contains_key(name)) {
            let mut pod = made(&self.job, &entry, &self.aggregator, self.serial);
            pod.owner = None;
            Rc::make_mut(&mut self.pods).insert(entry.name, pod);
        }
    }

    fn usurp_service(&mut self, n: usize) {
        if let Some(entry) = self.free(n, |model, name| !model.services.contains_key(name)) {
            let mut service = listening(&self.job, &entry, self.serial);
            service.owner = None;
            Rc::make_mut(&mut self.services).insert(entry.name, service);
        }
    }

    fn clear(&mut self) {
        let job = self.job.metadata.uid.clone();
        Rc::make_mut(&mut self.pods).retain(|_, pod| pod.owner == job);
        Rc::make_mut(&mut self.services).retain(|_, service| service.owner == job);
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
            self.reconcile(Lag::default(), false, None);
            if self.goes() {
                assert_eq!(writes, self.writes, "it is being deleted");
                self.deleted = true;
            }
            if !self.kubelet() && writes == self.writes {
                return;
            }
        }
        panic!("no rest within {ROUNDS} rounds: {:#?}", self.job.status);
    }

    /// Whether there was something to do.
    fn kubelet(&mut self) -> bool {
        let now = self.now;
        let pods = Rc::make_mut(&mut self.pods);
        let before = pods.len();
        pods.retain(|_, pod| !pod.deleting);
        let waits = |pod: &&mut PodView| pod.end.is_none() && pod.phase != PodPhase::Running;
        let started = pods.values_mut().filter(waits).map(|pod| start(pod, now));
        started.count() > 0 || pods.len() < before
    }
}

/// The service of an entry, as it is seen once the server has taken it.
fn listening(job: &DIJob, entry: &PlanEntry, serial: u32) -> ServiceView {
    let mut service = ServiceView::new(&di_plan::service(job, entry)).unwrap();
    service.uid = format!("service-{serial}");
    service
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
