//! The replica table, shared by the tasks that update it and the dispatcher.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::{sync::watch, time::sleep};

use crate::{
    Result, chain,
    coordinator::{
        endpoint::Endpoint,
        panel::{ControlPanel, Member},
        replica_table::{LostReplica, ReadyReplica, ReplicaTable, ReplicaTimeouts},
    },
    lifecycle::Report,
    protocol::{
        Address,
        wire::{Replicas, Role},
    },
};

/// A shared replica table.
#[derive(Clone, Debug)]
pub struct SharedReplicas {
    table: Arc<Mutex<ReplicaTable>>,
    changed: watch::Sender<()>,
    patience: ReplicaTimeouts,
}

impl SharedReplicas {
    /// An empty table.
    pub fn new(patience: ReplicaTimeouts) -> Self {
        Self {
            table: Arc::new(Mutex::new(ReplicaTable::new(patience))),
            changed: watch::Sender::new(()),
            patience,
        }
    }

    /// The time limits.
    pub const fn timeouts(&self) -> ReplicaTimeouts {
        self.patience
    }

    /// Subscribes to changes of the ready replicas.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The replicas that can take tasks.
    pub fn ready_replicas(&self, role: Role) -> Vec<ReadyReplica> {
        self.lock_table().ready_replicas(role)
    }

    /// Updates the table from the endpoint's list. Invalid URLs are skipped.
    pub fn sync_listed(&self, replicas: &Replicas) {
        let parse = |role| {
            move |url: &String| match Address::parse(url) {
                Ok(address) => Some((role, address)),
                Err(error) => {
                    tracing::warn!("ignoring a listed replica: {error}");
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
            tracing::info!("replica {} is no longer listed, removed", address.pod);
        }
        self.changed.send_replace(());
    }

    /// Records a finished task.
    pub fn task_done(&self, pod: &str) {
        self.lock_table().task_done(pod);
    }

    /// Records a failed task and whether the replica was reachable.
    pub fn task_failed(&self, pod: &str, reachable: bool) {
        let mut table = self.lock_table();
        table.task_failed(pod);
        if !reachable {
            table.mark_unreachable(pod);
        }
        let losses = table.remove_lost(Instant::now());
        drop(table);
        self.announce_losses(&losses);
    }

    /// Records that a paused replica returned a task.
    pub fn mark_paused(&self, pod: &str) {
        self.lock_table().mark_paused(pod);
    }

    /// Follows the endpoint's list and reports lost replicas until dropped. If the endpoint fails,
    /// training continues with the known replicas.
    pub async fn follow_endpoint(&self, endpoint: &Endpoint) {
        let mut failing = false;
        loop {
            match self.follow_once(endpoint).await {
                Ok(()) if failing => {
                    failing = false;
                    tracing::info!("the replica endpoint answers again");
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(
                        "cannot reach the replica endpoint, training continues with the known replicas: {}",
                        chain(&error)
                    );
                }
                _ => {}
            }
            sleep(self.patience.poll).await;
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

    /// Locks the table. No code panics while it holds the lock.
    fn lock_table(&self) -> MutexGuard<'_, ReplicaTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All replicas, for the control panel.
    pub(crate) fn list_members(&self) -> Vec<Member> {
        let members = self.lock_table().list_members().into_iter();
        members
            .map(|(role, address)| (Some(role), address))
            .collect()
    }

    /// Polls all replicas through the control panel until dropped.
    pub(crate) async fn poll_loop(&self, panel: &ControlPanel) {
        loop {
            for (address, report) in panel.poll_all(&self.list_members()).await {
                self.record_report(address, report.as_ref());
            }
            sleep(self.patience.poll).await;
        }
    }

    /// Records the report of a replica, or that it did not answer.
    fn record_report(&self, address: &Address, report: Option<&Report>) {
        let (mut table, now) = (self.lock_table(), Instant::now());
        let Some(report) = report else {
            table.mark_unreachable(&address.pod);
            let losses = table.remove_lost(now);
            drop(table);
            return self.announce_losses(&losses);
        };
        let has_changed = table.mark_answered(&address.pod, report.running, now);
        drop(table);
        if has_changed {
            if report.running {
                tracing::info!("connected to {}", address.pod);
            } else {
                tracing::info!(
                    "replica {} is {} and gets no tasks",
                    address.pod,
                    report.status
                );
            }
            self.changed.send_replace(());
        }
    }
}
