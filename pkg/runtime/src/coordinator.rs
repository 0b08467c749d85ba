//! The coordinator: gets replicas from the endpoint, hands out tasks, ends when the goal is
//! reached.
//!
//! 1. proves that the storage can be written to, and puts the first model there, or that of the
//!    newest checkpoint,
//! 2. asks the endpoint for replicas, unless the job declares them itself,
//! 3. follows the endpoint's list in the background, and is the [panel](crate::panel) of the replicas: has them run, pause and end as
//!    it does itself,
//! 4. trains, and saves a checkpoint every so often,
//! 5. leaves only the final model; when it was interrupted or told to end, a checkpoint too.

mod orders;

use std::{
    future::Future,
    time::{Duration, Instant, SystemTime},
};

use axum::{Json, Router, routing::get};
use reqwest::Client;
use tokio::{net::TcpListener, sync::watch, time::sleep};

use crate::{
    Result,
    beside::{Beside, beside},
    chain,
    checkpoint::{Checkpoint, Keep, Keeper},
    dispatch::Field,
    endpoint::Endpoint,
    env::Environment,
    fleet::Patience,
    life::{Call, Gate, handles},
    outcome::Outcome,
    panel::{Configs, Crew, Desk, Panel},
    progress::{Progress, count},
    roster::Roster,
    run::{RUN, Run, job_folder},
    scale::{Counts, Scale},
    server::{bounded, serve_while},
    storage::Storage,
    training::{Goal, Stored, train},
    wire::Replicas,
};

use orders::Orders;

/// What the coordinator is told by its command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to train for.
    pub goal: Goal,
    /// Collectors to ask for.
    pub collectors: u32,
    /// Learners to ask for.
    pub learners: u32,
    /// Asks for none: the job's own spec declares the replicas.
    pub declared: bool,
    /// How long to ask an endpoint that does not answer.
    pub endpoint_timeout: Duration,
    /// How long to train in all.
    pub timeout: Duration,
    /// When a replica counts as lost.
    pub patience: Patience,
    /// When checkpoints are saved.
    pub keep: Keep,
    /// What replicas are configured with.
    pub configs: Configs,
}

impl Options {
    const fn counts(&self) -> Counts {
        Counts {
            collectors: self.collectors,
            learners: self.learners,
        }
    }
}

/// One start of a coordinator.
#[derive(Debug)]
pub struct Coordinator {
    options: Options,
    environment: Environment,
    storage: Storage,
    client: Client,
    progress: watch::Sender<Progress>,
    gate: Gate,
    roster: Roster,
    panel: Panel,
    scale: Scale,
}

impl Coordinator {
    /// A coordinator that has not started.
    pub fn new(
        options: Options,
        environment: Environment,
        storage: Storage,
        client: Client,
    ) -> Self {
        let job = environment.job().to_owned();
        let progress = watch::Sender::new(Progress {
            job,
            ..Progress::default()
        });
        let gate = Gate::running();
        Self {
            scale: Scale::new(options.counts(), options.declared, environment.job()),
            roster: Roster::new(options.patience),
            panel: Panel::new(client.clone(), gate.clone(), options.configs.clone()),
            options,
            environment,
            storage,
            client,
            progress,
            gate,
        }
    }

