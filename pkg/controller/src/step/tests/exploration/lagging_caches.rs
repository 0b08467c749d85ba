//! Lagging caches: each shows the API server as it was some happenings ago.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    rc::Rc,
};

use di_api::DIJob;
use di_plan::{PodView, ServiceView};

/// Maximum number of happenings that a cache lags.
pub(super) const MAX_LAG: usize = 4;

/// Number of happenings that each cache lags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lag {
    pub job: usize,
    pub pods: usize,
    pub services: usize,
}

/// Objects of the API server.
#[derive(Clone)]
pub(super) struct Stored {
    pub job: DIJob,
    pub pods: Rc<BTreeMap<String, PodView>>,
    pub services: Rc<BTreeMap<String, ServiceView>>,
}

/// Objects that a process knows.
#[derive(Clone)]
pub(super) struct Cache {
    pub job: DIJob,
    pub pods: BTreeMap<String, PodView>,
    pub services: BTreeMap<String, ServiceView>,
    pub live_reads: HashMap<String, bool>,
}

/// Former objects of the API server, the newest first.
#[derive(Default)]
pub(super) struct History(VecDeque<Stored>);

impl History {
    pub fn record(&mut self, stored: Stored) {
        self.0.push_front(stored);
        self.0.truncate(MAX_LAG);
    }

    /// Returns caches that lag behind `now`.
    pub fn lagging_caches(&self, lag: Lag, now: &Stored) -> Cache {
        let back = |lag| self.0.get(lag).filter(|_| lag > 0);
        let at = |lag| back(lag).unwrap_or(now).clone();
        Cache {
            job: at(lag.job).job,
            pods: BTreeMap::clone(&at(lag.pods).pods),
            services: BTreeMap::clone(&at(lag.services).services),
            live_reads: HashMap::new(),
        }
    }
}
