use std::time::Duration;

use futures::future::join_all;
use serde_json::Value;
use tokio::time::timeout;

use super::{Crew, Panel};
use crate::{
    Result,
    life::{Call, Handles, Report},
};

/// How long a call waits for one of the replicas to heed it.
const HEEDED_WITHIN: Duration = Duration::from_secs(10);

/// The handles of who leads replicas: a call of them is one of each replica.
#[derive(Clone, Debug)]
pub(crate) struct Desk<C> {
    pub(crate) panel: Panel,
    pub(crate) crew: C,
}

impl<C: Crew> Desk<C> {
    /// Looks at all at once; tells who answers and does not run then, or does, as it should not.
    async fn late(&self, running: bool) -> Vec<String> {
        let looks = self.crew.members().into_iter();
        let looks = looks.map(|(role, address)| async move {
            let look = self.panel.look_for(&self.crew, role, &address);
            let is_late = match timeout(HEEDED_WITHIN, look).await {
                Ok(report) => report.is_some_and(|report| report.running != running),
                Err(_) => true,
            };
            is_late.then_some(address.url)
        });
        join_all(looks).await.into_iter().flatten().collect()
    }
}

impl<C: Crew> Handles for Desk<C> {
    fn report(&self) -> Report {
        self.panel.gate.report()
    }

    async fn call(&self, call: Call, config: Value) -> Result<Report> {
        if call == Call::Configure {
            return self.panel.configure(C::read(config)?);
        }
        self.panel.gate.call(call, config).await?;
        if call == Call::Start && self.crew.are_its_own() {
            for (_, address) in self.crew.members() {
                self.panel.claim(&address).await;
            }
        }
        if matches!(call, Call::Pause | Call::Start) {
            let late = self.late(call == Call::Start).await;
            if !late.is_empty() {
                tracing::info!("{call}: heeded by all but {}", late.join(", "));
            }
        }
        Ok(self.report())
    }
}
