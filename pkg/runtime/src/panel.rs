//! A control panel: has replicas configured, started, paused, resumed and ended, by their [handles](crate::life).
//!
//! It is level-triggered. Whoever has replicas looks at each every so often, and at each look a replica is told what [brings it
//! nearer](rule) to how the gate of the panel is. So one that comes late, was started anew, or could not be told is told then, and whoever else
//! calls the same handles disturbs nothing.

mod configs;
mod handler;
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
    Address, Error, Result, chain,
    lifecycle::{Call, PauseGate, LifecycleHandles, Report},
    wire::{Envelope, Role},
};

pub use configs::Configs;
pub(crate) use handler::ControlPanelHandler;
use rule::ReplicaState;

/// How long a replica may take to say how it is, and to heed what needs no wait.
const LIMIT: Duration = Duration::from_secs(3);
/// How long it may take to pause: it finishes its task.
const PAUSE_LIMIT: Duration = Duration::from_secs(10);

/// Those whom a panel leads.
pub(crate) trait WorkerGroup: Clone + Send + Sync + 'static {
    /// What they are to be configured with, of the body of a call.
    fn parse_configs(config: Value) -> Result<Configs>;

    /// All of them; one without a role is not configured.
    fn list_members(&self) -> Vec<(Option<Role>, Address)>;

    /// Notes how one of them is, if it answers.
    fn record_report(&self, address: &Address, report: Option<&Report>);

    /// Whether nobody else can start those that somebody paused alone.
    fn are_owned_exclusively(&self) -> bool {
        false
    }

    /// How long to wait until they are looked at again.
    fn poll_interval(&self) -> Duration;
}

/// The panel of who leads replicas. Clones are of the same one.
#[derive(Clone, Debug)]
pub struct ControlPanel {
    client: Client,
    gate: PauseGate,
    configs: Arc<Mutex<Numbered>>,
    replicas: Arc<Mutex<HashMap<String, Arc<WorkerSlot>>>>,
}

/// The configurations, and how often there were others.
#[derive(Debug, Default)]
struct Numbered {
    number: u64,
    configs: Configs,
}

/// What is known of a replica, which is told one thing after the other.
type WorkerSlot = tokio::sync::Mutex<Replica>;

#[derive(Debug, Default)]
struct Replica {
    known: ReplicaState,
    /// Why it could not be told something, as was logged.
    trouble: Option<String>,
}

impl ControlPanel {
    /// One whose replicas are to be as the gate is.
    pub fn new(client: Client, gate: PauseGate, configs: Configs) -> Self {
        let configs = Numbered { number: 0, configs };
        Self {
            client,
            gate,
            configs: Arc::new(Mutex::new(configs)),
            replicas: Arc::default(),
        }
    }

    /// Takes other configurations on for the next start; refused while it runs.
    pub fn configure(&self, configs: Configs) -> Result<Report> {
        configs.check()?;
        self.gate.configure(|| {
            let mut numbered = lock_unpoisoned(&self.configs);
            numbered.number += 1;
            numbered.configs.update_from(configs);
        })?;
        Ok(self.gate.current_report())
    }

    /// Goes by the configurations of the one before it.
    pub(crate) fn restore_configs(&self, configs: Configs) {
        lock_unpoisoned(&self.configs).configs = configs;
    }

    /// What replicas are configured with.
    pub(crate) fn current_configs(&self) -> Configs {
        lock_unpoisoned(&self.configs).configs.clone()
    }

    /// Has a replica start with all others even if somebody paused it alone.
    async fn clear_manual_pause(&self, address: &Address) {
        self.worker_slot(address).lock().await.known.clear_manual_pause();
    }

    fn worker_slot(&self, address: &Address) -> Arc<WorkerSlot> {
        let mut replicas = lock_unpoisoned(&self.replicas);
        replicas.entry(address.url.clone()).or_default().clone()
    }

