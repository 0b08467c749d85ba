//! The coordinator: gets replicas from the endpoint, hands out tasks, and ends when the goal is
//! reached.
//!
//! 1. It stores the first model or the model of the newest checkpoint.
//! 2. It requests replicas from the endpoint, unless the job declares them.
//! 3. It follows the endpoint's list in the background, so that it uses all replicas that are added
//!    later. It is the [control panel](crate::coordinator::panel) of the replicas: they run, pause
//!    and end with it.
//! 4. It trains and saves checkpoints.
//! 5. It leaves only the final model; after an interruption or an exit call also a checkpoint.

pub mod dispatch;
pub mod endpoint;
pub mod panel;
pub mod progress;
pub mod replica_table;
pub mod serial;
pub mod shared_replicas;
pub mod sweep;
pub mod training;

use std::{
    future::Future,
    time::{Duration, Instant, SystemTime},
};

use axum::Router;
use reqwest::Client;
use serde_json::Value;
use tokio::{net::TcpListener, sync::watch};

use crate::{
    Error, Result, chain,
    checkpoint::{
        Checkpoint, CheckpointPolicy, CheckpointStore,
        run::{RUN, Run},
    },
    coordinator::{
        dispatch::DispatchContext,
        endpoint::Endpoint,
        panel::{Configs, ControlPanel},
        progress::{Outcome, Progress},
        replica_table::ReplicaTimeouts,
        shared_replicas::SharedReplicas,
        training::{Goal, Stored, run_training},
    },
    lifecycle::{Call, LifecycleHandles, PauseGate, Report, lifecycle_routes},
    protocol::{
        env::Environment,
        server::{health_route, serve_while},
    },
    storage::Storage,
};

/// The options of the command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The goal of the training.
    pub goal: Goal,
    /// Collectors to request.
    pub collectors: u32,
    /// Learners to request.
    pub learners: u32,
    /// Requests no replicas: the spec of the job declares them.
    pub declared: bool,
    /// How long to retry an endpoint that does not answer.
    pub endpoint_timeout: Duration,
    /// Time limit of the training.
    pub timeout: Duration,
    /// When a replica counts as lost.
    pub patience: ReplicaTimeouts,
    /// When checkpoints are saved.
    pub keep: CheckpointPolicy,
    /// Configurations of the replicas.
    pub configs: Configs,
}

/// One start of a coordinator.
#[derive(Debug)]
pub struct Coordinator {
    options: Options,
    environment: Environment,
    storage: Storage,
    client: Client,
    progress: watch::Sender<Progress>,
    gate: PauseGate,
    replicas: SharedReplicas,
    panel: ControlPanel,
}

impl Coordinator {
    /// A coordinator that has not started.
    pub fn new(
        options: Options,
        environment: Environment,
        storage: Storage,
        client: Client,
    ) -> Self {
        let gate = PauseGate::new_running();
        Self {
            replicas: SharedReplicas::new(options.patience),
            panel: ControlPanel::new(client.clone(), gate.clone(), options.configs.clone()),
            options,
            environment,
            storage,
            client,
            progress: watch::Sender::default(),
            gate,
        }
    }

