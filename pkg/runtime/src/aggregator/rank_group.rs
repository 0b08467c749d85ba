use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;

use crate::{
    Address, Error, Result,
    lifecycle::{PauseGate, Report, Status},
    panel::{Configs, WorkerGroup},
    wire::Role,
};

/// What the lowest rank that does not run is called in the stats.
const IDLE_RANK: &str = "idle_rank";

/// The ranks of an aggregator, in their order. Clones are of the same ones.
#[derive(Clone, Debug)]
pub(super) struct RankGroup {
    gate: PauseGate,
    poll: Duration,
    known: Arc<Mutex<RankState>>,
}

#[derive(Debug, Default)]
struct RankState {
    all: Vec<Address>,
    /// None of them was missed since they were told of.
    sure: bool,
    /// Those that do not run though they should, and how they are; nothing where they do not answer.
    idle: BTreeMap<usize, Option<Status>>,
}

impl RankGroup {
    /// Those that are to be as the gate is, and are looked at this often.
    pub(super) fn new(gate: PauseGate, poll: Duration) -> Self {
        Self {
            gate,
            poll,
            known: Arc::default(),
        }
    }

    /// All of them, once they are known.
    pub(super) fn all_ranks(&self) -> Vec<Address> {
        self.lock_state().all.clone()
    }

    /// Rank 0, unless one of them was missed.
    pub(super) fn known_rank_0(&self) -> Option<Address> {
        let known = self.lock_state();
        known.all.first().filter(|_| known.sure).cloned()
    }

    /// Takes over who they are.
    pub(super) fn set_ranks(&self, all: Vec<Address>) {
        *self.lock_state() = RankState {
            all,
            sure: true,
            ..RankState::default()
        };
    }

    /// One was missed: others may have taken their place.
    pub(super) fn mark_uncertain(&self) {
        self.lock_state().sure = false;
    }

    /// Why no task can be done, where one of them is there and does not run.
    pub(super) fn idle_rank_error(&self) -> Option<Error> {
        let known = self.lock_state();
        let mut idle = known.idle.iter();
        idle.find_map(|(rank, status)| {
            Some(Error::RankIdle {
                rank: *rank,
                url: known.all.get(*rank)?.url.clone(),
                status: (*status)?,
            })
        })
    }

    fn lock_state(&self) -> MutexGuard<'_, RankState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkerGroup for RankGroup {
    fn parse_configs(config: Value) -> Result<Configs> {
        let settings = serde_json::from_value(config);
        Ok(Configs {
            learner: Some(settings.map_err(|error| Error::BadConfig(error.to_string()))?),
            ..Configs::default()
        })
    }

    fn list_members(&self) -> Vec<(Option<Role>, Address)> {
        // Rank 0 tells the others how to train.
        let roles = std::iter::once(Some(Role::Learner)).chain(std::iter::repeat(None));
        roles.zip(self.all_ranks()).collect()
    }

    fn record_report(&self, address: &Address, report: Option<&Report>) {
        let mut known = self.lock_state();
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
        self.gate.set_stat(IDLE_RANK, lowest.map(|rank| rank as f64));
    }

    fn are_owned_exclusively(&self) -> bool {
        true
    }

    fn poll_interval(&self) -> Duration {
        self.poll
    }
}
