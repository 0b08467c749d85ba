//! The aggregator: stands for the ranks of a learner of several GPUs. It takes the coordinator's tasks on, gives them to rank 0, and reports
//! what all ranks have trained together. It is the [panel](crate::panel) of its ranks.

mod ranks;

use std::{
    future::Future,
    time::{Duration, Instant},
};

use axum::{Json, Router, extract::State, response::Response, routing::post};
use reqwest::Client;
use tokio::{net::TcpListener, time::sleep};

use crate::{
    Address, Error, Result, chain,
    dispatch::call,
    endpoint::Endpoint,
    env::Environment,
    life::{Call, Counted, Gate, handles},
    panel::{Configs, Desk, Panel},
    server::{TASK_LIMIT, answer, bounded, healthy, serve_while},
    wire::{LearnerReport, LearnerTask},
};
use ranks::Ranks;

/// How long rank 0 may take to say that it is there.
const HEALTH_LIMIT: Duration = Duration::from_secs(3);

/// How long an aggregator waits for its ranks.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Pause between two looks for them.
    pub poll: Duration,
    /// How long a task waits for ranks that were there and are not now.
    pub task: Duration,
}

impl Default for Patience {
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
    gate: Gate,
    patience: Patience,
    panel: Panel,
    /// None before they are known.
    ranks: Ranks,
}

impl Aggregator {
    /// One whose ranks the endpoint lists.
    pub fn new(client: Client, environment: &Environment, patience: Patience) -> Self {
        let gate = Gate::unready();
        Self {
            endpoint: Endpoint::new(client.clone(), environment),
            panel: Panel::new(client.clone(), gate.clone(), Configs::default()),
            ranks: Ranks::new(gate.clone(), patience.poll),
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
            .route("/task", post(task))
            .with_state(self.clone())
            .merge(healthy())
            .merge(handles(Desk {
                panel: self.panel.clone(),
                crew: self.ranks.clone(),
            }));
        let ended = async {
            let lead = async {
                self.meet().await;
                self.panel.lead(&self.ranks).await;
            };
            tokio::select! {
                () = lead => {}
                () = self.gate.exiting() => self.end().await,
                () = shutdown => {}
            }
            self.gate.end(None);
        };
        serve_while(listener, bounded(router), ended).await
    }

    /// Waits until rank 0 takes tasks on, which it does once all ranks have met.
    async fn meet(&self) {
        let mut told = String::new();
        loop {
            match self.head().await {
                Ok(head) => {
                    tracing::info!("the ranks have met, rank 0 is {}", head.pod);
                    return self.gate.ready();
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
    async fn end(&self) {
        let ranks = self.ranks.all();
        let (head, others) = ranks.split_at(ranks.len().min(1));
        self.panel.call(Call::Pause, head).await;
        self.panel.call(Call::Exit, others).await;
        self.panel.call(Call::Exit, head).await;
    }

    /// Gives a task to rank 0, again where that was lost.
    async fn give(&self, task: &LearnerTask) -> Result<LearnerReport> {
        let start = Instant::now();
        loop {
            let error = match self.try_give(task).await {
                Err(error) if error.is_passing() => error,
                outcome => return outcome,
            };
            self.ranks.doubt();
            if start.elapsed() >= self.patience.task {
                return Err(error);
            }
            tracing::warn!("giving the task again: {}", chain(&error));
            sleep(self.patience.poll).await;
        }
    }

    async fn try_give(&self, task: &LearnerTask) -> Result<LearnerReport> {
        let head = self.head().await?;
        let url = format!("http://{}/task", head.url);
        let request = self.client.post(&url).json(task).timeout(TASK_LIMIT);
        call(request, url, head.pod, TASK_LIMIT).await
    }

    /// Rank 0: the first that the endpoint lists, if it takes tasks on, as no other does.
    async fn head(&self) -> Result<Address> {
        if let Some(head) = self.ranks.head() {
            return Ok(head);
        }
        let ranks = self.endpoint.ranks().await?;
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
        self.ranks.know(ranks);
        Ok(head)
    }
}

async fn task(State(aggregator): State<Aggregator>, Json(task): Json<LearnerTask>) -> Response {
    let Some(flight) = aggregator.gate.pass() else {
        return answer::<LearnerReport>(Err(Error::Paused));
    };
    let outcome = match aggregator.ranks.idle() {
        Some(idle) => Err(idle),
        None => aggregator.give(&task).await,
    };
    match &outcome {
        Ok(report) => {
            aggregator.gate.note(report.stats());
            flight.landed(report.polled());
        }
        // That was said when it was found.
        Err(Error::RankIdle { .. }) => {}
        Err(error) => tracing::error!("task failed: {}", chain(error)),
    }
    answer(outcome)
}
