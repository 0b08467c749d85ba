use std::{sync::mpsc::Sender, time::Duration};

use super::*;
use crate::{
    checkpoint::Keep,
    game::Game,
    policy::Policy,
    rollout::{Evaluation, Rollout},
    sampler::Pipeline,
    sampling::Sampling,
    storage::Storage,
};

fn pipeline() -> Pipeline {
    Pipeline::new(Sampling::default()).unwrap()
}

fn solves(game: Game, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let goal = Goal {
            seed,
            ..Goal::of(game)
        };
        let (_never, stop) = channel();
        let settings = Settings::default();
        let (outcome, _) = train(&goal, &settings, &mut pipeline(), None, &stop).unwrap();
        assert_eq!(outcome, Outcome::Solved, "{game}, seed {seed}");
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

/// Asks the training to end while it collects for the so many-th time.
struct Interrupting {
    pipeline: Pipeline,
    left: usize,
    stop: Sender<()>,
}

impl Sampler for Interrupting {
    fn collect(&mut self, policy: &Policy, frames: usize, seed: u64) -> Result<Rollout> {
        self.left -= 1;
        if self.left == 0 {
            self.stop.send(()).unwrap();
        }
        self.pipeline.collect(policy, frames, seed)
    }

    fn evaluate(&mut self, policy: &Policy, episodes: usize, seed: u64) -> Result<Evaluation> {
        self.pipeline.evaluate(policy, episodes, seed)
    }
}

/// Trains with a seed, in one folder for each; ends before its time in the so many-th iteration from here.
fn short(storage: &Storage, seed: u64, left: usize) -> (Outcome, Model) {
    let goal = Goal {
        seed,
        max_iterations: 6,
        target_return: 501.0,
        ..Goal::default()
    };
    let keep = Keep {
        every: Duration::from_secs(3600),
        ..Keep::default()
    };
    let folder = storage.root().join(seed.to_string());
    let mut keeper = Keeper::open(storage.clone(), &folder, (goal.game, seed), keep).unwrap();
    let (stop, stopped) = channel();
    let mut sampler = Interrupting {
        pipeline: pipeline(),
        left,
        stop,
    };
    let settings = Settings::default();
    train(&goal, &settings, &mut sampler, Some(&mut keeper), &stopped).unwrap()
}

const NEVER: usize = usize::MAX;

#[test]
fn a_training_that_was_interrupted_ends_as_if_it_had_not_been() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path()).unwrap();
    let undisturbed = short(&storage, 4, NEVER);
    assert_eq!(
        (undisturbed.0, undisturbed.1.version),
        (Outcome::Unsolved, 6)
    );
    assert!(!folder.path().join("4/checkpoints").exists());

    for (iterations, version) in [(2, 2), (3, 5)] {
        let (outcome, model) = short(&storage, 4, iterations);
        assert_eq!((outcome, model.version), (Outcome::Interrupted, version));
    }
    assert_eq!(short(&storage, 4, NEVER), undisturbed);
    assert!(
        !folder.path().join("4/checkpoints").exists(),
        "one that has ended is not gone on with"
    );
}
