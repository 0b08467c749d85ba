//! What happens to a job: pods, users, nodes, somebody else, and in the end nothing any more.

use std::rc::Rc;

use di_api::{DIJobStatus, Origin, PlanEntry, ReplicaResources, Role, names};
use di_plan::{
    AggregatorTemplate, End, PodPhase, PodView, RandomSuffixes, Request, Stage, release, replace,
    request,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Model,
    server::{check_units, listening},
};
use crate::step::tests::{
    exploration::{Happening, past::Lag},
    world::{COORDINATOR, aggregator, exit, made, node, start},
};

/// So often pods and plan answer each other, at most, until nothing is left to do.
const ROUNDS: usize = 8;
/// Longer than any replacement waits.
const ROUND: SignedDuration = SignedDuration::from_secs(600);

impl Model {
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
            Happening::Reconcile {
                lag,
                hasty,
                fault,
                overtaken,
            } => {
                self.overtaken.clone_from(overtaken);
                self.reconcile(*lag, *hasty, *fault);
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
            Happening::Ask(role, n) => self.add(*role, *n),
            Happening::GiveBack(role, n) => self.give_back(*role, *n),
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
        self.asked.clear();
    }

    /// Whether the job is being deleted.
    pub(super) fn goes(&self) -> bool {
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

    /// Whether the endpoint changes its plan.
    fn is_live(&self) -> bool {
        let ended = self.job.status.as_ref().is_some_and(DIJobStatus::has_ended);
        !self.goes() && !ended && !self.job.spec.suspend
    }

    /// As the endpoint does it, which plans no aggregator whose port is not known.
    fn add(&mut self, role: Role, count: usize) {
        let port = self.aggregator.port();
        let of_units = role == Role::Aggregator;
        if !self.is_live() || of_units && port.is_none() {
            return;
        }
        let coordinator = self.own_pods().find(|pod| pod.name == COORDINATOR);
        let incarnation = coordinator.map(PodView::incarnation);
        let job = self.job.clone();
        let unit = &job.spec.learner.as_ref().unwrap().groups[0];
        let wish = Request {
            count,
            resources: if of_units {
                unit.resources.clone()
            } else {
                ReplicaResources::default()
            },
            incarnation,
            aggregator_port: port,
            ..Request::default()
        };
        let pods = self.pods.clone();
        let is_over = |name: &str| {
            let pod = pods.get(name);
            pod.is_some_and(|pod| pod.stage() == Stage::Succeeded)
        };
        let status = self.job.status.get_or_insert_default();
        let (plan, role) = (&mut status.plan, role.counted_as());
        request(
            &job,
            plan,
            role,
            &wish,
            is_over,
            &mut RandomSuffixes,
            self.now,
        );
        self.note_asked();
    }

    /// As the endpoint does it where no declared ones have to go.
    fn give_back(&mut self, role: Role, count: usize) {
        let pods: Vec<_> = self.pods.values().cloned().collect();
        if self.is_live()
            && let Some(status) = self.job.status.as_mut()
        {
            release(&mut status.plan, &pods, role, count);
            self.note_asked();
        }
    }

    /// What the coordinator has from now on, until it says otherwise.
    fn note_asked(&mut self) {
        let status = self.job.status.as_ref().unwrap();
        check_units(status);
        self.asked.clear();
        let asked = status.plan.iter().filter(|e| e.origin == Origin::Requested);
        for entry in asked.filter(|entry| entry.is_wanted()) {
            *self.asked.entry(entry.role).or_default() += 1;
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

fn evict(pod: &mut PodView, now: Timestamp) {
    pod.phase = PodPhase::Failed;
    pod.ready = false;
    pod.disrupted = true;
    pod.end = Some(Box::new(End {
        exit_code: None,
        reason: "Evicted".to_owned(),
        message: None,
        at: Some(now),
    }));
}
