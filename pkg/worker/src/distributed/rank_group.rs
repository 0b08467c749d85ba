use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;

use crate::{
    Error, Result,
    coordinator::panel::{WorkerGroup, configs::Configs},
    lifecycle::{PauseGate, Report, Status},
    protocol::{Address, wire::Role},
};

/// The stat with the lowest rank that does not run.
const IDLE_RANK: &str = "idle_rank";

/// The ranks of an aggregator, in order. Clones share their state.
#[derive(Clone, Debug)]
pub(super) struct RankGroup {
    gate: PauseGate,
    poll: Duration,
    known: Arc<Mutex<RankState>>,
}

#[derive(Debug, Default)]
struct RankState {
    all: Vec<Address>,
    /// Whether no rank was lost since the list was read.
    sure: bool,
    /// Ranks that should run and do not, with their status; none if they do not answer.
    idle: BTreeMap<usize, Option<Status>>,
}

impl RankGroup {
    /// Ranks that follow the gate and are polled at this interval.
    pub(super) fn new(gate: PauseGate, poll: Duration) -> Self {
        Self {
            gate,
            poll,
            known: Arc::default(),
        }
    }

    /// All known ranks.
    pub(super) fn all_ranks(&self) -> Vec<Address> {
        self.lock_state().all.clone()
    }

    /// Rank 0, if no rank was lost.
    pub(super) fn known_rank_0(&self) -> Option<Address> {
        let known = self.lock_state();
        known.all.first().filter(|_| known.sure).cloned()
    }

    /// Sets the list of ranks.
    pub(super) fn set_ranks(&self, all: Vec<Address>) {
        *self.lock_state() = RankState {
            all,
            sure: true,
            ..RankState::default()
        };
    }

    /// Marks the list as outdated after a failure: a replacement may be listed.
    pub(super) fn mark_uncertain(&self) {
        self.lock_state().sure = false;
    }

    /// The error of a task while a rank does not run.
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
        // Rank 0 sends its configuration to the others.
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
        self.gate
            .set_stat(IDLE_RANK, lowest.map(|rank| rank as f64));
    }

    fn are_owned_exclusively(&self) -> bool {
        true
    }

    fn poll_interval(&self) -> Duration {
        self.poll
    }
}
