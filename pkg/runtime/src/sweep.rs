//! A sweep over seeds: each replica trains alone with a seed of its own and tells the coordinator, which ends when it has been told of
//! as many as it waits for.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use axum::{Json, Router, extract::State, routing::post};
use reqwest::Client;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    Result, chain,
    lifecycle::{PauseGate, lifecycle_routes},
    server::serve_while,
};

/// How often a trial tells again: a coordinator that was started anew knows nothing of what the one before it was told.
const AGAIN: Duration = Duration::from_secs(1);
/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(3);

/// How the training with one seed ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The seed.
    pub seed: u64,
    /// Whether the goal was reached.
    pub solved: bool,
}

/// Seeds that were told of, and whether each was solved.
pub type Trials = BTreeMap<u64, bool>;

/// How a sweep ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SweepResult {
    /// It was told of all that were wanted.
    All(Trials),
    /// It was told to exit by its handle.
    Ended,
    /// Somebody asked the process to end.
    Interrupted,
}

struct SweepState {
    trials: watch::Sender<Trials>,
    wanted: usize,
}

/// Waits until it was told of as many seeds as are `wanted`, or to exit, or `shutdown` is ready.
pub async fn collect_trials(
    listener: TcpListener,
    wanted: usize,
    shutdown: impl Future<Output = ()>,
) -> Result<SweepResult> {
    let (trials, mut seen) = watch::channel(Trials::new());
    let gate = PauseGate::new_running();
    let router = Router::new()
        .route("/trials", post(post_trial))
        .with_state(Arc::new(SweepState { trials, wanted }))
        .merge(lifecycle_routes(gate.clone()));
    let ended = async {
        tokio::select! {
            // It cannot close: the server has the sender of it.
            Ok(told) = seen.wait_for(|trials| trials.len() >= wanted) => {
                SweepResult::All(told.clone())
            }
            () = gate.wait_for_exit() => SweepResult::Ended,
            () = shutdown => SweepResult::Interrupted,
        }
    };
    serve_while(listener, router, ended).await
}

async fn post_trial(State(told): State<Arc<SweepState>>, Json(trial): Json<Trial>) {
    told.trials.send_if_modified(|trials| {
        let is_new = trials.insert(trial.seed, trial.solved).is_none();
        if is_new {
            let (seed, count, wanted) = (trial.seed, trials.len(), told.wanted);
            let how = if trial.solved { "solved" } else { "not solved" };
            tracing::info!("seed {seed}: {how} ({count} of {wanted})");
        }
        is_new
    });
}

/// Tells the coordinator, which is at `host:port`, how a trial ended: again and again, until it is told to end.
pub async fn report_trial(client: &Client, coordinator: &str, trial: Trial) {
    let url = format!("http://{coordinator}/trials");
    let mut was_told = None;
    loop {
        let request = client.post(&url).timeout(LIMIT).json(&trial);
        let answer = request
            .send()
            .await
            .and_then(reqwest::Response::error_for_status);
        // What stays as it was is not told of again.
        if was_told.replace(answer.is_ok()) != Some(answer.is_ok()) {
            match answer {
                Ok(_) => tracing::info!("told {coordinator}; waiting for the end of the sweep"),
                Err(error) => {
                    let why = chain(&error.without_url());
                    tracing::warn!("cannot tell {coordinator}, trying again: {why}");
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::runtime::Runtime;

    use super::*;
    use crate::{http, server::listen};

    fn spawn_report(port: u16, seed: u64, solved: bool) {
        tokio::spawn(async move {
            let client = http::new_client().unwrap();
            let trial = Trial { seed, solved };
            report_trial(&client, &format!("127.0.0.1:{port}"), trial).await;
        });
    }

    #[tokio::test]
    async fn sweep_ends_after_every_seed_reported() {
        let listener = listen(0).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Two replicas with one seed are one trial: one that was lost had told, and its replacement tells too.
        for (seed, solved) in [(0, true), (0, true), (1, false)] {
            spawn_report(port, seed, solved);
        }
        let heard = collect_trials(listener, 2, pending()).await.unwrap();
        assert_eq!(heard, SweepResult::All(Trials::from([(0, true), (1, false)])));
    }

    #[tokio::test]
    async fn restarted_coordinator_receives_all_trials() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        let again = socket.try_clone().unwrap();
        // With its runtime it loses its connections, as with its process.
        let first = Runtime::new().unwrap();
        let heard = first.spawn(async {
            let listener = TcpListener::from_std(socket).unwrap();
            collect_trials(listener, 1, pending()).await.unwrap()
        });
        spawn_report(port, 0, true);
        let first_heard = SweepResult::All(Trials::from([(0, true)]));
        assert_eq!(heard.await.unwrap(), first_heard);
        first.shutdown_background();

        let listener = TcpListener::from_std(again).unwrap();
        spawn_report(port, 1, true);
        let heard = collect_trials(listener, 2, pending()).await.unwrap();
        assert_eq!(heard, SweepResult::All(Trials::from([(0, true), (1, true)])));
    }

    #[tokio::test]
    async fn sweep_ends_on_exit_call() {
        let listener = listen(0).await.unwrap();
        let gathered = collect_trials(listener, 1, async {}).await.unwrap();
        assert_eq!(gathered, SweepResult::Interrupted);

        let listener = listen(0).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let gathering = tokio::spawn(collect_trials(listener, 1, pending()));
        let url = format!("http://127.0.0.1:{port}/lifecycle/exit");
        let answer = http::new_client().unwrap().post(url).send().await.unwrap();
        assert!(answer.status().is_success());
        assert_eq!(gathering.await.unwrap().unwrap(), SweepResult::Ended);
    }
}
