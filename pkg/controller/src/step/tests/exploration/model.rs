//! Model of an API server, and of a manager with lagging caches that may be killed.

mod api_server;
mod events;
mod queue;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    rc::Rc,
};

use di_api::{DIJob, DIJobStatus, Reason, Role};
use di_plan::{AggregatorTemplate, NodeView, PodView, RandomSuffixes, ServiceView};
use jiff::Timestamp;

use self::queue::{ask_for_gang, set_queue};
use super::{
    Happening, Limits, WriteFault,
    lagging_caches::{Cache, History, Lag, Stored},
    queue_checks::check_group,
    status_checks::{check_listed_units, check_membership, check_status},
};
use crate::{
    error_report::conditions_only,
    status_change::StatusChange,
    step::{
        Observed, ObservedGang, ObservedQueue, ReconcileError, Step, step,
        tests::{
            fake_cluster::{self, World, node},
            fake_kueue::FakeKueue,
        },
    },
};

/// Maximum number of reconciles that follow each other with the same lag of the caches.
const MAX_RECONCILES: usize = 6;

/// Failure of a reconcile.
enum Failure {
    Killed,
    Conflict,
    Rejected(Reason),
    /// The outcome of the status write is unknown.
    ResponseLost,
}

#[allow(clippy::struct_excessive_bools)] // facts that do not depend on each other
pub(super) struct Model {
    pub job: DIJob,
    pub deleted: bool,
    /// True once the status was lost.
    pub lost_status: bool,
    pub writes: u32,
    pods: Rc<BTreeMap<String, PodView>>,
    services: Rc<BTreeMap<String, ServiceView>>,
    /// Whether users may add the label of a queue.
    may_be_queued: bool,
    kueue: FakeKueue,
    /// The Workloads of `kueue`, as the watch shows them.
    queue: Rc<ObservedQueue>,
    gang: Rc<ObservedGang>,
    history: History,
    nodes: Vec<NodeView>,
    aggregator: AggregatorTemplate,
    quota: bool,
    now: Timestamp,
    serial: u32,
    /// The newest job that the process has written or listed.
    known: DIJob,
    last_error: Option<ReconcileError>,
    /// Index and kind of the faulty write of this reconcile, and the number of writes so far.
    fault: Option<(usize, WriteFault)>,
    sent: usize,
    /// A happening before one of the writes.
    preceded: Option<(usize, Box<Happening>)>,
    /// Replicas with a UID in the status: their names are not used again, unless the job is
    /// suspended.
    recorded: HashSet<String>,
    /// Coordinator pods that failed without a deletion.
    failures: HashSet<String>,
    /// Number of replicas of each role that the coordinator has requested and not removed.
    pub requested: HashMap<Role, i32>,
}