    /// Follows the progress.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Trains to the end, or until it is told to exit or `shutdown` is ready; tells on `listener` how it goes.
    pub async fn run(
        mut self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Outcome> {
        let start = Instant::now();
        let id = start_id();
        let Goal { game, seed, .. } = self.options.goal;
        let (storage, environment) = (self.storage.clone(), self.environment.clone());
        let (keep, of) = (self.options.keep, id.clone());
        let open = move || {
            let folder = job_folder(&storage, &environment)?;
            let keeper = Keeper::open(storage.clone(), &folder, (game, seed), keep)?;
            let begin = keeper
                .newest()?
                .unwrap_or_else(|| Checkpoint::first(game, seed));
            let orders = keeper.orders()?;
            let run = Run::create(storage, &environment, &of, &begin.model)?;
            Ok((begin, orders, Stored { run, keeper }))
        };
        let (begin, orders, stored) = beside(open).await?;
        if let Some(file) = orders {
            self.obey(&file);
        }
        let folder = stored.run.folder().display().to_string();
        tracing::info!("training {game} in {folder}");
        self.progress.send_modify(|progress| {
            progress.run = folder;
            progress.iteration = begin.model.version;
            (progress.frames, progress.mean_return) = (begin.frames, begin.mean_return);
        });
        let stored = Beside::new(stored);
        let trained = async {
            let outcome = tokio::select! {
                outcome = Box::pin(self.work(&id, &stored)) => outcome,
                () = self.gate.exiting() => Ok(Outcome::Ended),
                () = shutdown => Ok(Outcome::Interrupted),
            };
            self.gate
                .end(outcome.as_ref().err().map(|error| chain(error)));
            outcome
        };
        let outcome = serve_while(listener, bounded(self.router()), trained)
            .await
            .flatten();
        let is_done = matches!(outcome, Ok(Outcome::Solved | Outcome::Unsolved));
        let orders = self.orders();
        let finish = move |Stored { run, keeper }: &mut Stored| {
            keeper.sum_up();
            let kept = if is_done {
                Ok(())
            } else {
                let kept = orders.keep(keeper);
                kept.and(keeper.save(|| run.model()))
            };
            let finished = run.finish().map(|model| model.display().to_string());
            if is_done && finished.is_ok() {
                // Only now: until the model is in its place, it is to be gone on from.
                keeper.done();
            }
            kept.and(finished)
        };
        let finished = stored.work(finish).await;
        if matches!(outcome, Ok(Outcome::Ended)) {
            let replicas = self.roster.members().into_iter();
            let replicas: Vec<_> = replicas.map(|(_, address)| address).collect();
            tracing::info!("ending {}", count(replicas.len(), "replica"));
            self.panel.call(Call::Exit, &replicas).await;
        }
        // Why the training failed matters more than why cleaning up after it did.
        let (outcome, model) = (outcome?, finished?);
        tracing::info!("the model is in {model}");
        let episodes = self.options.goal.evaluation_episodes;
        let summary = outcome.summary(&self.progress.borrow(), episodes, start.elapsed());
        tracing::info!("{summary}");
        Ok(outcome)
    }

    async fn work(&self, id: &str, stored: &Beside<Stored>) -> Result<Outcome> {
        let Options {
            goal,
            endpoint_timeout,
            timeout,
            ..
        } = &self.options;
        let roster = &self.roster;
        // What is told from now on.
        let kept = self.orders();
        let endpoint = Endpoint::new(self.client.clone(), &self.environment);
        let key = format!("{}-{id}", self.environment.pod);
        let mut granted = Replicas::default();
        if self.scale.is_fixed() {
            tracing::info!(
                "using the replicas that the job declares, listed by {}",
                endpoint.url()
            );
        } else {
            // More were wanted since, but it may be that there can be none: no training waits for those.
            let first @ Counts {
                collectors,
                learners,
            } = self.scale.wanted().least(self.options.counts());
            tracing::info!("asking {} for {first}", endpoint.url());
            if first != Counts::default() {
                let acquired = endpoint.acquire(collectors, learners, &key, *endpoint_timeout);
                granted = acquired.await?;
                roster.sync(&granted);
            }
        }
        let field = Field {
            client: &self.client,
            roster,
            gate: &self.gate,
        };
        tokio::select! {
            solved = train(goal, field, stored, &self.progress) => {
                Ok(if solved? { Outcome::Solved } else { Outcome::Unsolved })
            }
            () = self.gate.run_for(*timeout) => Ok(Outcome::TimedOut),
            () = roster.follow(&endpoint) => Ok(Outcome::Interrupted),
            () = self.scale.follow(&endpoint, &key, self.options.patience.poll, &granted) => {
                Ok(Outcome::Interrupted)
            }
            () = self.panel.lead(roster) => Ok(Outcome::Interrupted),
            () = self.remember(stored, kept) => Ok(Outcome::Interrupted),
        }
    }

    /// What the command line says.
    fn flags(&self) -> (Counts, Configs) {
        (self.options.counts(), self.options.configs.clone())
    }

    /// What it was told.
    fn orders(&self) -> Orders {
        Orders::new(self.flags(), self.scale.wanted(), self.panel.configs())
    }

    /// Goes by what the one before it was told.
    fn obey(&mut self, file: &[u8]) {
        let Some(orders) = Orders::read(file, &self.flags()) else {
            return;
        };
        if orders != self.orders() {
            tracing::info!(
                "going on with {} and the last configurations",
                orders.counts
            );
        }
        self.panel.restore(orders.configs);
        self.scale.restore(orders.counts);
    }

    /// Keeps what it is told beside what is kept, for ever.
    async fn remember(&self, stored: &Beside<Stored>, mut kept: Orders) {
        loop {
            sleep(self.options.patience.poll).await;
            let orders = self.orders();
            if orders == kept {
                continue;
            }
            let told = orders.clone();
            let keep = move |stored: &mut Stored| told.keep(&stored.keeper);
            match stored.work(keep).await {
                Ok(()) => kept = orders,
                Err(error) => tracing::warn!("orders are not kept yet: {}", chain(&error)),
            }
        }
    }

    fn router(&self) -> Router {
        let progress = self.progress.subscribe();
        let status = move || {
            let now = progress.borrow().clone();
            async move { Json(now) }
        };
        Router::new()
            .route("/healthz", get(async || "ok"))
            .route("/status", get(status))
            .merge(self.scale.router())
            .merge(handles(Desk {
                panel: self.panel.clone(),
                crew: self.roster.clone(),
            }))
    }
}

/// Names this start of the coordinator: sortable by time, and never the same twice.
fn start_id() -> String {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    format!(
        "{RUN}{}-{:08x}",
        since_epoch.as_secs(),
        rand::random::<u32>()
    )
}
