use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;

use crate::{
    Address, Error, Result,
    life::{Gate, Report, Status},
    panel::{Configs, Crew},
    wire::Role,
};

/// What the lowest rank that does not run is called in the stats.
const IDLE_RANK: &str = "idle_rank";

/// The ranks of an aggregator, in their order. Clones are of the same ones.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    gate: Gate,
    poll: Duration,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    all: Vec<Address>,
    /// None of them was missed since they were told of.
    sure: bool,
    /// Those that do not run though they should, and how they are; nothing where they do not answer.
    idle: BTreeMap<usize, Option<Status>>,
}

impl Ranks {
    /// Those that are to be as the gate is, and are looked at this often.
    pub(super) fn new(gate: Gate, poll: Duration) -> Self {
        Self {
            gate,
            poll,
            known: Arc::default(),
        }
    }

    /// All of them, once they are known.
    pub(super) fn all(&self) -> Vec<Address> {
        self.known().all.clone()
    }

    /// Rank 0, unless one of them was missed.
    pub(super) fn head(&self) -> Option<Address> {
        let known = self.known();
        known.all.first().filter(|_| known.sure).cloned()
    }

    /// Takes over who they are.
    pub(super) fn know(&self, all: Vec<Address>) {
        *self.known() = Known {
            all,
            sure: true,
            ..Known::default()
        };
    }

    /// One was missed: others may have taken their place.
    pub(super) fn doubt(&self) {
        self.known().sure = false;
    }

    /// Why no task can be done, where one of them is there and does not run.
    pub(super) fn idle(&self) -> Option<Error> {
        let known = self.known();
        let mut idle = known.idle.iter();
        idle.find_map(|(rank, status)| {
            Some(Error::RankIdle {
                rank: *rank,
                url: known.all.get(*rank)?.url.clone(),
                status: (*status)?,
            })
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crew for Ranks {
    fn read(config: Value) -> Result<Configs> {
        let settings = serde_json::from_value(config);
        Ok(Configs {
            learner: Some(settings.map_err(|error| Error::BadConfig(error.to_string()))?),
            ..Configs::default()
        })
    }

    fn members(&self) -> Vec<(Option<Role>, Address)> {
        // Rank 0 tells the others how to train.
        let roles = std::iter::once(Some(Role::Learner)).chain(std::iter::repeat(None));
        roles.zip(self.all()).collect()
    }

    fn note(&self, address: &Address, report: Option<&Report>) {
        let mut known = self.known();
        let Some(rank) = known.all.iter().position(|one| one == address) else {
            return;
        };
        let (is_idle, status) = match report {
            Some(report) => (!report.running, Some(report.status)),
            None => (true, None),
        };
        let before = if is_idle && self.gate.is_running() {
            known.idle.insert(rank, status)
        } else {
            known.idle.remove(&rank);
            Some(status)
        };
        let lowest = known.idle.keys().next().copied();
        drop(known);
        if before != Some(status) {
            let how = status.map_or("does not answer".to_owned(), |status| {
                format!("is {status}, start it")
            });
            tracing::warn!(
                "rank {rank} ({}) {how}: the ranks train together or not at all",
                address.url
            );
        }
        self.gate.amend(IDLE_RANK, lowest.map(|rank| rank as f64));
    }

    fn are_its_own(&self) -> bool {
        true
    }

    fn pause(&self) -> Duration {
        self.poll
    }
}
