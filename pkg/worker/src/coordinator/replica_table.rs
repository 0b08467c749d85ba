//! The pure table of replicas: which can take tasks, and which are lost. Time is an argument.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::protocol::{Address, wire::Role};

/// When a replica counts as lost.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaTimeouts {
    /// A replica that answered before is lost after this time without an answer.
    pub silent: Duration,
    /// A replica that never answered is lost after this time: scheduling and image pull take time.
    pub first_answer: Duration,
    /// A replica is lost after this number of failed tasks in a row.
    pub failed_tasks: u32,
    /// Time between two polls of the endpoint and of the replicas.
    pub poll: Duration,
    /// Timeout of one task.
    pub task: Duration,
}

impl Default for ReplicaTimeouts {
    fn default() -> Self {
        Self {
            silent: Duration::from_secs(10),
            first_answer: Duration::from_secs(120),
            failed_tasks: 2,
            poll: Duration::from_secs(1),
            task: Duration::from_secs(120),
        }
    }
}

/// A lost replica, to be reported as failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostReplica {
    /// The role.
    pub role: Role,
    /// Pod name.
    pub pod: String,
    /// The reason.
    pub reason: String,
}

/// A replica that can take a task.
#[derive(Clone, Debug)]
pub struct ReadyReplica {
    /// The address.
    pub address: Address,
    /// Closes when the replica leaves the table, so that its pending requests are cancelled.
    pub gone: watch::Receiver<()>,
}

#[derive(Debug)]
struct ReplicaEntry {
    role: Role,
    address: Address,
    since: Instant,
    answered: Option<Instant>,
    reachable: bool,
    /// Reachable, but takes no tasks.
    paused: bool,
    failed_tasks: u32,
    gone: watch::Sender<()>,
}

/// The replicas of one coordinator.
#[derive(Debug)]
pub struct ReplicaTable {
    patience: ReplicaTimeouts,
    members: HashMap<String, ReplicaEntry>,
    /// Names of lost replicas. A replacement has a new name, so these are never used again.
    lost: HashSet<String>,
    /// Losses to report to the endpoint.
    unreported: Vec<LostReplica>,
}

impl ReplicaTable {
    /// An empty table.
    pub fn new(patience: ReplicaTimeouts) -> Self {
        Self {
            patience,
            members: HashMap::new(),
            lost: HashSet::new(),
            unreported: Vec::new(),
        }
    }

    /// Updates the table from the endpoint's list. Returns the added and the removed replicas.
    pub fn sync_listed(
        &mut self,
        listed: &[(Role, Address)],
        now: Instant,
    ) -> (Vec<Address>, Vec<Address>) {
        let names: HashSet<_> = listed
            .iter()
            .map(|(_, address)| address.pod.as_str())
            .collect();
        let left = self
            .members
            .extract_if(|pod, _| !names.contains(pod.as_str()));
        let left = left.map(|(_, member)| member.address).collect();
        let mut joined = Vec::new();
        for (role, address) in listed {
            if self.members.contains_key(&address.pod) || self.lost.contains(&address.pod) {
                continue;
            }
            let member = ReplicaEntry {
                role: *role,
                address: address.clone(),
                since: now,
                answered: None,
                reachable: false,
                paused: false,
                failed_tasks: 0,
                gone: watch::Sender::new(()),
            };
            self.members.insert(address.pod.clone(), member);
            joined.push(address.clone());
        }
        (joined, left)
    }

    /// Records an answer and whether the replica runs. Returns whether something changed.
    pub fn mark_answered(&mut self, pod: &str, runs: bool, now: Instant) -> bool {
        let Some(member) = self.members.get_mut(pod) else {
            return false;
        };
        member.answered = Some(now);
        let before = (member.reachable, member.paused);
        (member.reachable, member.paused) = (true, !runs);
        before != (true, !runs)
    }

    /// Records that a paused replica returned a task. It gets no tasks until it runs; this is no
    /// failure.
    pub fn mark_paused(&mut self, pod: &str) {
        if let Some(member) = self.members.get_mut(pod) {
            member.paused = true;
        }
    }

    /// Records that a replica did not answer. It gets no tasks until it answers.
    pub fn mark_unreachable(&mut self, pod: &str) {
        if let Some(member) = self.members.get_mut(pod) {
            member.reachable = false;
        }
    }

    /// Records a finished task.
    pub fn task_done(&mut self, pod: &str) {
        if let Some(member) = self.members.get_mut(pod) {
            member.failed_tasks = 0;
        }
    }

    /// Records a failed task.
    pub fn task_failed(&mut self, pod: &str) {
        if let Some(member) = self.members.get_mut(pod) {
            member.failed_tasks += 1;
        }
    }

    /// Removes the replicas that exceeded a limit and records them for the report.
    pub fn remove_lost(&mut self, now: Instant) -> Vec<LostReplica> {
        let patience = self.patience;
        let losses: Vec<_> = self
            .members
            .values()
            .filter_map(|member| {
                let reason = member.loss_reason(patience, now)?;
                Some(LostReplica {
                    role: member.role,
                    pod: member.address.pod.clone(),
                    reason,
                })
            })
            .collect();
        for loss in &losses {
            self.members.remove(&loss.pod);
            self.lost.insert(loss.pod.clone());
        }
        self.unreported.extend_from_slice(&losses);
        losses
    }

    /// The lost replicas that the endpoint does not know.
    pub fn unreported_losses(&self) -> Vec<(Role, String)> {
        self.unreported
            .iter()
            .map(|loss| (loss.role, loss.pod.clone()))
            .collect()
    }

    /// Records that the endpoint accepted the report.
    pub fn mark_reported(&mut self, names: &[(Role, String)]) {
        self.unreported
            .retain(|loss| !names.iter().any(|(_, pod)| *pod == loss.pod));
    }

    /// All replicas.
    pub fn list_members(&self) -> Vec<(Role, Address)> {
        let members = self.members.values();
        members
            .map(|member| (member.role, member.address.clone()))
            .collect()
    }

    /// The replicas that can take tasks, oldest first: the same learner of several trains each
    /// time.
    pub fn ready_replicas(&self, role: Role) -> Vec<ReadyReplica> {
        let mut ready: Vec<_> = self
            .members
            .values()
            .filter(|member| member.role == role && member.reachable && !member.paused)
            .collect();
        ready.sort_unstable_by(|a, b| (a.since, &a.address.pod).cmp(&(b.since, &b.address.pod)));
        let ready = ready.into_iter();
        ready
            .map(|member| ReadyReplica {
                address: member.address.clone(),
                gone: member.gone.subscribe(),
            })
            .collect()
    }
}

impl ReplicaEntry {
    fn loss_reason(&self, patience: ReplicaTimeouts, now: Instant) -> Option<String> {
        if self.failed_tasks >= patience.failed_tasks {
            return Some(format!("it failed {} tasks in a row", self.failed_tasks));
        }
        let (limit, since, text) = match self.answered {
            Some(last) => (patience.silent, last, "it has not answered"),
            None => (patience.first_answer, self.since, "it never answered"),
        };
        let waited = now.saturating_duration_since(since);
        (!self.reachable && waited >= limit)
            .then(|| format!("{text} for {:.0} s", waited.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests;
