//! The control panel: configures, starts, pauses and ends replicas through their
//! [life-cycle routes](crate::lifecycle). See docs/decisions/0024.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use reqwest::{Client, RequestBuilder};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Error, Result, chain,
    learner::settings::Settings,
    lifecycle::{Call, LifecycleHandles, PauseGate, Report, Status},
    protocol::{
        Address,
        wire::{Envelope, Role},
    },
    sampler::sampling::Sampling,
};

/// Timeout of polls and of calls that do not wait.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a pause call: the replica finishes its task first.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The configurations of the replicas by role. A role without one keeps the flags of its command
/// line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configs {
    /// Sampling of the collectors.
    pub collector: Option<Sampling>,
    /// Training of the learners.
    pub learner: Option<Settings>,
}

impl Configs {
    /// The JSON for replicas of a role.
    fn for_role(&self, role: Role) -> Option<Value> {
        match role {
            Role::Collector => self.collector.as_ref().map(|sampling| json!(sampling)),
            Role::Learner => self.learner.as_ref().map(|settings| json!(settings)),
        }
    }
}

/// A replica of a control panel; without a role it is not configured.
pub(crate) type Member = (Option<Role>, Address);

/// The control panel of a process. Clones share their state.
#[derive(Clone, Debug)]
pub struct ControlPanel {
    client: Client,
    gate: PauseGate,
    configs: Arc<Mutex<Configs>>,
}

impl ControlPanel {
    /// A panel whose replicas follow the status of the gate.
    pub fn new(client: Client, gate: PauseGate, configs: Configs) -> Self {
        Self {
            client,
            gate,
            configs: Arc::new(Mutex::new(configs)),
        }
    }

    /// The report of this process.
    pub(crate) fn current_report(&self) -> Report {
        self.gate.current_report()
    }

    /// Stores new configurations for the next start; rejected while the gate runs.
    pub(crate) fn configure(&self, Configs { collector, learner }: Configs) -> Result<Report> {
        collector.as_ref().map_or(Ok(()), Sampling::check)?;
        learner.as_ref().map_or(Ok(()), Settings::check)?;
        self.gate.configure(|| {
            let mut configs = self.lock_configs();
            configs.collector = collector.or(configs.collector.take());
            configs.learner = learner.or(configs.learner.take());
        })?;
        Ok(self.gate.current_report())
    }

    /// Applies a call to this process, and then to all replicas.
    pub(crate) async fn handle_call(
        &self,
        call: Call,
        members: impl FnOnce() -> Vec<Member>,
    ) -> Result<Report> {
        let report = self.gate.handle_call(call, Value::Null).await?;
        match call {
            Call::Start => {
                let members = members();
                let starts = members
                    .iter()
                    .map(|(role, address)| self.start(*role, address));
                for failed in join_all(starts).await.into_iter().filter_map(Result::err) {
                    tracing::warn!("cannot start a replica: {}", chain(&failed));
                }
            }
            Call::Pause => {
                let addresses = members().into_iter().map(|(_, address)| address);
                self.call_all(call, &addresses.collect::<Vec<_>>()).await;
            }
            // The process ends its replicas itself.
            Call::Configure | Call::Exit => {}
        }
        Ok(report)
    }

    /// Gets the reports of all replicas. Starts those that wait for their first start, such as
    /// replacements.
    pub(crate) async fn poll_all<'a>(
        &self,
        members: &'a [Member],
    ) -> Vec<(&'a Address, Option<Report>)> {
        let polls = members.iter().map(|(role, address)| async move {
            let report = match self.get_report(address).await {
                Ok(report) if report.status == Status::Configured && self.gate.is_running() => {
                    self.start(*role, address).await
                }
                report => report,
            };
            (address, report.ok())
        });
        join_all(polls).await
    }

    /// Gets the report of a replica.
    pub(crate) async fn get_report(&self, address: &Address) -> Result<Report> {
        let url = format!("http://{}/lifecycle", address.url);
        send_for_report(self.client.get(&url).timeout(CALL_TIMEOUT), url).await
    }

    /// Configures a replica that does not run, and starts it.
    async fn start(&self, role: Option<Role>, address: &Address) -> Result<Report> {
        let config = role.and_then(|role| self.lock_configs().for_role(role));
        if let Some(config) = config
            && !self.get_report(address).await?.running
        {
            self.send_call(address, Call::Configure, Some(&config))
                .await?;
        }
        self.send_call(address, Call::Start, None).await
    }

    /// Makes one call to several replicas and waits for the responses.
    pub(crate) async fn call_all(&self, call: Call, addresses: &[Address]) {
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
        if let Some(config) = config {
            request = request.json(config);
        }
        send_for_report(request, url).await
    }

    /// Locks the configurations. No code panics while it holds the lock.
    fn lock_configs(&self) -> MutexGuard<'_, Configs> {
        self.configs.lock().unwrap_or_else(PoisonError::into_inner)
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
