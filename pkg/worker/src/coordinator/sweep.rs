//! A sweep over seeds: each replica trains alone with its own seed and reports to the coordinator,
//! which ends when it has all reports.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use axum::{Json, Router, extract::State, routing::post};
use reqwest::Client;
use serde::{Deserialize, Serialize};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    Result, chain,
    lifecycle::{PauseGate, lifecycle_routes},
    protocol::server::serve_while,
};

/// Report interval of a trial: a restarted coordinator has lost earlier reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);

/// The result of the training with one seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// The seed.
    pub seed: u64,
    /// Whether the goal was reached.
    pub solved: bool,
}

/// The reported seeds, and whether each was solved.
pub type Trials = BTreeMap<u64, bool>;

/// The result of a sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SweepResult {
    /// All wanted seeds were reported.
    All(Trials),
    /// An exit call ended the sweep.
    Ended,
    /// A signal terminated the process.
    Interrupted,
}

struct SweepState {
    trials: watch::Sender<Trials>,
    wanted: usize,
}

/// Waits for reports of `wanted` seeds, for an exit call, or until `shutdown` is ready.
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
            // The channel cannot close: the server holds the sender.
            Ok(trials) = seen.wait_for(|trials| trials.len() >= wanted) => {
                SweepResult::All(trials.clone())
            }
            () = gate.wait_for_exit() => SweepResult::Ended,
            () = shutdown => SweepResult::Interrupted,
        }
    };
    serve_while(listener, router, ended).await
}

async fn post_trial(State(sweep): State<Arc<SweepState>>, Json(trial): Json<Trial>) {
    sweep.trials.send_if_modified(|trials| {
        let is_new = trials.insert(trial.seed, trial.solved).is_none();
        if is_new {
            let (seed, count, wanted) = (trial.seed, trials.len(), sweep.wanted);
            let how = if trial.solved { "solved" } else { "not solved" };
            tracing::info!("seed {seed}: {how} ({count} of {wanted})");
        }
        is_new
    });
}

/// Reports a trial to the coordinator at `host:port` regularly, until dropped.
pub async fn report_trial(client: &Client, coordinator: &str, trial: Trial) {
    let url = format!("http://{coordinator}/trials");
    let mut was_accepted = None;
    loop {
        let request = client.post(&url).timeout(REPORT_TIMEOUT).json(&trial);
        let answer = request
            .send()
            .await
            .and_then(reqwest::Response::error_for_status);
        // Log changes only.
        if was_accepted.replace(answer.is_ok()) != Some(answer.is_ok()) {
            match answer {
                Ok(_) => tracing::info!(
                    "reported the result to {coordinator}, waiting for the end of the sweep"
                ),
                Err(error) => {
                    let why = chain(&error.without_url());
                    tracing::warn!("cannot report the result to {coordinator}, retrying: {why}");
                }
            }
        }
        tokio::time::sleep(REPORT_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::runtime::Runtime;

    use super::*;
    use crate::protocol::{http, server::listen};

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
        // A replacement reports the seed of a lost replica again.
        for (seed, solved) in [(0, true), (0, true), (1, false)] {
            spawn_report(port, seed, solved);
        }
        let result = collect_trials(listener, 2, pending()).await.unwrap();
        assert_eq!(
            result,
            SweepResult::All(Trials::from([(0, true), (1, false)]))
        );
    }

    #[tokio::test]
    async fn restarted_coordinator_receives_all_trials() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let port = socket.local_addr().unwrap().port();
        let again = socket.try_clone().unwrap();
        // Shutting down the runtime closes the connections, as the end of a process does.
        let first = Runtime::new().unwrap();
        let result = first.spawn(async {
            let listener = TcpListener::from_std(socket).unwrap();
            collect_trials(listener, 1, pending()).await.unwrap()
        });
        spawn_report(port, 0, true);
        let expected = SweepResult::All(Trials::from([(0, true)]));
        assert_eq!(result.await.unwrap(), expected);
        first.shutdown_background();

        let listener = TcpListener::from_std(again).unwrap();
        spawn_report(port, 1, true);
        let result = collect_trials(listener, 2, pending()).await.unwrap();
        assert_eq!(
            result,
            SweepResult::All(Trials::from([(0, true), (1, true)]))
        );
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