    /// Subscribes to the progress.
    pub fn subscribe_progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// Trains until the goal, an exit call, or until `shutdown` is ready. Serves `listener`
    /// meanwhile.
    pub async fn run(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Outcome> {
        let start = Instant::now();
        let id = start_id();
        let mut stored = self.open_stored(&id)?;
        let handles = Handles {
            panel: self.panel.clone(),
            replicas: self.replicas.clone(),
        };
        let router = Router::new()
            .merge(health_route())
            .merge(lifecycle_routes(handles));
        let trained = async {
            let outcome = tokio::select! {
                outcome = Box::pin(self.train_with_replicas(&id, &mut stored)) => outcome,
                () = self.gate.wait_for_exit() => Ok(Outcome::Ended),
                () = shutdown => Ok(Outcome::Interrupted),
            };
            self.gate
                .mark_ended(outcome.as_ref().err().map(|error| chain(error)));
            outcome
        };
        let outcome = serve_while(listener, router, trained).await.flatten();
        let finished = finish_training(&mut stored, outcome.as_ref().ok());
        if matches!(outcome, Ok(Outcome::Ended)) {
            let members = self.replicas.list_members().into_iter();
            let replicas: Vec<_> = members.map(|(_, address)| address).collect();
            self.panel.call_all(Call::Exit, &replicas).await;
        }
        // The error of the training matters more than the error of the clean-up.
        let (outcome, model) = (outcome?, finished?);
        tracing::info!("stored the final model in {model}");
        let episodes = self.options.goal.evaluation_episodes;
        let summary = outcome.summary_line(&self.progress.borrow(), episodes, start.elapsed());
        tracing::info!("{summary}");
        Ok(outcome)
    }

    /// Opens the folder of the job with the newest checkpoint, or the first model.
    fn open_stored(&self, id: &str) -> Result<Stored> {
        let Options { goal, keep, .. } = &self.options;
        let job = self.storage.root().join(self.environment.job_folder()?);
        let store = CheckpointStore::open(self.storage.clone(), &job, goal.seed, *keep)?;
        let begin = store.load_newest()?;
        let begin = begin.unwrap_or_else(|| Checkpoint::new_initial(goal.seed));
        let run = Run::create(self.storage.clone(), &job, id, &begin.model)?;
        tracing::info!("training in {}", run.folder().display());
        self.progress.send_modify(|progress| {
            progress.iteration = begin.model.version;
            (progress.frames, progress.mean_return) = (begin.frames, begin.mean_return);
        });
        Ok(Stored { run, store })
    }

    async fn train_with_replicas(&self, id: &str, stored: &mut Stored) -> Result<Outcome> {
        let (options, replicas) = (&self.options, &self.replicas);
        let endpoint = Endpoint::new(self.client.clone(), &self.environment);
        let counts @ (collectors, learners) = (options.collectors, options.learners);
        if options.declared || counts == (0, 0) {
            tracing::info!("using the declared replicas, listed by {}", endpoint.url());
        } else {
            tracing::info!(
                "asking {} for {collectors} collectors and {learners} learners",
                endpoint.url()
            );
            let key = format!("{}-{id}", self.environment.pod);
            let granted = endpoint.acquire_replicas(counts, &key, options.endpoint_timeout);
            replicas.sync_listed(&granted.await?);
        }
        let context = DispatchContext {
            client: &self.client,
            replicas,
            gate: &self.gate,
        };
        tokio::select! {
            solved = run_training(&options.goal, context, stored, &self.progress) => {
                Ok(if solved? { Outcome::Solved } else { Outcome::Unsolved })
            }
            () = self.gate.run_for(options.timeout) => Ok(Outcome::TimedOut),
            () = replicas.follow_endpoint(&endpoint) => Ok(Outcome::Interrupted),
            () = replicas.poll_loop(&self.panel) => Ok(Outcome::Interrupted),
        }
    }
}

/// Leaves the final model, and a checkpoint unless the training is done. Returns the model's path.
fn finish_training(
    Stored { run, store }: &mut Stored,
    outcome: Option<&Outcome>,
) -> Result<String> {
    let is_done = matches!(outcome, Some(Outcome::Solved | Outcome::Unsolved));
    let saved = if is_done {
        Ok(())
    } else {
        store.save(|| run.model())
    };
    let model = run.finish_run()?.display().to_string();
    if is_done {
        // Only after the model has its final name: a restart before that needs the checkpoints.
        store.remove_finished();
    }
    saved.map(|()| model)
}

/// The life-cycle handles of a coordinator: a call applies to all replicas.
#[derive(Clone, Debug)]
struct Handles {
    panel: ControlPanel,
    replicas: SharedReplicas,
}

impl LifecycleHandles for Handles {
    fn current_report(&self) -> Report {
        self.panel.current_report()
    }

    async fn handle_call(&self, call: Call, config: Value) -> Result<Report> {
        if call == Call::Configure {
            let configs = serde_json::from_value(config);
            let configs = configs.map_err(|error| Error::BadConfig(error.to_string()))?;
            return self.panel.configure(configs);
        }
        let members = || self.replicas.list_members();
        self.panel.handle_call(call, members).await
    }
}

/// A unique id of this start, sortable by time.
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
