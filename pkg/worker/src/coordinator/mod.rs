//! The coordinator: gets replicas from the endpoint, hands out tasks, and ends when the goal is
//! reached.
//!
//! 1. It checks that the storage is writable, and stores the first model or the model of the newest
//!    checkpoint.
//! 2. It requests replicas from the endpoint, unless the job declares them.
//! 3. It follows the endpoint's list in the background. It is the [control panel](crate::coordinator::panel) of
//!    the replicas: they run, pause and end with it.
//! 4. It trains and saves checkpoints.
//! 5. It leaves only the final model; after an interruption or an exit call also a checkpoint.

pub mod counts;
pub mod dispatch;
pub mod endpoint;
pub mod outcome;
pub mod panel;
mod pending_changes;
mod persisted_settings;
pub mod progress;
pub mod replica_table;
pub mod scale;
pub mod serial;
pub mod shared_replicas;
pub mod sweep;
pub mod training;

use std::{
    future::Future,
    time::{Duration, Instant, SystemTime},
};

use axum::{Json, Router, routing::get};
use reqwest::Client;
use tokio::{net::TcpListener, sync::watch, time::sleep};

use crate::{
    Result, chain,
    checkpoint::{
        Checkpoint, CheckpointPolicy, CheckpointStore,
        run::{RUN, Run, job_folder},
    },
    coordinator::{
        counts::Counts,
        dispatch::DispatchContext,
        endpoint::Endpoint,
        outcome::Outcome,
        panel::{ControlPanel, WorkerGroup, configs::Configs, handler::ControlPanelHandler},
        progress::{Progress, count_noun},
        replica_table::ReplicaTimeouts,
        scale::Scale,
        shared_replicas::SharedReplicas,
        training::{Goal, Stored, run_training},
    },
    lifecycle::{Call, PauseGate, lifecycle_routes},
    protocol::{
        env::Environment,
        server::{serve_while, with_limits},
        wire::Replicas,
    },
    storage::{
        Storage,
        blocking::{BlockingCell, run_blocking},
    },
};

use persisted_settings::PersistedSettings;

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

