//! Which replicas there are, which of them can work, and which are lost. Pure: time comes from
//! outside.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{Address, wire::Role};

/// When a replica counts as lost.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaTimeouts {
    /// Unreachable for so long after it once answered.
    pub silent: Duration,
    /// Never answered for so long: its pod may have to be scheduled and its image pulled.
    pub first_answer: Duration,
    /// Failed so many tasks in a row.
    pub failed_tasks: u32,
    /// Pause between two looks at the endpoint and at the replicas.
    pub poll: Duration,
    /// Longest time for one task.
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

/// A replica to be reported as failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostReplica {
    /// What it was.
    pub role: Role,
    /// Pod name.
    pub pod: String,
    /// Why it counts as lost.
    pub reason: String,
}

/// A replica that a task can be sent to.
#[derive(Clone, Debug)]
pub struct ReadyReplica {
    /// Where it is.
    pub address: Address,
    /// Closes when the replica leaves the fleet, so that nobody waits for its answer any longer.
    pub gone: watch::Receiver<()>,
}

#[derive(Debug)]
struct ReplicaEntry {
    role: Role,
    address: Address,
    since: Instant,
    answered: Option<Instant>,
    reachable: bool,
    /// It is there, and takes no task on.
    paused: bool,
    failed_tasks: u32,
    gone: watch::Sender<()>,
}

/// The replicas of one coordinator.
#[derive(Debug)]
pub struct ReplicaTable {
    patience: ReplicaTimeouts,
    members: HashMap<String, ReplicaEntry>,
    /// Names that were lost. A successor has a fresh name, so these are never connected to again.
    lost: HashSet<String>,
    /// Losses that the endpoint does not know of yet.
    unreported: Vec<LostReplica>,
}

impl ReplicaTable {
    /// An empty fleet.
    pub fn new(patience: ReplicaTimeouts) -> Self {
        Self {
            patience,
            members: HashMap::new(),
            lost: HashSet::new(),
            unreported: Vec::new(),
        }
    }

    /// Takes over what the endpoint lists: new names join, vanished ones leave. Returns both.
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

    /// A replica answered, and told whether it takes tasks on. Returns whether that is news.
    pub fn mark_answered(&mut self, pod: &str, runs: bool, now: Instant) -> bool {
        let Some(member) = self.members.get_mut(pod) else {
            return false;
        };
        member.answered = Some(now);
        let before = (member.reachable, member.paused);
        (member.reachable, member.paused) = (true, !runs);
        before != (true, !runs)
    }

    /// A replica gave a task back: it gets no more until it runs. That is no failure, and no silence.
    pub fn mark_paused(&mut self, pod: &str) {
        if let Some(member) = self.members.get_mut(pod) {
            member.paused = true;
        }
    }

    /// A replica did not answer: it gets no more tasks until it does.
    pub fn mark_unreachable(&mut self, pod: &str) {
        if let Some(member) = self.members.get_mut(pod) {
            member.reachable = false;
        }
    }

    /// A replica did its task.
    pub fn task_done(&mut self, pod: &str) {
        if let Some(member) = self.members.get_mut(pod) {
            member.failed_tasks = 0;
        }
    }

    /// A replica did not do its task.
    pub fn task_failed(&mut self, pod: &str) {
        if let Some(member) = self.members.get_mut(pod) {
            member.failed_tasks += 1;
        }
    }

    /// Removes the replicas whose time is over, and remembers to report them.
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

    /// What the endpoint must be told.
    pub fn unreported_losses(&self) -> Vec<(Role, String)> {
        self.unreported
            .iter()
            .map(|loss| (loss.role, loss.pod.clone()))
            .collect()
    }

    /// The endpoint was told.
    pub fn mark_reported(&mut self, told: &[(Role, String)]) {
        self.unreported
            .retain(|loss| !told.iter().any(|(_, pod)| *pod == loss.pod));
    }

    /// Everyone, to be asked how they are.
    pub fn list_members(&self) -> Vec<(Role, Address)> {
        let members = self.members.values();
        members
            .map(|member| (member.role, member.address.clone()))
            .collect()
    }

    /// Whether nobody is waited for.
    pub fn is_settled(&self) -> bool {
        self.members.values().all(|member| member.reachable)
    }

    /// The replicas that can work, longest there first: of several learners it is always the same
    /// one that trains.
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
        let (limit, since, what) = match self.answered {
            Some(last) => (patience.silent, last, "it has not answered"),
            None => (patience.first_answer, self.since, "it never answered"),
        };
        let waited = now.saturating_duration_since(since);
        (!self.reachable && waited >= limit)
            .then(|| format!("{what} for {:.0} s", waited.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests;
