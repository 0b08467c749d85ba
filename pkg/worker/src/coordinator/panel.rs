//! The control panel: configures, starts, pauses, resumes and ends replicas through their
//! [life-cycle routes](crate::lifecycle).
//!
//! It is level-triggered: it polls each replica regularly and makes the calls that [bring the
//! replica to the status of the panel](rule). New and restarted replicas and failed calls are
//! handled by the next poll; calls by other clients do no harm.
//!
//! See docs/decisions/0024.

pub(crate) mod configs;
pub(crate) mod handler;
mod rule;

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use reqwest::{Client, RequestBuilder};
use serde_json::Value;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use crate::{
    Error, Result, chain,
    lifecycle::{Call, LifecycleHandles, PauseGate, Report},
    protocol::{
        Address,
        wire::{Envelope, Role},
    },
};

pub use configs::Configs;
use rule::ReplicaState;

/// Timeout of polls and of calls that do not wait.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a pause call: the replica finishes its task first.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The replicas of a control panel.
pub(crate) trait WorkerGroup: Clone + Send + Sync + 'static {
    /// Parses the body of a configure call.
    fn parse_configs(config: Value) -> Result<Configs>;

    /// All replicas; a replica without a role is not configured.
    fn list_members(&self) -> Vec<(Option<Role>, Address)>;

    /// Records the report of a replica, or that it did not answer.
    fn record_report(&self, address: &Address, report: Option<&Report>);

    /// Whether no other client can start replicas that were paused one by one.
    fn are_owned_exclusively(&self) -> bool {
        false
    }

    /// Time between two polls.
    fn poll_interval(&self) -> Duration;
}

/// The control panel of a process. Clones share their state.
#[derive(Clone, Debug)]
pub struct ControlPanel {
    client: Client,
    gate: PauseGate,
    configs: Arc<Mutex<Numbered>>,
    replicas: Arc<Mutex<HashMap<String, Arc<WorkerSlot>>>>,
}

/// The configurations and their revision number.
#[derive(Debug, Default)]
struct Numbered {
    number: u64,
    configs: Configs,
}

/// The state of a replica. The lock serializes the calls to it.
type WorkerSlot = tokio::sync::Mutex<Replica>;

#[derive(Debug, Default)]
struct Replica {
    known: ReplicaState,
    /// The last logged error.
    last_error: Option<String>,
}

impl ControlPanel {
    /// A panel whose replicas follow the status of the gate.
    pub fn new(client: Client, gate: PauseGate, configs: Configs) -> Self {
        let configs = Numbered { number: 0, configs };
        Self {
            client,
            gate,
            configs: Arc::new(Mutex::new(configs)),
            replicas: Arc::default(),
        }
    }

    /// Stores new configurations for the next start; rejected while the gate runs.
    pub fn configure(&self, configs: Configs) -> Result<Report> {
        configs.check()?;
        self.gate.configure(|| {
            let mut numbered = lock_unpoisoned(&self.configs);
            numbered.number += 1;
            numbered.configs.update_from(configs);
        })?;
        Ok(self.gate.current_report())
    }

    /// Restores the configurations of the previous coordinator instance.
    pub(crate) fn restore_configs(&self, configs: Configs) {
        lock_unpoisoned(&self.configs).configs = configs;
    }

    /// The current configurations.
    pub(crate) fn current_configs(&self) -> Configs {
        lock_unpoisoned(&self.configs).configs.clone()
    }

    /// Resumes a manually paused replica with the next start of all.
    async fn clear_manual_pause(&self, address: &Address) {
        self.worker_slot(address)
            .lock()
            .await
            .known
            .clear_manual_pause();
    }

    fn worker_slot(&self, address: &Address) -> Arc<WorkerSlot> {
        let mut replicas = lock_unpoisoned(&self.replicas);
        replicas.entry(address.url.clone()).or_default().clone()
    }