impl Model {
    pub fn new(limits: &Limits) -> Self {
        let mut world = World::new(fake_cluster::job());
        if limits.queued {
            world.serve_kueue();
            set_queue(&mut world.job, true);
        }
        if let Some(min_collectors) = limits.gang {
            world.serve_gangs();
            ask_for_gang(&mut world.job, min_collectors);
        }
        let World {
            mut job,
            aggregator,
            now,
            kueue,
            queue,
            gang,
            ..
        } = world;
        job.metadata.resource_version = Some("1".to_owned());
        job.spec.backoff_limit = limits.backoff;
        job.spec.active_deadline_seconds = limits.deadline;
        job.spec.ttl_seconds_after_finished = limits.ttl;
        job.spec.clean_pod_policy = limits.policy;
        let group = serde_json::json!([{"name": "big", "replicas": 1, "resources": {"gpus": "6"}}]);
        job.spec.learner.as_mut().unwrap().groups = serde_json::from_value(group).unwrap();
        job.spec
            .collector
            .as_mut()
            .unwrap()
            .unit
            .clone_from(&limits.unit);
        Self {
            known: job.clone(),
            job,
            deleted: false,
            lost_status: false,
            writes: 0,
            pods: Rc::default(),
            services: Rc::default(),
            may_be_queued: limits.queued,
            kueue,
            queue: queue.into(),
            gang: gang.into(),
            history: History::default(),
            nodes: vec![node(4), node(4), node(1)],
            aggregator,
            quota: false,
            now,
            serial: 0,
            last_error: None,
            fault: None,
            sent: 0,
            preceded: None,
            recorded: HashSet::new(),
            failures: HashSet::new(),
            requested: HashMap::new(),
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

    /// Pods that the job owns.
    pub fn own_pods(&self) -> impl Iterator<Item = &PodView> {
        let own = |pod: &&PodView| pod.belongs_to(self.uid());
        self.pods.values().filter(own)
    }

    fn stored(&self) -> Stored {
        Stored {
            job: self.job.clone(),
            pods: self.pods.clone(),
            services: self.services.clone(),
            queue: self.queue.clone(),
            gang: self.gang.clone(),
        }
    }

    /// Reconciles as `reconcile.rs` does.
    pub fn reconcile(&mut self, lag: Lag, hasty: bool, fault: Option<(usize, WriteFault)>) {
        if self.deleted {
            return;
        }
        let stored = self.stored();
        let mut cache = self.history.lagging_caches(lag, &stored);
        if version(&cache.job) < version(&self.known) {
            cache.job = self.known.clone();
        }
        if cache.job.metadata.uid != self.known.metadata.uid {
            // The state of a previous job is reset.
            self.last_error = None;
        }
        self.known = cache.job.clone();
        let undisturbed = fault.is_none() && self.preceded.is_none();
        let is_current = lag == Lag::default() && !hasty && undisturbed;
        (self.fault, self.sent) = (fault, 0);
        match self.reconcile_until_settled(&mut cache, hasty) {
            Ok(is_settled) => {
                if is_settled && is_current && !self.deleted && !self.is_terminating() {
                    check_status(self);
                    check_group(self);
                }
            }
            Err(Failure::Conflict) => {}
            Err(Failure::Killed) => {
                self.last_error = None;
                self.known = self.job.clone();
            }
            Err(Failure::ResponseLost) => {
                self.last_error = Some(error(Reason::Timeout));
                // The next reconcile reads the job first.
                self.known = self.job.clone();
            }
            Err(Failure::Rejected(reason)) => {
                self.last_error = Some(error(reason));
                self.report_error(&mut cache);
            }
        }
        (self.fault, self.preceded) = (None, None);
    }

    /// Reconciles until nothing changes. Returns true if nothing was left to do.
    fn reconcile_until_settled(&mut self, cache: &mut Cache, hasty: bool) -> Result<bool, Failure> {
        for _ in 0..MAX_RECONCILES {
            cache.live_reads.clear();
            let mut step = self.compute_step(cache);
            while !step.needs_live_read.is_empty() {
                self.read_live(cache, step.needs_live_read);
                step = self.compute_step(cache);
            }
            match StatusChange::between(cache.job.status.as_ref(), &step) {
                StatusChange::None if step.actions.is_empty() && self.last_error.is_none() => {
                    return Ok(true);
                }
                StatusChange::None | StatusChange::CountsOnly => {}
                StatusChange::Minor if hasty => return Ok(false),
                _ => self.write(cache, step.status)?,
            }
            self.apply(cache, step.actions)?;
            self.last_error = None;
            if self.deleted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn compute_step(&self, cache: &Cache) -> Step {
        let step = step(
            &Observed {
                job: cache.job.clone().into(),
                pods: cache.pods.values().cloned().collect(),
                services: cache.services.values().cloned().collect(),
                nodes: Some(self.nodes.as_slice().into()),
                aggregator: self.aggregator.clone(),
                queue: cache.queue.clone(),
                gang: cache.gang.clone(),
                last_error: self.last_error.clone(),
                final_coordinator_state: None,
                unlabeled_pods: HashMap::new(),
                waiting_since: HashMap::new(),
                live_reads: cache.live_reads.clone(),
                now: self.now,
            },
            &mut RandomSuffixes,
        );
        check_membership(&cache.job, &step.status);
        check_listed_units(&cache.job, &step.status, &cache.pods);
        step
    }

    fn read_live(&self, cache: &mut Cache, names: Vec<String>) {
        for name in names {
            let pod = self.pods.get(&name);
            if let Some(pod) = pod {
                cache.pods.insert(name.clone(), pod.clone());
            }
            cache.live_reads.insert(name, pod.is_some());
        }
    }

    /// Reports an error in the status.
    fn report_error(&mut self, cache: &mut Cache) {
        cache.live_reads.clear();
        let mut step = self.compute_step(cache);
        if !step.needs_live_read.is_empty() {
            step = conditions_only(step, &cache.job);
        }
        let change = StatusChange::between(cache.job.status.as_ref(), &step);
        if change != StatusChange::None {
            // If this fails too, the next reconcile reports the error.
            self.write(cache, step.status).ok();
        }
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

fn error(reason: Reason) -> ReconcileError {
    ReconcileError {
        reason,
        message: "it was rejected".to_owned(),
        deferred_create: None,
    }
}