    /// Looks at all replicas again and again, for ever. One that is slow to heed something holds up no other.
    pub(crate) async fn control_loop<C: WorkerGroup>(&self, crew: &C) {
        let mut looks = JoinSet::new();
        let mut under_way: HashMap<String, AbortHandle> = HashMap::new();
        loop {
            while looks.try_join_next().is_some() {}
            under_way.retain(|_, look| !look.is_finished());
            let members = crew.list_members();
            let urls: HashSet<_> = members.iter().map(|(_, one)| one.url.as_str()).collect();
            lock_unpoisoned(&self.replicas).retain(|url, _| urls.contains(url.as_str()));
            for (role, address) in members {
                if let Entry::Vacant(free) = under_way.entry(address.url.clone()) {
                    let (panel, crew) = (self.clone(), crew.clone());
                    let look = async move { panel.poll_member(&crew, role, &address).await };
                    free.insert(looks.spawn(look));
                }
            }
            sleep(crew.poll_interval()).await;
        }
    }

    /// Looks at one of a crew.
    async fn poll_member(
        &self,
        crew: &impl WorkerGroup,
        role: Option<Role>,
        address: &Address,
    ) -> Option<Report> {
        let report = self.poll_worker(role, address).await;
        crew.record_report(address, report.as_ref());
        report
    }

    /// Looks at a replica, and tells it what it should be told; how it is then, if it answers.
    async fn poll_worker(&self, role: Option<Role>, address: &Address) -> Option<Report> {
        let seat = self.worker_slot(address);
        let Replica { known, trouble } = &mut *seat.lock().await;
        let url = format!("http://{}/lifecycle", address.url);
        let request = self.client.get(&url).timeout(LIMIT);
        let mut report = send_for_report(request, url).await.ok()?;
        // Tasks that are on their way are finished first, and may need several replicas.
        let Some(panel) = self.gate.settled_status() else {
            return Some(report);
        };
        known.observe_status(panel, report.status);
        let config = role.and_then(|role| self.config_for_role(role));
        let number = config.as_ref().map(|(number, _)| *number);
        for call in known.next_calls(panel, number) {
            let body = config.as_ref().map(|(_, config)| config);
            if *call == Call::Pause {
                // It is to go on, even if this is not heeded in time.
                known.clear_manual_pause();
            }
            match self.send_call(address, *call, body).await {
                Ok(told) => report = told,
                Err(error) => {
                    let why = chain(&error);
                    if trouble.as_ref() != Some(&why) {
                        tracing::warn!("cannot {call} {}, trying again: {why}", address.url);
                        *trouble = Some(why);
                    }
                    return Some(report);
                }
            }
            known.observe_status(panel, report.status);
            if *call == Call::Configure {
                known.given = number;
            }
        }
        *trouble = None;
        Some(report)
    }

    /// Calls replicas, whatever they should be; waits for their word, but not for long.
    pub async fn call_all(&self, call: Call, addresses: &[Address]) {
        let calls = addresses.iter().map(|address| async move {
            if let Err(error) = self.send_call(address, call, None).await {
                let why = chain(&error);
                tracing::warn!("no word of the {call} of {}: {why}", address.url);
            }
        });
        join_all(calls).await;
    }

    async fn send_call(&self, address: &Address, call: Call, config: Option<&Value>) -> Result<Report> {
        let url = format!("http://{}/lifecycle/{call}", address.url);
        let limit = if call == Call::Pause {
            PAUSE_LIMIT
        } else {
            LIMIT
        };
        let mut request = self.client.post(&url).timeout(limit);
        if let (Call::Configure, Some(config)) = (call, config) {
            request = request.json(config);
        }
        send_for_report(request, url).await
    }

    /// What there is for a role, and its number.
    fn config_for_role(&self, role: Role) -> Option<(u64, Value)> {
        let numbered = lock_unpoisoned(&self.configs);
        Some((numbered.number, numbered.configs.for_role(role)?))
    }
}

/// What a replica answers.
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

/// Nothing panics while it holds one.
fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