    /// Polls all replicas until dropped. A slow replica does not delay the others.
    pub(crate) async fn control_loop<C: WorkerGroup>(&self, group: &C) {
        let mut polls = JoinSet::new();
        let mut in_progress: HashMap<String, AbortHandle> = HashMap::new();
        loop {
            while polls.try_join_next().is_some() {}
            in_progress.retain(|_, poll| !poll.is_finished());
            let members = group.list_members();
            let urls: HashSet<_> = members.iter().map(|(_, one)| one.url.as_str()).collect();
            lock_unpoisoned(&self.replicas).retain(|url, _| urls.contains(url.as_str()));
            for (role, address) in members {
                if let Entry::Vacant(free) = in_progress.entry(address.url.clone()) {
                    let (panel, group) = (self.clone(), group.clone());
                    let poll = async move { panel.poll_member(&group, role, &address).await };
                    free.insert(polls.spawn(poll));
                }
            }
            sleep(group.poll_interval()).await;
        }
    }

    /// Polls one replica and records its report.
    async fn poll_member(
        &self,
        group: &impl WorkerGroup,
        role: Option<Role>,
        address: &Address,
    ) -> Option<Report> {
        let report = self.poll_worker(role, address).await;
        group.record_report(address, report.as_ref());
        report
    }

    /// Polls a replica and makes the calls that it needs. Returns the last report.
    async fn poll_worker(&self, role: Option<Role>, address: &Address) -> Option<Report> {
        let seat = self.worker_slot(address);
        let Replica { known, last_error } = &mut *seat.lock().await;
        let url = format!("http://{}/lifecycle", address.url);
        let request = self.client.get(&url).timeout(CALL_TIMEOUT);
        let mut report = send_for_report(request, url).await.ok()?;
        // In-flight tasks finish first, because they may need several replicas.
        let Some(panel) = self.gate.settled_status() else {
            return Some(report);
        };
        known.observe_status(panel, report.status);
        let config = role.and_then(|role| self.config_for_role(role));
        let number = config.as_ref().map(|(number, _)| *number);
        for call in known.next_calls(panel, number) {
            let body = config.as_ref().map(|(_, config)| config);
            if *call == Call::Pause {
                // The replica is resumed later even if this call times out.
                known.clear_manual_pause();
            }
            match self.send_call(address, *call, body).await {
                Ok(reported) => report = reported,
                Err(error) => {
                    let why = chain(&error);
                    if last_error.as_ref() != Some(&why) {
                        tracing::warn!("cannot {call} replica {}, retrying: {why}", address.url);
                        *last_error = Some(why);
                    }
                    return Some(report);
                }
            }
            known.observe_status(panel, report.status);
            if *call == Call::Configure {
                known.given = number;
            }
        }
        *last_error = None;
        Some(report)
    }

    /// Makes one call to several replicas, independently of the status of the panel, and waits for the
    /// responses.
    pub async fn call_all(&self, call: Call, addresses: &[Address]) {
        let calls = addresses.iter().map(|address| async move {
            if let Err(error) = self.send_call(address, call, None).await {
                let why = chain(&error);
                tracing::warn!("no response to {call} from replica {}: {why}", address.url);
            }
        });
        join_all(calls).await;
    }

    async fn send_call(
        &self,
        address: &Address,
        call: Call,
        config: Option<&Value>,
    ) -> Result<Report> {
        let url = format!("http://{}/lifecycle/{call}", address.url);
        let limit = if call == Call::Pause {
            PAUSE_TIMEOUT
        } else {
            CALL_TIMEOUT
        };
        let mut request = self.client.post(&url).timeout(limit);
        if let (Call::Configure, Some(config)) = (call, config) {
            request = request.json(config);
        }
        send_for_report(request, url).await
    }

    /// The revision number and the configuration of a role.
    fn config_for_role(&self, role: Role) -> Option<(u64, Value)> {
        let numbered = lock_unpoisoned(&self.configs);
        Some((numbered.number, numbered.configs.for_role(role)?))
    }
}

/// Sends a request and parses the report in the response.
async fn send_for_report(request: RequestBuilder, url: String) -> Result<Report> {
    let answer = async { request.send().await?.bytes().await };
    let answer = match answer.await {
        Ok(answer) => answer,
        Err(source) => return Err(Error::Unreachable { url, source }),
    };
    let no_report = |_| Error::NoReport { url: url.clone() };
    let envelope: Envelope = serde_json::from_slice(&answer).map_err(no_report)?;
    if !envelope.success {
        return Err(Error::Unheeded(envelope.message));
    }
    serde_json::from_value(envelope.data).map_err(no_report)
}

/// Locks a mutex. No code panics while it holds one.
fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
