//! The whole training in one process, for a job that is a coordinator and nothing else, and for a trial of a sweep.
//!
//! As in [`training`](crate::training), all that is random in an iteration comes from the seed and its number.

use std::{
    future::Future,
    ops::ControlFlow,
    pin::pin,
    time::{Duration, Instant},
};

use rand::{SeedableRng, rngs::StdRng};
use tokio::time::sleep;

use crate::{
    Result,
    beside::{Beside, beside},
    checkpoint::{Checkpoint, Keeper},
    coordinator::Outcome,
    life::{Gate, Polled, Stats},
    model::Model,
    ppo::{self, Settings},
    progress::Progress,
    sampler::Sampler,
    server::mix,
    training::Goal,
};

/// Trains beside the event loop, one iteration after the other through the gate, until the training has ended, or it is told to exit or
/// `shutdown` is ready and the iteration in hand is done. What was kept is gone on from; without a keeper nothing is stored. Returns the last
/// model, too.
pub async fn run(
    goal: Goal,
    settings: Settings,
    sampler: impl Sampler + 'static,
    keeper: Option<Keeper>,
    gate: &Gate,
    shutdown: impl Future<Output = ()>,
) -> Result<(Outcome, Model)> {
    let start = Instant::now();
    let (pace, episodes) = (goal.pace, goal.evaluation_episodes);
    let begun = beside(move || Training::begin(goal, settings, sampler, keeper)).await?;
    gate.note(begun.stats());
    let training = Beside::new(begun);
    let mut told_to_end = pin!(async {
        tokio::select! {
            () = gate.exiting() => {}
            () = shutdown => {}
        }
    });
    let mut rest = Duration::ZERO;
    let outcome = loop {
        let passed = async {
            sleep(rest).await;
            gate.passed().await
        };
        let flight = tokio::select! {
            biased;
            () = &mut told_to_end => break Outcome::Interrupted,
            flight = passed => flight,
        };
        let iteration = Instant::now();
        let done = training.work(Training::iterate).await?;
        gate.note(training.look(Training::stats).await);
        match done {
            ControlFlow::Continue(polled) => flight.landed(polled),
            ControlFlow::Break(outcome) => break outcome,
        }
        rest = pace.saturating_sub(iteration.elapsed());
    };
    let (model, end) = training.work(move |training| training.end(outcome)).await?;
    tracing::info!("{}", outcome.summary(&end, episodes, start.elapsed()));
    Ok((outcome, model))
}

/// A training between two iterations.
struct Training<S> {
    goal: Goal,
    settings: Settings,
    sampler: S,
    keeper: Option<Keeper>,
    at: Checkpoint,
    evaluation: Option<f64>,
}

impl<S: Sampler> Training<S> {
    fn begin(goal: Goal, settings: Settings, sampler: S, keeper: Option<Keeper>) -> Result<Self> {
        let found = match &keeper {
            Some(keeper) => keeper.newest()?,
            None => None,
        };
        let at = found.unwrap_or_else(|| Checkpoint::first(goal.game, goal.seed));
        Ok(Self {
            goal,
            settings,
            sampler,
            keeper,
            at,
            evaluation: None,
        })
    }

    /// Evaluates the model, and makes it the next version unless the training has ended.
    fn iterate(&mut self) -> Result<ControlFlow<Outcome, Polled>> {
        let Self {
            goal, sampler, at, ..
        } = self;
        let evaluation = evaluate(goal, sampler, at)?;
        self.evaluation = Some(evaluation);
        if evaluation >= goal.target_return {
            return Ok(ControlFlow::Break(Outcome::Solved));
        }
        if at.model.version >= goal.max_iterations {
            return Ok(ControlFlow::Break(Outcome::Unsolved));
        }
        let before = at.frames;
        improve(goal, &self.settings, sampler, at)?;
        if let Some(keeper) = &mut self.keeper {
            keeper.reached(at.frames, at.mean_return, || Ok(at.model.clone()));
        }
        Ok(ControlFlow::Continue(Polled {
            samples: at.frames - before,
            batches: 1,
        }))
    }

    /// Keeps what is to be gone on from; tells where it ended.
    fn end(&mut self, outcome: Outcome) -> Result<(Model, Progress)> {
        let Self { keeper, at, .. } = self;
        match keeper {
            Some(keeper) if outcome == Outcome::Interrupted => {
                keeper.save(|| Ok(at.model.clone()))?;
            }
            Some(keeper) => keeper.clear()?,
            None => {}
        }
        let end = Progress {
            iteration: at.model.version,
            frames: at.frames,
            evaluation: self.evaluation,
            ..Progress::default()
        };
        Ok((at.model.clone(), end))
    }

    fn stats(&self) -> Stats {
        let at = &self.at;
        let counts = [("iteration", at.model.version), ("frames", at.frames)];
        let counts = counts.map(|(name, count)| (name, Some(count as f64)));
        let returns = [
            ("mean_return", at.mean_return),
            ("evaluation", self.evaluation),
        ];
        let all = counts.into_iter().chain(returns);
        all.filter_map(|(name, value)| Some((name.into(), value?)))
            .collect()
    }
}

/// Mean return of the model.
fn evaluate(goal: &Goal, sampler: &mut impl Sampler, at: &Checkpoint) -> Result<f64> {
    let Model {
        policy, version, ..
    } = &at.model;
    let seed = mix(mix(goal.seed, *version), 1);
    let evaluation = sampler.evaluate(policy, goal.evaluation_episodes, seed)?;
    let mean = mean(&evaluation.returns).unwrap_or_default();
    tracing::info!("iteration {version:3}  evaluation {mean:>5.1}");
    Ok(mean)
}

/// Makes the model the next version.
fn improve(
    goal: &Goal,
    settings: &Settings,
    sampler: &mut impl Sampler,
    at: &mut Checkpoint,
) -> Result<()> {
    let Model {
        version,
        policy,
        adam,
    } = &mut at.model;
    let seed = mix(goal.seed, *version);
    let frames = goal.tasks * goal.frames_per_task;
    let rollout = sampler.collect(policy, frames, mix(seed, 0))?;
    let progress = *version as f64 / goal.max_iterations.max(1) as f64;
    let mut rng = StdRng::seed_from_u64(mix(seed, u64::MAX));
    let frames = &rollout.trajectories;
    ppo::update(policy, adam, frames, settings, progress, &mut rng)?;
    *version += 1;
    at.frames += frames
        .iter()
        .map(|part| part.actions.len() as u64)
        .sum::<u64>();
    at.mean_return = mean(&rollout.returns);
    Ok(())
}

fn mean(returns: &[f64]) -> Option<f64> {
    let sum = returns.iter().sum::<f64>();
    (!returns.is_empty()).then(|| sum / returns.len() as f64)
}

#[cfg(test)]
mod tests;
