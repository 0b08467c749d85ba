//! The whole training in one process, for a job that is a coordinator and nothing else, and for a trial of a sweep.
//!
//! As in [`training`](crate::training), all that is random in an iteration comes from the seed and its number.

use std::{
    future::Future,
    pin::pin,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Instant,
};

use rand::{SeedableRng, rngs::StdRng};

use crate::{
    Result,
    beside::beside,
    checkpoint::{Checkpoint, Keeper},
    coordinator::Outcome,
    model::Model,
    ppo::{self, Settings},
    progress::Progress,
    sampler::Sampler,
    server::mix,
    training::Goal,
};

/// Trains beside the event loop, until the training has ended, or `shutdown` is ready and the iteration in hand is done. What was kept is
/// gone on from; without a keeper nothing is stored.
pub async fn run(
    goal: Goal,
    settings: Settings,
    mut sampler: impl Sampler + 'static,
    mut keeper: Option<Keeper>,
    shutdown: impl Future<Output = ()>,
) -> Result<Outcome> {
    let (stop, stopped) = channel();
    let mut training = pin!(beside(move || {
        let (outcome, _) = train(&goal, &settings, &mut sampler, keeper.as_mut(), &stopped)?;
        Ok(outcome)
    }));
    tokio::select! {
        ended = &mut training => return ended,
        () = shutdown => drop(stop),
    }
    training.await
}

/// Trains until the training has ended, or something comes from `stop`, or nothing can any more. Returns the last model, too.
fn train(
    goal: &Goal,
    settings: &Settings,
    sampler: &mut impl Sampler,
    mut keeper: Option<&mut Keeper>,
    stop: &Receiver<()>,
) -> Result<(Outcome, Model)> {
    let begin = Instant::now();
    let found = match &keeper {
        Some(keeper) => keeper.newest()?,
        None => None,
    };
    let mut at = found.unwrap_or_else(|| Checkpoint::first(goal.game, goal.seed));
    let (outcome, evaluation) = loop {
        let start = Instant::now();
        let evaluation = evaluate(goal, sampler, &at)?;
        if evaluation >= goal.target_return {
            break (Outcome::Solved, evaluation);
        }
        if at.model.version >= goal.max_iterations {
            break (Outcome::Unsolved, evaluation);
        }
        improve(goal, settings, sampler, &mut at)?;
        if let Some(keeper) = &mut keeper {
            keeper.reached(at.frames, at.mean_return, || Ok(at.model.clone()));
        }
        let rest = goal.pace.saturating_sub(start.elapsed());
        if stop.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            break (Outcome::Interrupted, evaluation);
        }
    };
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
        evaluation: Some(evaluation),
        ..Progress::default()
    };
    let summary = outcome.summary(&end, goal.evaluation_episodes, begin.elapsed());
    tracing::info!("{summary}");
    Ok((outcome, at.model))
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
    at.mean_return = mean(&rollout.returns).or(at.mean_return);
    Ok(())
}

fn mean(returns: &[f64]) -> Option<f64> {
    let sum = returns.iter().sum::<f64>();
    (!returns.is_empty()).then(|| sum / returns.len() as f64)
}

#[cfg(test)]
mod tests;
