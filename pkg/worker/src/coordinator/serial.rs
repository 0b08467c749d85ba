//! A serial training in one process: for a job with only a coordinator, and for a trial of a sweep.
//!
//! The [runner](Runner) drives the components of the [`sampler`](crate::sampler) and a learner, on
//! one event loop or on threads. As in [`training`](crate::coordinator::training), all randomness of an
//! iteration is derived from the seed and the iteration number.

mod runner;

use std::{
    future::Future,
    ops::ControlFlow,
    pin::pin,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    Result,
    checkpoint::CheckpointStore,
    coordinator::{progress::Outcome, training::Goal},
    environment::cartpole_factory,
    learner::settings::Settings,
    lifecycle::PauseGate,
    model::Model,
    sampler::sampling::Sampling,
    storage::run_blocking,
};
use runner::Runner;

/// Trains on a blocking thread, one iteration after another through the gate. Ends with the
/// training, or after the current iteration when there is an exit call or `shutdown` is ready.
/// Resumes from a checkpoint in `store`; without one nothing is stored. Also returns the last
/// model.
pub async fn run(
    goal: Goal,
    settings: Settings,
    sampling: Sampling,
    store: Option<CheckpointStore>,
    gate: &PauseGate,
    shutdown: impl Future<Output = ()>,
) -> Result<(Outcome, Model)> {
    let start = Instant::now();
    let (pace, episodes) = (goal.pace, goal.evaluation_episodes);
    let begin =
        move || Runner::resume_or_start(goal, settings, (&sampling, &cartpole_factory()), store);
    let mut runner = run_blocking(begin).await?;
    gate.set_stats(runner.stats());
    let mut stopped = pin!(async {
        tokio::select! {
            () = gate.wait_for_exit() => Outcome::Ended,
            () = shutdown => Outcome::Interrupted,
        }
    });
    let mut delay = Duration::ZERO;
    let outcome = loop {
        let admitted = async {
            sleep(delay).await;
            gate.admit_when_running().await
        };
        let task = tokio::select! {
            biased;
            outcome = &mut stopped => break outcome,
            task = admitted => task,
        };
        let iteration = Instant::now();
        let done;
        (runner, done) = run_blocking(move || {
            let done = runner.run_iteration()?;
            Ok((runner, done))
        })
        .await?;
        gate.set_stats(runner.stats());
        match done {
            ControlFlow::Continue(polled) => task.complete(polled),
            ControlFlow::Break(outcome) => break outcome,
        }
        delay = pace.saturating_sub(iteration.elapsed());
    };
    let (model, end) = runner.finish_training(outcome)?;
    tracing::info!("{}", outcome.summary_line(&end, episodes, start.elapsed()));
    Ok((outcome, model))
}

#[cfg(test)]
mod tests;
