//! What a process sees: each cache as the server was some happenings ago.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    rc::Rc,
};

use di_api::DIJob;
use di_plan::{PodView, ServiceView};

/// No cache is further behind than so many happenings.
pub(super) const LONGEST_LAG: usize = 4;

/// How many happenings each cache is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lag {
    pub job: usize,
    pub pods: usize,
    pub services: usize,
}

/// What the server has.
#[derive(Clone)]
pub(super) struct Stored {
    pub job: DIJob,
    pub pods: Rc<BTreeMap<String, PodView>>,
    pub services: Rc<BTreeMap<String, ServiceView>>,
}

/// What a process knows.
#[derive(Clone)]
pub(super) struct Cache {
    pub job: DIJob,
    pub pods: BTreeMap<String, PodView>,
    pub services: BTreeMap<String, ServiceView>,
    pub asked: HashMap<String, bool>,
}

/// What the server had, the newest first.
#[derive(Default)]
pub(super) struct Past(VecDeque<Stored>);

impl Past {
    pub fn keep(&mut self, stored: Stored) {
        self.0.push_front(stored);
        self.0.truncate(LONGEST_LAG);
    }

    /// What caches show that are so far behind `now`.
    pub fn seen(&self, lag: Lag, now: &Stored) -> Cache {
        let back = |lag| self.0.get(lag).filter(|_| lag > 0);
        let at = |lag| back(lag).unwrap_or(now).clone();
        Cache {
            job: at(lag.job).job,
            pods: BTreeMap::clone(&at(lag.pods).pods),
            services: BTreeMap::clone(&at(lag.services).services),
            asked: HashMap::new(),
        }
    }
}
