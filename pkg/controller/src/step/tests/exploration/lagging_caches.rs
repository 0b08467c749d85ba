//! Lagging caches: each shows the API server as it was some happenings ago.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    rc::Rc,
};

use di_api::DIJob;
use di_plan::{PodView, ServiceView};

use crate::step::{ObservedGang, ObservedQueue};

/// Maximum number of happenings that a cache lags.
pub(super) const MAX_LAG: usize = 4;

/// Number of happenings that each cache lags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lag {
    pub job: usize,
    pub pods: usize,
    pub services: usize,
    pub workloads: usize,
    pub groups: usize,
}

/// Objects of the API server.
#[derive(Clone)]
pub(super) struct Stored {
    pub job: DIJob,
    pub pods: Rc<BTreeMap<String, PodView>>,
    pub services: Rc<BTreeMap<String, ServiceView>>,
    /// Workloads, and whether their API is served.
    pub queue: Rc<ObservedQueue>,
    /// Groups, and whether their API is served.
    pub gang: Rc<ObservedGang>,
}

/// Objects that a process knows.
#[derive(Clone)]
pub(super) struct Cache {
    pub job: DIJob,
    pub pods: BTreeMap<String, PodView>,
    pub services: BTreeMap<String, ServiceView>,
    pub queue: ObservedQueue,
    pub gang: ObservedGang,
    pub live_reads: HashMap<String, bool>,
}

/// Former objects of the API server, the newest first.
#[derive(Default)]
pub(super) struct History {
    states: VecDeque<Stored>,
    pods: Horizon,
    workloads: Horizon,
    groups: Horizon,
}

/// Number of the newest states that a cache may show: none is older than what the process knows.
#[derive(Default)]
struct Horizon(usize);

impl Horizon {
    /// Returns a lag that the cache may have.
    fn limit(&self, lag: usize) -> usize {
        lag.min(self.0.saturating_sub(1))
    }

    /// Like [`limit`](Self::limit), for a cache that never goes back, as a watch.
    fn advance(&mut self, lag: usize) -> usize {
        let lag = self.limit(lag);
        self.0 = self.0.min(lag + 1);
        lag
    }
}

impl History {
    pub fn record(&mut self, stored: Stored) {
        self.states.push_front(stored);
        self.states.truncate(MAX_LAG);
        for horizon in [&mut self.pods, &mut self.workloads, &mut self.groups] {
            horizon.0 += 1;
        }
    }

    /// From now on the process knows its own pods.
    pub fn know_pods(&mut self) {
        self.pods.0 = 0;
    }

    /// From now on the process knows its own writes of Workloads and groups.
    pub fn know_workloads_and_groups(&mut self) {
        (self.workloads.0, self.groups.0) = (0, 0);
    }

    /// Returns caches that lag behind `now`.
    pub fn lagging_caches(&mut self, lag: Lag, now: &Stored) -> Cache {
        let pods = self.pods.limit(lag.pods);
        let workloads = self.workloads.advance(lag.workloads);
        let groups = self.groups.advance(lag.groups);
        let back = |lag| self.states.get(lag).filter(|_| lag > 0);
        let at = |lag| back(lag).unwrap_or(now);
        Cache {
            job: at(lag.job).job.clone(),
            pods: BTreeMap::clone(&at(pods).pods),
            services: BTreeMap::clone(&at(lag.services).services),
            queue: ObservedQueue::clone(&at(workloads).queue),
            gang: ObservedGang::clone(&at(groups).gang),
            live_reads: HashMap::new(),
        }
    }
}
