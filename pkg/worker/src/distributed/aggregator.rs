//! The aggregator of a learner of several GPUs. It forwards the coordinator's tasks to rank 0 and
//! reports the result of all ranks. It is the [control panel](crate::coordinator::panel) of its ranks.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{Json, Router, extract::State, response::Response, routing::post};
use reqwest::Client;
use serde_json::Value;
use tokio::{net::TcpListener, time::sleep};

use crate::{
    Error, Result, chain,
    coordinator::{
        dispatch::send_task,
        endpoint::Endpoint,
        panel::{Configs, ControlPanel, Member},
    },
    lifecycle::{Call, LifecycleHandles, PauseGate, Report, TaskReport, lifecycle_routes},
    protocol::{
        Address,
        env::Environment,
        server::{TASK_LIMIT, health_route, serve_while, task_response},
        wire::{LearnerReport, LearnerTask, Role},
    },
};

/// The aggregator. Clones share their state.
#[derive(Clone, Debug)]
pub struct Aggregator {
    client: Client,
    endpoint: Endpoint,
    gate: PauseGate,
    /// Time between two polls.
    poll: Duration,
    panel: ControlPanel,
    /// Empty until all ranks have joined. A lost rank ends the learner group, so they never change.
    ranks: Arc<Mutex<Vec<Address>>>,
}

impl Aggregator {
    /// An aggregator whose ranks the endpoint lists.
    pub fn new(client: Client, environment: &Environment, poll: Duration) -> Self {
        let gate = PauseGate::new_unready();
        Self {
            endpoint: Endpoint::new(client.clone(), environment),
            panel: ControlPanel::new(client.clone(), gate.clone(), Configs::default()),
            ranks: Arc::default(),
            client,
            gate,
            poll,
        }
    }

    /// Serves tasks when the ranks have joined. Ends after an exit call, when the ranks are
    /// stopped, or when `shutdown` is ready.
    pub async fn run(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Result<()> {
        let router = Router::new()
            .route("/task", post(post_task))
            .with_state(self.clone())
            .merge(health_route())
            .merge(lifecycle_routes(self.clone()));
        let ended = async {
            tokio::select! {
                () = self.follow_ranks() => {}
                () = self.gate.wait_for_exit() => self.stop_ranks().await,
                () = shutdown => {}
            }
            self.gate.mark_ended(None);
        };
        serve_while(listener, router, ended).await
    }

    /// Waits until the ranks have joined, and then starts them with the aggregator.
    async fn follow_ranks(&self) {
        let mut logged = String::new();
        while let Err(error) = self.find_ranks().await {
            let why = chain(&error);
            if why != logged {
                tracing::info!("waiting for the ranks: {why}");
                logged = why;
            }
            sleep(self.poll).await;
        }
        tracing::info!("all ranks have joined");
        self.gate.mark_ready();
        loop {
            self.panel.poll_all(&self.list_members()).await;
            sleep(self.poll).await;
        }
    }

    /// Lists the ranks. Rank 0 answers when all have joined.
    async fn find_ranks(&self) -> Result<()> {
        let ranks = self.endpoint.list_ranks().await?;
        let ranks = ranks.iter().map(|url| Address::parse(url));
        let ranks: Vec<_> = ranks.collect::<Result<_>>()?;
        let rank_0 = ranks.first().ok_or(Error::NoRanks)?;
        self.panel.get_report(rank_0).await?;
        *self.lock_ranks() = ranks;
        Ok(())
    }

    /// Stops the ranks, rank 0 last: its loss would be a failure of the others, and theirs a
    /// failure of its task.
    async fn stop_ranks(&self) {
        let ranks = self.lock_ranks().clone();
        let (rank_0, others) = ranks.split_at(ranks.len().min(1));
        self.panel.call_all(Call::Pause, rank_0).await;
        self.panel.call_all(Call::Exit, others).await;
        self.panel.call_all(Call::Exit, rank_0).await;
    }

    /// Sends a task to rank 0.
    async fn run_task(&self, task: &LearnerTask) -> Result<LearnerReport> {
        let rank_0 = self.lock_ranks().first().cloned().ok_or(Error::NoRanks)?;
        let url = format!("http://{}/task", rank_0.url);
        let request = self.client.post(&url).json(task).timeout(TASK_LIMIT);
        send_task(request, url, rank_0.pod, TASK_LIMIT).await
    }

    fn list_members(&self) -> Vec<Member> {
        // Rank 0 sends its configuration to the others.
        let roles = std::iter::once(Some(Role::Learner)).chain(std::iter::repeat(None));
        roles.zip(self.lock_ranks().clone()).collect()
    }

    /// Locks the ranks. No code panics while it holds the lock.
    fn lock_ranks(&self) -> MutexGuard<'_, Vec<Address>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LifecycleHandles for Aggregator {
    fn current_report(&self) -> Report {
        self.gate.current_report()
    }

    async fn handle_call(&self, call: Call, config: Value) -> Result<Report> {
        if call == Call::Configure {
            let settings = serde_json::from_value(config);
            return self.panel.configure(Configs {
                learner: Some(settings.map_err(|error| Error::BadConfig(error.to_string()))?),
                collector: None,
            });
        }
        self.panel.handle_call(call, || self.list_members()).await
    }
}

async fn post_task(
    State(aggregator): State<Aggregator>,
    Json(task): Json<LearnerTask>,
) -> Response {
    let Some(in_flight) = aggregator.gate.try_admit() else {
        return task_response::<LearnerReport>(Err(Error::Paused));
    };
    let outcome = aggregator.run_task(&task).await;
    match &outcome {
        Ok(report) => {
            aggregator.gate.set_stats(report.stats());
            in_flight.complete(report.poll_result());
        }
        Err(error) => tracing::error!("task failed: {}", chain(error)),
    }
    task_response(outcome)
}
