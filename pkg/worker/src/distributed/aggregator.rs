//! The aggregator of a learner of several GPUs. It forwards the coordinator's tasks to rank 0 and
//! reports the result of all ranks. It is the [control panel](crate::coordinator::panel) of its ranks.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use axum::{Json, Router, extract::State, response::Response, routing::post};
use reqwest::Client;
use tokio::{net::TcpListener, time::sleep};

use super::rank_group::RankGroup;
use crate::{
    Error, Result, chain,
    coordinator::{
        dispatch::send_task,
        endpoint::Endpoint,
        panel::{ControlPanel, configs::Configs, handler::ControlPanelHandler},
    },
    lifecycle::{Call, PauseGate, TaskReport, lifecycle_routes},
    protocol::{
        Address,
        env::Environment,
        server::{TASK_LIMIT, health_route, serve_while, task_response, with_limits},
        wire::{LearnerReport, LearnerTask},
    },
};

/// Timeout of the status request to rank 0.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);

/// How long an aggregator waits for its ranks.
#[derive(Clone, Copy, Debug)]
pub struct AggregatorTimeouts {
    /// Time between two polls.
    pub poll: Duration,
    /// How long a task waits for ranks that are temporarily unreachable.
    pub task: Duration,
}

impl Default for AggregatorTimeouts {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(1),
            task: Duration::from_secs(30),
        }
    }
}

/// The aggregator.
#[derive(Clone, Debug)]
pub struct Aggregator {
    client: Client,
    endpoint: Endpoint,
    gate: PauseGate,
    patience: AggregatorTimeouts,
    panel: ControlPanel,
    /// Empty until the ranks are known.
    ranks: RankGroup,
}

impl Aggregator {
    /// An aggregator whose ranks the endpoint lists.
    pub fn new(client: Client, environment: &Environment, patience: AggregatorTimeouts) -> Self {
        let gate = PauseGate::new_unready();
        Self {
            endpoint: Endpoint::new(client.clone(), environment),
            panel: ControlPanel::new(client.clone(), gate.clone(), Configs::default()),
            ranks: RankGroup::new(gate.clone(), patience.poll),
            client,
            gate,
            patience,
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
            .merge(lifecycle_routes(ControlPanelHandler {
                panel: self.panel.clone(),
                group: self.ranks.clone(),
            }));
        let ended = async {
            let lead = async {
                self.wait_for_ranks().await;
                self.panel.control_loop(&self.ranks).await;
            };
            tokio::select! {
                () = lead => {}
                () = self.gate.wait_for_exit() => self.stop_ranks().await,
                () = shutdown => {}
            }
            self.gate.mark_ended(None);
        };
        serve_while(listener, with_limits(router), ended).await
    }

    /// Waits until rank 0 accepts tasks, which it does when all ranks have joined.
    async fn wait_for_ranks(&self) {
        let mut logged = String::new();
        loop {
            match self.find_rank_0().await {
                Ok(head) => {
                    tracing::info!("all ranks have joined, rank 0 is {}", head.pod);
                    return self.gate.mark_ready();
                }
                Err(error) => {
                    let why = chain(&error);
                    if why != logged {
                        tracing::info!("waiting for the ranks: {why}");
                        logged = why;
                    }
                }
            }
            sleep(self.patience.poll).await;
        }
    }

    /// Stops the ranks, rank 0 last: its loss would be a failure of the others, and theirs a
    /// failure of its task.
    async fn stop_ranks(&self) {
        let ranks = self.ranks.all_ranks();
        let (rank_0, others) = ranks.split_at(ranks.len().min(1));
        self.panel.call_all(Call::Pause, rank_0).await;
        self.panel.call_all(Call::Exit, others).await;
        self.panel.call_all(Call::Exit, rank_0).await;
    }

    /// Sends a task to rank 0, and retries if rank 0 is lost.
    async fn run_task(&self, task: &LearnerTask) -> Result<LearnerReport> {
        let start = Instant::now();
        loop {
            let error = match self.try_run_task(task).await {
                Err(error) if error.is_transient() => error,
                outcome => return outcome,
            };
            self.ranks.mark_uncertain();
            if start.elapsed() >= self.patience.task {
                return Err(error);
            }
            tracing::warn!(
                "sending the task to rank 0 failed, retrying: {}",
                chain(&error)
            );
            sleep(self.patience.poll).await;
        }
    }

    async fn try_run_task(&self, task: &LearnerTask) -> Result<LearnerReport> {
        let head = self.find_rank_0().await?;
        let url = format!("http://{}/task", head.url);
        let request = self.client.post(&url).json(task).timeout(TASK_LIMIT);
        send_task(request, url, head.pod, TASK_LIMIT).await
    }

    /// Rank 0: the first listed rank, if it accepts tasks.
    async fn find_rank_0(&self) -> Result<Address> {
        if let Some(head) = self.ranks.known_rank_0() {
            return Ok(head);
        }
        let ranks = self.endpoint.list_ranks().await?;
        let ranks: Vec<_> = ranks
            .iter()
            .map(|url| Address::parse(url))
            .collect::<Result<_>>()?;
        let head = ranks.first().cloned().ok_or(Error::NoHead)?;
        let url = format!("http://{}/status", head.url);
        let answer = self.client.get(&url).timeout(STATUS_TIMEOUT).send().await;
        let answer = answer.map_err(|source| Error::Unreachable { url, source })?;
        if !answer.status().is_success() {
            return Err(Error::NoHead);
        }
        self.ranks.set_ranks(ranks);
        Ok(head)
    }
}

async fn post_task(
    State(aggregator): State<Aggregator>,
    Json(task): Json<LearnerTask>,
) -> Response {
    let Some(in_flight) = aggregator.gate.try_admit() else {
        return task_response::<LearnerReport>(Err(Error::Paused));
    };
    let outcome = match aggregator.ranks.idle_rank_error() {
        Some(idle) => Err(idle),
        None => aggregator.run_task(&task).await,
    };
    match &outcome {
        Ok(report) => {
            aggregator.gate.set_stats(report.stats());
            in_flight.complete(report.poll_result());
        }
        // The idle rank is logged when it is detected.
        Err(Error::RankIdle { .. }) => {}
        Err(error) => tracing::error!("task failed: {}", chain(error)),
    }
    task_response(outcome)
}
