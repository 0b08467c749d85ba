use std::{
    fs,
    future::{pending, ready},
    time::Duration,
};

use serde_json::json;

use super::*;
use crate::{
    checkpoint::Keep,
    game::Game,
    life::{Call, Handles, Stats, Status},
    storage::Storage,
};

async fn solves(game: Game, seeds: std::ops::Range<u64>) {
    solves_with(Sampling::default(), Goal::of(game), seeds).await;
}

async fn solves_with(sampling: Sampling, goal: Goal, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let goal = Goal {
            seed,
            ..goal.clone()
        };
        let (game, sampling) = (goal.game, sampling.clone());
        let (settings, runs) = (Settings::default(), Gate::running());
        let ended = run(goal, settings, sampling, None, &runs, pending()).await;
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

fn threads() -> Sampling {
    Sampling {
        num_workers: 2,
        num_envs_per_worker: 1,
        worker_num_splits: 1,
        policy_workers_per_policy: 2,
        ..Sampling::default()
    }
}

#[tokio::test]
async fn it_solves_cartpole_while_it_collects_ahead_on_one_thread_and_on_many() {
    let overlap = Goal {
        overlap: true,
        ..Goal::default()
    };
    for sampling in [Sampling::default(), threads()] {
        solves_with(sampling, overlap.clone(), 0..1).await;
    }
}

/// The model after some iterations, and what was told of them.
async fn trained(sampling: Sampling, overlap: bool) -> (Model, Stats) {
    let goal = Goal {
        overlap,
        max_iterations: 4,
        target_return: 501.0,
        evaluation_episodes: 2,
        ..Goal::default()
    };
    let (settings, gate) = (Settings::default(), Gate::running());
    let ended = run(goal, settings, sampling, None, &gate, pending()).await;
    let (outcome, model) = ended.unwrap();
    assert_eq!(outcome, Outcome::Unsolved);
    let mut stats = gate.report().stats;
    stats.remove("frames_per_second").unwrap();
    (model, stats)
}

#[tokio::test]
async fn a_seed_gives_the_same_model_on_one_thread_and_on_many() {
    let (model, stats) = trained(Sampling::default(), false).await;
    assert_eq!(trained(threads(), false).await, (model, stats.clone()));
    // Of 2048 frames each, in 5 passes of 32 batches.
    assert_eq!(stats["gradient_steps"].to_string(), "640");
    assert_eq!(stats["stale_frames"].to_string(), "0");
    assert!(stats.contains_key("policy_loss"));
}

#[tokio::test]
async fn what_is_collected_ahead_is_the_same_each_time_on_one_thread() {
    let (model, stats) = trained(Sampling::default(), true).await;
    assert_ne!(trained(Sampling::default(), false).await.0, model);
    // All but those of the first iteration are of the version before.
    assert_eq!(stats["stale_frames"].to_string(), "6144");
    assert_eq!(stats["policy_lag"].to_string(), "1");
    let again = trained(Sampling::default(), true).await;
    assert_eq!(again, (model, stats));
}

/// Trains with a seed; ends before its time after so many iterations.
async fn short(storage: &Storage, seed: u64, iterations: u64) -> (Outcome, Model) {
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
    let (settings, gate) = (Settings::default(), Gate::running());
    let mut told = gate.subscribe();
    let stopped = async {
        told.wait_for(|report| report.polls >= iterations)
            .await
            .unwrap();
    };
    let sampling = Sampling::default();
    let ended = run(goal, settings, sampling, Some(keeper), &gate, stopped).await;
    ended.unwrap()
}

const NEVER: u64 = u64::MAX;

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

#[tokio::test]
async fn a_training_has_come_to_its_end_though_its_checkpoints_stay() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path()).unwrap();
    let goal = Goal {
        max_iterations: 2,
        target_return: 501.0,
        tasks: 1,
        frames_per_task: 64,
        evaluation_episodes: 1,
        ..Goal::default()
    };
    let (game, seed) = (goal.game, goal.seed);
    let keep = Keep {
        every: Duration::from_secs(3600),
        ..Keep::default()
    };
    let keeper = Keeper::open(storage.clone(), storage.root(), (game, seed), keep).unwrap();
    let handle = Gate::running();
    let spoiled = async {
        trained_more(&handle, 0).await;
        // A file is no folder that can be removed.
        let checkpoints = folder.path().join(format!("checkpoints-{game}-{seed}"));
        fs::remove_dir(&checkpoints).unwrap();
        fs::write(&checkpoints, b"in the way").unwrap();
        pending::<()>().await;
    };
    let (settings, sampling) = (Settings::default(), Sampling::default());
    let ended = run(goal, settings, sampling, Some(keeper), &handle, spoiled).await;
    let (outcome, model) = ended.unwrap();
    assert_eq!((outcome, model.version), (Outcome::Unsolved, 2));
}

/// A training that does not end by itself, in small iterations.
fn small() -> Goal {
    Goal {
        target_return: 501.0,
        max_iterations: u64::MAX,
        tasks: 1,
        frames_per_task: 64,
        evaluation_episodes: 1,
        ..Goal::default()
    }
}

async fn endless(gate: &Gate, shutdown: impl Future<Output = ()>) -> (Outcome, Model) {
    let (settings, sampling) = (Settings::default(), Sampling::default());
    let ended = run(small(), settings, sampling, None, gate, shutdown).await;
    ended.unwrap()
}

#[test]
fn what_one_model_was_evaluated_with_is_not_told_of_the_next() {
    let (settings, sampling) = (Settings::default(), (&Sampling::default(), &gymnasium()));
    let mut runner = Runner::begin(small(), settings, sampling, None).unwrap();
    let _ = runner.iterate().unwrap();
    for outcome in [Outcome::Interrupted, Outcome::TimedOut, Outcome::Ended] {
        let (model, end) = runner.end(outcome).unwrap();
        assert_eq!((model.version, end.evaluation), (1, None), "{outcome:?}");
    }
    let (_, end) = runner.end(Outcome::Unsolved).unwrap();
    assert!(end.evaluation.is_some());
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
    assert_eq!((outcome, model.version), (Outcome::Ended, again.polls));
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
