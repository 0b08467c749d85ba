//! The whole training in one process, for a job that is a coordinator and nothing else.

use std::time::Instant;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    Result,
    model::Model,
    ppo::{self, Settings},
    sampler::Sampler,
    server::mix,
    training::Goal,
};

/// Trains until the goal is reached (true) or the iterations are used up (false).
pub fn train(goal: &Goal, settings: &Settings, sampler: &mut impl Sampler) -> Result<bool> {
    let mut rng = StdRng::seed_from_u64(mix(goal.seed, u64::MAX));
    let mut model = Model::random(goal.game, &mut rng);
    let begin = Instant::now();
    for iteration in 0..=goal.max_iterations {
        let evaluation = sampler.evaluate(&model.policy, goal.evaluation_episodes, rng.random())?;
        let returns = evaluation.returns;
        let mean = returns.iter().sum::<f64>() / returns.len().max(1) as f64;
        tracing::info!("iteration {iteration:3}  evaluation {mean:>5.1}");
        if mean >= goal.target_return {
            tracing::info!(
                "solved: mean return {mean:.1} over {} episodes after {iteration} iterations, {:.1} s",
                returns.len(),
                begin.elapsed().as_secs_f64()
            );
            return Ok(true);
        }
        let frames = goal.tasks * goal.frames_per_task;
        let rollout = sampler.collect(&model.policy, frames, rng.random())?;
        let progress = iteration as f64 / goal.max_iterations.max(1) as f64;
        let Model { policy, adam, .. } = &mut model;
        ppo::update(
            policy,
            adam,
            &rollout.trajectories,
            settings,
            progress,
            &mut rng,
        )?;
    }
    tracing::info!("not solved within {} iterations", goal.max_iterations);
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{game::Game, sampler::Pipeline, sampling::Sampling};

    fn solves(game: Game, seeds: std::ops::Range<u64>) {
        for seed in seeds {
            let goal = Goal {
                seed,
                ..Goal::of(game)
            };
            let mut sampler = Pipeline::new(Sampling::default()).unwrap();
            let solved = train(&goal, &Settings::default(), &mut sampler);
            assert!(solved.unwrap(), "{game}, seed {seed}");
        }
    }

    #[test]
    fn it_solves_cartpole_with_any_seed() {
        solves(Game::CartPole, 0..5);
    }

    #[test]
    fn it_solves_acrobot_with_any_seed() {
        solves(Game::Acrobot, 0..4);
    }

    #[test]
    fn it_solves_mountain_car() {
        solves(Game::MountainCar, 0..1);
    }
}
