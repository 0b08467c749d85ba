use std::{
    future::{pending, ready},
    sync::Arc,
};

use serde_json::json;
use tokio::sync::Notify;

use super::*;
use crate::{
    checkpoint::Keep,
    game::Game,
    life::{Call, Handles, Status},
    policy::Policy,
    rollout::{Evaluation, Rollout},
    sampler::Pipeline,
    sampling::Sampling,
    storage::Storage,
};

fn pipeline() -> Pipeline {
    Pipeline::new(Sampling::default()).unwrap()
}

async fn solves(game: Game, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let goal = Goal {
            seed,
            ..Goal::of(game)
        };
        let (settings, runs) = (Settings::default(), Gate::running());
        let ended = run(goal, settings, pipeline(), None, &runs, pending()).await;
        let (outcome, _) = ended.unwrap();
        assert_eq!(outcome, Outcome::Solved, "{game}, seed {seed}");
    }
}

#[tokio::test]
async fn it_solves_cartpole_with_any_seed() {
    solves(Game::CartPole, 0..5).await;
}

#[tokio::test]
async fn it_solves_acrobot_with_any_seed() {
    solves(Game::Acrobot, 0..4).await;
}

#[tokio::test]
async fn it_solves_mountain_car() {
    solves(Game::MountainCar, 0..1).await;
}

/// Asks the training to end while it collects for the so many-th time.
struct Interrupting {
    pipeline: Pipeline,
    left: usize,
    stop: Arc<Notify>,
}

impl Sampler for Interrupting {
    fn collect(&mut self, policy: &Policy, frames: usize, seed: u64) -> Result<Rollout> {
        self.left -= 1;
        if self.left == 0 {
            self.stop.notify_one();
        }
        self.pipeline.collect(policy, frames, seed)
    }

    fn evaluate(&mut self, policy: &Policy, episodes: usize, seed: u64) -> Result<Evaluation> {
        self.pipeline.evaluate(policy, episodes, seed)
    }
}

/// Trains with a seed; ends before its time in the so many-th iteration from here.
async fn short(storage: &Storage, seed: u64, left: usize) -> (Outcome, Model) {
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
    let keeper = Keeper::open(storage.clone(), storage.root(), (goal.game, seed), keep).unwrap();
    let stop = Arc::new(Notify::new());
    let sampler = Interrupting {
        pipeline: pipeline(),
        left,
        stop: stop.clone(),
    };
    let (settings, gate) = (Settings::default(), Gate::running());
    let stopped = stop.notified();
    let ended = run(goal, settings, sampler, Some(keeper), &gate, stopped).await;
    ended.unwrap()
}

const NEVER: usize = usize::MAX;

#[tokio::test]
async fn a_training_that_was_interrupted_ends_as_if_it_had_not_been() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path()).unwrap();
    let undisturbed = short(&storage, 4, NEVER).await;
    assert_eq!(
        (undisturbed.0, undisturbed.1.version),
        (Outcome::Unsolved, 6)
    );
    assert!(!folder.path().join("checkpoints-CartPole-v1-4").exists());

    for (iterations, version) in [(2, 2), (3, 5)] {
        let (outcome, model) = short(&storage, 4, iterations).await;
        assert_eq!((outcome, model.version), (Outcome::Interrupted, version));
    }
    assert_eq!(short(&storage, 4, NEVER).await, undisturbed);
    assert!(
        !folder.path().join("checkpoints-CartPole-v1-4").exists(),
        "one that has ended is not gone on with"
    );
}

/// A training that does not end by itself, in small iterations.
async fn endless(gate: &Gate, shutdown: impl Future<Output = ()>) -> (Outcome, Model) {
    let goal = Goal {
        target_return: 501.0,
        max_iterations: u64::MAX,
        tasks: 1,
        frames_per_task: 64,
        evaluation_episodes: 1,
        ..Goal::default()
    };
    let settings = Settings::default();
    let ended = run(goal, settings, pipeline(), None, gate, shutdown).await;
    ended.unwrap()
}

async fn trained_more(gate: &Gate, polls: u64) {
    let mut told = gate.subscribe();
    told.wait_for(|report| report.polls > polls).await.unwrap();
}

#[tokio::test]
async fn a_paused_training_stands_still_until_it_goes_on_or_exits() {
    let gate = Gate::running();
    let told = async {
        trained_more(&gate, 0).await;
        let paused = gate.call(Call::Pause, json!({})).await.unwrap();
        assert_eq!(paused.status, Status::Paused);
        let other = Gate::running();
        endless(&other, trained_more(&other, 5)).await;
        assert_eq!(gate.report(), paused, "another one trained meanwhile");

        gate.call(Call::Start, json!({})).await.unwrap();
        trained_more(&gate, paused.polls).await;
        let again = gate.call(Call::Pause, json!({})).await.unwrap();
        gate.call(Call::Exit, json!({})).await.unwrap();
        again
    };
    let ((outcome, model), again) = tokio::join!(endless(&gate, pending()), told);
    assert_eq!(
        (outcome, model.version),
        (Outcome::Interrupted, again.polls)
    );
    assert_eq!(again.batches, again.polls);
    for (name, count) in [("iteration", again.polls), ("frames", again.samples)] {
        assert_eq!(again.stats[name].to_string(), count.to_string());
    }
    assert!(again.stats.contains_key("evaluation"));
}

#[tokio::test]
async fn one_that_is_told_to_end_before_it_begins_trains_nothing() {
    let (outcome, model) = endless(&Gate::running(), ready(())).await;
    assert_eq!((outcome, model.version), (Outcome::Interrupted, 0));
}
