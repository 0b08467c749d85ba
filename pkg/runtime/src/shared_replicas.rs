//! The fleet, shared between who keeps it up to date and who gives it work.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{sync::watch, time::MissedTickBehavior};

use crate::{
    Address, Error, Result, chain,
    endpoint::Endpoint,
    replica_table::{ReplicaTable, LostReplica, ReplicaTimeouts, ReadyReplica},
    lifecycle::Report,
    panel::{Configs, WorkerGroup},
    wire::{Replicas, Role},
};

/// A fleet that several tasks look at and change.
#[derive(Clone, Debug)]
pub struct SharedReplicas {
    fleet: Arc<Mutex<ReplicaTable>>,
    changed: watch::Sender<()>,
    patience: ReplicaTimeouts,
}

impl SharedReplicas {
    /// An empty one.
    pub fn new(patience: ReplicaTimeouts) -> Self {
        Self {
            fleet: Arc::new(Mutex::new(ReplicaTable::new(patience))),
            changed: watch::Sender::new(()),
            patience,
        }
    }

    /// When a replica counts as lost.
    pub const fn timeouts(&self) -> ReplicaTimeouts {
        self.patience
    }

    /// Wakes whenever who is ready may have changed.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The replicas that can work.
    pub fn ready_replicas(&self, role: Role) -> Vec<ReadyReplica> {
        self.lock_table().ready_replicas(role)
    }

    /// Takes over what the endpoint lists. A URL that cannot be understood is left out.
    pub fn sync_listed(&self, replicas: &Replicas) {
        let parse = |role| {
            move |url: &String| match Address::parse(url) {
                Ok(address) => Some((role, address)),
                Err(error) => {
                    tracing::warn!("ignoring a replica: {error}");
                    None
                }
            }
        };
        let collectors = replicas
            .collectors
            .iter()
            .filter_map(parse(Role::Collector));
        let listed: Vec<_> = collectors
            .chain(replicas.learners.iter().filter_map(parse(Role::Learner)))
            .collect();
        let (joined, left) = self.lock_table().sync_listed(&listed, Instant::now());
        for address in &joined {
            tracing::info!("found {}, connecting to {}", address.pod, address.url);
        }
        for address in &left {
            tracing::info!("{} is no longer listed, dropping it", address.pod);
        }
        self.changed.send_replace(());
    }

    /// Notes that a replica did its task.
    pub fn task_done(&self, pod: &str) {
        self.lock_table().task_done(pod);
    }

    /// Notes that a replica did not do its task, and whether it could be reached.
    pub fn task_failed(&self, pod: &str, reachable: bool) {
        let mut fleet = self.lock_table();
        fleet.task_failed(pod);
        if !reachable {
            fleet.mark_unreachable(pod);
        }
        let losses = fleet.remove_lost(Instant::now());
        drop(fleet);
        self.announce_losses(&losses);
    }

    /// Notes that a replica gave a task back, as it is paused.
    pub fn mark_paused(&self, pod: &str) {
        self.lock_table().mark_paused(pod);
    }

    /// Follows the endpoint's list and tells it of losses, for ever. Whatever the endpoint does,
    /// training goes on with the replicas that are known.
    pub async fn follow_endpoint(&self, endpoint: &Endpoint) {
        let mut ticks = new_interval(self.patience.poll);
        let mut failing = false;
        loop {
            ticks.tick().await;
            match self.follow_once(endpoint).await {
                Ok(()) if failing => {
                    failing = false;
                    tracing::info!("the replica endpoint answers again");
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!("going on with the replicas known: {}", chain(&error));
                }
                _ => {}
            }
        }
    }

    async fn follow_once(&self, endpoint: &Endpoint) -> Result<()> {
        let lost = self.lock_table().unreported_losses();
        if !lost.is_empty() {
            endpoint.report_failed(&lost).await?;
            let names: Vec<_> = lost.iter().map(|(_, pod)| pod.as_str()).collect();
            tracing::info!("reported {} as failed", names.join(", "));
            self.lock_table().mark_reported(&lost);
        }
        self.sync_listed(&endpoint.list_replicas().await?);
        Ok(())
    }

    fn announce_losses(&self, losses: &[LostReplica]) {
        for LostReplica { role, pod, reason } in losses {
            tracing::warn!("lost {role} {pod}: {reason}");
        }
        if !losses.is_empty() {
            self.changed.send_replace(());
        }
    }

    /// Nothing panics while it holds the lock, and if something did, the fleet would still be
    /// whole.
    fn lock_table(&self) -> MutexGuard<'_, ReplicaTable> {
        self.fleet.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkerGroup for SharedReplicas {
    fn parse_configs(config: Value) -> Result<Configs> {
        serde_json::from_value(config).map_err(|error| Error::BadConfig(error.to_string()))
    }

    fn list_members(&self) -> Vec<(Option<Role>, Address)> {
        let members = self.lock_table().list_members().into_iter();
        members
            .map(|(role, address)| (Some(role), address))
            .collect()
    }

    fn record_report(&self, address: &Address, report: Option<&Report>) {
        let (mut fleet, now) = (self.lock_table(), Instant::now());
        let Some(report) = report else {
            fleet.mark_unreachable(&address.pod);
            let losses = fleet.remove_lost(now);
            drop(fleet);
            return self.announce_losses(&losses);
        };
        let news = fleet.mark_answered(&address.pod, report.running, now);
        drop(fleet);
        if news {
            if report.running {
                tracing::info!("connected to {}", address.pod);
            } else {
                tracing::info!("{} is {}, it gets no task", address.pod, report.status);
            }
            self.changed.send_replace(());
        }
    }

    fn poll_interval(&self) -> Duration {
        // Whoever just starts should not wait long for work.
        if self.lock_table().is_settled() {
            self.patience.poll
        } else {
            self.patience.poll / 4
        }
    }
}

fn new_interval(period: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
