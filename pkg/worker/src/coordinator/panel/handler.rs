use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::time::timeout;

use crate::{
    Result,
    coordinator::panel::{ControlPanel, WorkerGroup},
    lifecycle::{Call, LifecycleHandles, Report},
};

/// How long a call waits for each replica.
const REPLICA_TIMEOUT: Duration = Duration::from_secs(10);

/// The life-cycle routes of a control panel: a call applies to all replicas.
#[derive(Clone, Debug)]
pub(crate) struct ControlPanelHandler<C> {
    pub(crate) panel: ControlPanel,
    pub(crate) group: C,
}

impl<C: WorkerGroup> ControlPanelHandler<C> {
    /// Polls all replicas; returns the URLs of those that answer and have the wrong status.
    async fn find_late_members(&self, running: bool) -> Vec<String> {
        let polls = self.group.list_members().into_iter();
        let polls = polls.map(|(role, address)| async move {
            let poll = self.panel.poll_member(&self.group, role, &address);
            let is_late = match timeout(REPLICA_TIMEOUT, poll).await {
                Ok(report) => report.is_some_and(|report| report.running != running),
                Err(_) => true,
            };
            is_late.then_some(address.url)
        });
        join_all(polls).await.into_iter().flatten().collect()
    }
}

impl<C: WorkerGroup> LifecycleHandles for ControlPanelHandler<C> {
    fn current_report(&self) -> Report {
        self.panel.gate.current_report()
    }

    async fn handle_call(&self, call: Call, config: Value) -> Result<Report> {
        if call == Call::Configure {
            return self.panel.configure(C::parse_configs(config)?);
        }
        self.panel.gate.handle_call(call, config).await?;
        if call == Call::Start && self.group.are_owned_exclusively() {
            for (_, address) in self.group.list_members() {
                self.panel.clear_manual_pause(&address).await;
            }
        }
        if matches!(call, Call::Pause | Call::Start) {
            let late = self.find_late_members(call == Call::Start).await;
            if !late.is_empty() {
                tracing::info!("{call}: not applied yet by {}", late.join(", "));
            }
        }
        Ok(self.current_report())
    }
}