impl Options {
    const fn requested_counts(&self) -> Counts {
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
    gate: PauseGate,
    replicas: SharedReplicas,
    panel: ControlPanel,
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
        let job = environment.job_name().to_owned();
        let progress = watch::Sender::new(Progress {
            job,
            ..Progress::default()
        });
        let gate = PauseGate::new_running();
        Self {
            scale: Scale::new(
                options.requested_counts(),
                options.declared,
                environment.job_name(),
            ),
            replicas: SharedReplicas::new(options.patience),
            panel: ControlPanel::new(client.clone(), gate.clone(), options.configs.clone()),
            options,
            environment,
            storage,
            client,
            progress,
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
            let store = CheckpointStore::open(storage.clone(), &folder, (game, seed), keep)?;
            let begin = store
                .load_newest()?
                .unwrap_or_else(|| Checkpoint::new_initial(game, seed));
            let orders = store.load_settings()?;
            let run = Run::create(storage, &environment, &of, &begin.model)?;
            Ok((begin, orders, Stored { run, store }))
        };
        let (begin, orders, stored) = run_blocking(open).await?;
        if let Some(file) = orders {
            self.restore_settings(&file);
        }
        let folder = stored.run.folder().display().to_string();
        tracing::info!("training {game} in {folder}");
        self.progress.send_modify(|progress| {
            progress.run = folder;
            progress.iteration = begin.model.version;
            (progress.frames, progress.mean_return) = (begin.frames, begin.mean_return);
        });
        let stored = BlockingCell::new(stored);
        let trained = async {
            let outcome = tokio::select! {
                outcome = Box::pin(self.train_with_replicas(&id, &stored)) => outcome,
                () = self.gate.wait_for_exit() => Ok(Outcome::Ended),
                () = shutdown => Ok(Outcome::Interrupted),
            };
            self.gate
                .mark_ended(outcome.as_ref().err().map(|error| chain(error)));
            outcome
        };
        let outcome = serve_while(listener, with_limits(self.build_router()), trained)
            .await
            .flatten();
        let is_done = matches!(outcome, Ok(Outcome::Solved | Outcome::Unsolved));
        let orders = self.current_settings();
        let finish = move |Stored { run, store }: &mut Stored| {
            store.write_summary();
            let kept = if is_done {
                Ok(())
            } else {
                let kept = orders.save_to(store);
                kept.and(store.save(|| run.model()))
            };
            let finished = run.finish_run().map(|model| model.display().to_string());
            if is_done && finished.is_ok() {
                // Only after the model has its final name: a restart before that needs the
                // checkpoints.
                store.remove_finished();
            }
            kept.and(finished)
        };
        let finished = stored.run_exclusive(finish).await;
        if matches!(outcome, Ok(Outcome::Ended)) {
            let replicas = self.replicas.list_members().into_iter();
            let replicas: Vec<_> = replicas.map(|(_, address)| address).collect();
            tracing::info!("ending {}", count_noun(replicas.len(), "replica"));
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

    async fn train_with_replicas(
        &self,
        id: &str,
        stored: &BlockingCell<Stored>,
    ) -> Result<Outcome> {
        let Options {
            goal,
            endpoint_timeout,
            timeout,
            ..
        } = &self.options;
        let replicas = &self.replicas;
        // Changes after this point are stored.
        let kept = self.current_settings();
        let endpoint = Endpoint::new(self.client.clone(), &self.environment);
        let key = format!("{}-{id}", self.environment.pod);
        let mut granted = Replicas::default();
        if self.scale.is_fixed() {
            tracing::info!(
                "using the replicas that the job declares, listed by {}",
                endpoint.url()
            );
        } else {
            // Restored counts may exceed the quota: the training does not wait for more than the
            // flags say.
            let first @ Counts {
                collectors,
                learners,
            } = self
                .scale
                .wanted_counts()
                .min_of_each(self.options.requested_counts());
            tracing::info!("asking {} for {first}", endpoint.url());
            if first != Counts::default() {
                let acquired =
                    endpoint.acquire_replicas(collectors, learners, &key, *endpoint_timeout);
                granted = acquired.await?;
                replicas.sync_listed(&granted);
            }
        }
        let context = DispatchContext {
            client: &self.client,
            replicas,
            gate: &self.gate,
        };
        tokio::select! {
            solved = run_training(goal, context, stored, &self.progress) => {
                Ok(if solved? { Outcome::Solved } else { Outcome::Unsolved })
            }
            () = self.gate.run_for(*timeout) => Ok(Outcome::TimedOut),
            () = replicas.follow_endpoint(&endpoint) => Ok(Outcome::Interrupted),
            () = self.scale.follow_wanted(&endpoint, &key, self.options.patience.poll, &granted) => {
                Ok(Outcome::Interrupted)
            }
            () = self.panel.control_loop(replicas) => Ok(Outcome::Interrupted),
            () = self.persist_settings_loop(stored, kept) => Ok(Outcome::Interrupted),
        }
    }

    /// The settings of the command line.
    fn flag_settings(&self) -> (Counts, Configs) {
        (
            self.options.requested_counts(),
            self.options.configs.clone(),
        )
    }

    /// The current settings.
    fn current_settings(&self) -> PersistedSettings {
        PersistedSettings::new(
            self.flag_settings(),
            self.scale.wanted_counts(),
            self.panel.current_configs(),
        )
    }

    /// Restores the settings of the previous coordinator instance.
    fn restore_settings(&mut self, file: &[u8]) {
        let Some(orders) = PersistedSettings::parse_matching(file, &self.flag_settings()) else {
            return;
        };
        if orders != self.current_settings() {
            tracing::info!(
                "restored {} and the configurations of the previous coordinator",
                orders.counts
            );
        }
        self.panel.restore_configs(orders.configs);
        self.scale.restore_counts(orders.counts);
    }

    /// Stores the settings when they change, until dropped.
    async fn persist_settings_loop(
        &self,
        stored: &BlockingCell<Stored>,
        mut kept: PersistedSettings,
    ) {
        loop {
            sleep(self.options.patience.poll).await;
            let orders = self.current_settings();
            if orders == kept {
                continue;
            }
            let settings = orders.clone();
            let keep = move |stored: &mut Stored| settings.save_to(&stored.store);
            match stored.run_exclusive(keep).await {
                Ok(()) => kept = orders,
                Err(error) => {
                    tracing::warn!("cannot store the settings, retrying: {}", chain(&error));
                }
            }
        }
    }

    fn build_router(&self) -> Router {
        let progress = self.progress.subscribe();
        let status = move || {
            let now = progress.borrow().clone();
            async move { Json(now) }
        };
        Router::new()
            .route("/healthz", get(async || "ok"))
            .route("/status", get(status))
            .merge(self.scale.build_router())
            .merge(lifecycle_routes(ControlPanelHandler {
                panel: self.panel.clone(),
                group: self.replicas.clone(),
            }))
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
