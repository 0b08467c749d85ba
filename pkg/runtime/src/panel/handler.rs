use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::time::timeout;

use super::{WorkerGroup, ControlPanel};
use crate::{
    Result,
    lifecycle::{Call, LifecycleHandles, Report},
};

/// How long a call waits for one of the replicas to heed it.
const HEEDED_WITHIN: Duration = Duration::from_secs(10);

/// The handles of who leads replicas: a call of them is one of each replica.
#[derive(Clone, Debug)]
pub(crate) struct ControlPanelHandler<C> {
    pub(crate) panel: ControlPanel,
    pub(crate) crew: C,
}

impl<C: WorkerGroup> ControlPanelHandler<C> {
    /// Looks at all at once; tells who answers and does not run then, or does, as it should not.
    async fn find_late_members(&self, running: bool) -> Vec<String> {
        let looks = self.crew.list_members().into_iter();
        let looks = looks.map(|(role, address)| async move {
            let look = self.panel.poll_member(&self.crew, role, &address);
            let is_late = match timeout(HEEDED_WITHIN, look).await {
                Ok(report) => report.is_some_and(|report| report.running != running),
                Err(_) => true,
            };
            is_late.then_some(address.url)
        });
        join_all(looks).await.into_iter().flatten().collect()
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
        if call == Call::Start && self.crew.are_owned_exclusively() {
            for (_, address) in self.crew.list_members() {
                self.panel.clear_manual_pause(&address).await;
            }
        }
        if matches!(call, Call::Pause | Call::Start) {
            let late = self.find_late_members(call == Call::Start).await;
            if !late.is_empty() {
                tracing::info!("{call}: heeded by all but {}", late.join(", "));
            }
        }
        Ok(self.current_report())
    }
}
