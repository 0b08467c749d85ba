//! The whole training in one process, for a job that is a coordinator and nothing else, and for a trial of a sweep.
//!
//! The [runner](Runner) has the components of the [`sampler`](crate::sampler), and a learner among them, on one event loop or on threads. As
//! in [`training`](crate::training), all that is random in an iteration comes from the seed and its number.

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
    blocking::{BlockingCell, run_blocking},
    checkpoint::CheckpointStore,
    lifecycle::PauseGate,
    model::Model,
    outcome::Outcome,
    ppo::Settings,
    sampler::gymnasium_factory,
    sampling::Sampling,
    training::Goal,
};
use runner::Runner;

/// Trains beside the event loop, one iteration after the other through the gate, until the training has ended, or it is told to exit or
/// `shutdown` is ready and the iteration in hand is done. What was kept is gone on from; without a keeper nothing is stored. Returns the last
/// model, too.
pub async fn run(
    goal: Goal,
    settings: Settings,
    sampling: Sampling,
    keeper: Option<CheckpointStore>,
    gate: &PauseGate,
    shutdown: impl Future<Output = ()>,
) -> Result<(Outcome, Model)> {
    let start = Instant::now();
    let (pace, episodes) = (goal.pace, goal.evaluation_episodes);
    let begin = move || Runner::resume_or_start(goal, settings, (&sampling, &gymnasium_factory()), keeper);
    let runner = run_blocking(begin).await?;
    gate.set_stats(runner.stats());
    let runner = BlockingCell::new(runner);
    let mut told_to_end = pin!(async {
        tokio::select! {
            () = gate.wait_for_exit() => Outcome::Ended,
            () = shutdown => Outcome::Interrupted,
        }
    });
    let mut rest = Duration::ZERO;
    let outcome = loop {
        let passed = async {
            sleep(rest).await;
            gate.admit_when_running().await
        };
        let flight = tokio::select! {
            biased;
            outcome = &mut told_to_end => break outcome,
            flight = passed => flight,
        };
        let iteration = Instant::now();
        let done = runner.run_exclusive(Runner::run_iteration).await?;
        gate.set_stats(runner.read_value(Runner::stats).await);
        match done {
            ControlFlow::Continue(polled) => flight.complete(polled),
            ControlFlow::Break(outcome) => break outcome,
        }
        rest = pace.saturating_sub(iteration.elapsed());
    };
    let (model, end) = runner.run_exclusive(move |runner| runner.finish_training(outcome)).await?;
    tracing::info!("{}", outcome.summary_line(&end, episodes, start.elapsed()));
    Ok((outcome, model))
}

#[cfg(test)]
mod tests;
