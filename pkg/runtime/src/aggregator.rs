//! The aggregator: stands for the ranks of a learner of several GPUs. It takes the coordinator's tasks on, gives them to rank 0, and reports
//! what all ranks have trained together. It is the [panel](crate::panel) of its ranks.

mod rank_group;

use std::{
    future::Future,
    time::{Duration, Instant},
};

use axum::{Json, Router, extract::State, response::Response, routing::post};
use reqwest::Client;
use tokio::{net::TcpListener, time::sleep};

use crate::{
    Address, Error, Result, chain,
    dispatch::send_task,
    endpoint::Endpoint,
    env::Environment,
    lifecycle::{Call, TaskReport, PauseGate, lifecycle_routes},
    panel::{Configs, ControlPanelHandler, ControlPanel},
    server::{TASK_LIMIT, task_response, with_limits, health_route, serve_while},
    wire::{LearnerReport, LearnerTask},
};
use rank_group::RankGroup;

/// How long rank 0 may take to say that it is there.
const HEALTH_LIMIT: Duration = Duration::from_secs(3);

/// How long an aggregator waits for its ranks.
#[derive(Clone, Copy, Debug)]
pub struct AggregatorTimeouts {
    /// Pause between two looks for them.
    pub poll: Duration,
    /// How long a task waits for ranks that were there and are not now.
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

/// An aggregator that has not started.
#[derive(Clone, Debug)]
pub struct Aggregator {
    client: Client,
    endpoint: Endpoint,
    gate: PauseGate,
    patience: AggregatorTimeouts,
    panel: ControlPanel,
    /// None before they are known.
    ranks: RankGroup,
}

impl Aggregator {
    /// One whose ranks the endpoint lists.
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

    /// Can be started as soon as the ranks have met; until it is told to exit, and has told the ranks, or `shutdown` is ready.
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
                crew: self.ranks.clone(),
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

    /// Waits until rank 0 takes tasks on, which it does once all ranks have met.
    async fn wait_for_ranks(&self) {
        let mut told = String::new();
        loop {
            match self.find_rank_0().await {
                Ok(head) => {
                    tracing::info!("the ranks have met, rank 0 is {}", head.pod);
                    return self.gate.mark_ready();
                }
                Err(error) => {
                    let why = chain(&error);
                    if why != told {
                        tracing::info!("waiting for the ranks: {why}");
                        told = why;
                    }
                }
            }
            sleep(self.patience.poll).await;
        }
    }

    /// Has the ranks end, rank 0 as the last one: to the others, its loss is a failure, and to it, theirs in a task that it has in hand.
    async fn stop_ranks(&self) {
        let ranks = self.ranks.all_ranks();
        let (head, others) = ranks.split_at(ranks.len().min(1));
        self.panel.call_all(Call::Pause, head).await;
        self.panel.call_all(Call::Exit, others).await;
        self.panel.call_all(Call::Exit, head).await;
    }

    /// Gives a task to rank 0, again where that was lost.
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
            tracing::warn!("giving the task again: {}", chain(&error));
            sleep(self.patience.poll).await;
        }
    }

    async fn try_run_task(&self, task: &LearnerTask) -> Result<LearnerReport> {
        let head = self.find_rank_0().await?;
        let url = format!("http://{}/task", head.url);
        let request = self.client.post(&url).json(task).timeout(TASK_LIMIT);
        send_task(request, url, head.pod, TASK_LIMIT).await
    }

    /// Rank 0: the first that the endpoint lists, if it takes tasks on, as no other does.
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
        let answer = self.client.get(&url).timeout(HEALTH_LIMIT).send().await;
        let answer = answer.map_err(|source| Error::Unreachable { url, source })?;
        if !answer.status().is_success() {
            return Err(Error::NoHead);
        }
        self.ranks.set_ranks(ranks);
        Ok(head)
    }
}

async fn post_task(State(aggregator): State<Aggregator>, Json(task): Json<LearnerTask>) -> Response {
    let Some(flight) = aggregator.gate.try_admit() else {
        return task_response::<LearnerReport>(Err(Error::Paused));
    };
    let outcome = match aggregator.ranks.idle_rank_error() {
        Some(idle) => Err(idle),
        None => aggregator.run_task(&task).await,
    };
    match &outcome {
        Ok(report) => {
            aggregator.gate.set_stats(report.stats());
            flight.complete(report.poll_result());
        }
        // That was said when it was found.
        Err(Error::RankIdle { .. }) => {}
        Err(error) => tracing::error!("task failed: {}", chain(error)),
    }
    task_response(outcome)
}
