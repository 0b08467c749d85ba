//! A server, and a manager whose caches may be behind and that may die.

mod others;
mod server;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    rc::Rc,
};

use di_api::{DIJob, DIJobStatus, Reason, Role};
use di_plan::{AggregatorTemplate, NodeView, PodView, RandomSuffixes, ServiceView};
use jiff::Timestamp;

use super::{
    Fate, Happening, Limits,
    past::{Cache, Lag, Past, Stored},
    truth::check_told,
};
use crate::{
    reconcile::only_told,
    status::{is_urgent, is_written, stands},
    step::{
        Observed, Step, Trouble, step,
        tests::world::{JOB, World, node},
    },
};

/// Looks of one reconcile, as in the driver.
const LOOKS: usize = 6;

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
    /// What happens before one of them.
    overtaken: Option<(usize, Box<Happening>)>,
    /// Replicas whose pod the status has told of: their names are used up, unless the job is held.
    told: HashSet<String>,
    /// Coordinators that failed by themselves.
    failures: HashSet<String>,
    /// How many replicas of a role the coordinator has asked for and not given back.
    pub asked: HashMap<Role, i32>,
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
            overtaken: None,
            told: HashSet::new(),
            failures: HashSet::new(),
            asked: HashMap::new(),
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
        let undisturbed = fault.is_none() && self.overtaken.is_none();
        let sees_all = lag == Lag::default() && !hasty && undisturbed;
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
        (self.fault, self.overtaken) = (None, None);
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
                gone: None,
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
        about: None,
    }
}
