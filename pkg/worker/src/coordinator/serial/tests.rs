use std::{
    fs,
    future::{pending, ready},
    time::Duration,
};

use serde_json::json;

use super::*;
use crate::{
    checkpoint::store::CheckpointPolicy,
    lifecycle::{
        report::Stats,
        routes::LifecycleHandles,
        status::{Call, Status},
    },
    storage::Storage,
};

async fn solves_with(sampling: Sampling, goal: Goal, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let goal = Goal {
            seed,
            ..goal.clone()
        };
        let sampling = sampling.clone();
        let (settings, runs) = (Settings::default(), PauseGate::new_running());
        let ended = run(goal, settings, sampling, None, &runs, pending()).await;
        let (outcome, _) = ended.unwrap();
        assert_eq!(outcome, Outcome::Solved, "seed {seed}");
    }
}

#[tokio::test]
async fn serial_training_solves_cartpole() {
    solves_with(Sampling::default(), Goal::default(), 0..5).await;
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
async fn overlapped_training_solves_cartpole() {
    let overlap = Goal {
        overlap: true,
        ..Goal::default()
    };
    for sampling in [Sampling::default(), threads()] {
        solves_with(sampling, overlap.clone(), 0..1).await;
    }
}

/// The model and the stats after some iterations.
async fn trained(sampling: Sampling, overlap: bool) -> (Model, Stats) {
    let goal = Goal {
        overlap,
        max_iterations: 4,
        target_return: 501.0,
        evaluation_episodes: 2,
        ..Goal::default()
    };
    let (settings, gate) = (Settings::default(), PauseGate::new_running());
    let ended = run(goal, settings, sampling, None, &gate, pending()).await;
    let (outcome, model) = ended.unwrap();
    assert_eq!(outcome, Outcome::Unsolved);
    let mut stats = gate.current_report().stats;
    stats.remove("frames_per_second").unwrap();
    (model, stats)
}

#[tokio::test]
async fn seed_gives_same_model_with_any_thread_count() {
    let (model, stats) = trained(Sampling::default(), false).await;
    assert_eq!(trained(threads(), false).await, (model, stats.clone()));
    // 2048 frames per iteration, in 5 passes of 32 batches.
    assert_eq!(stats["gradient_steps"].to_string(), "640");
    assert!(stats.contains_key("policy_loss"));
}

#[tokio::test]
async fn overlap_is_deterministic_on_one_thread() {
    let (model, stats) = trained(Sampling::default(), true).await;
    assert_ne!(trained(Sampling::default(), false).await.0, model);
    let again = trained(Sampling::default(), true).await;
    assert_eq!(again, (model, stats));
}

/// Trains with a seed and stops after some iterations.
async fn train_interrupted(storage: &Storage, seed: u64, iterations: u64) -> (Outcome, Model) {
    let goal = Goal {
        seed,
        max_iterations: 6,
        target_return: 501.0,
        ..Goal::default()
    };
    let keep = CheckpointPolicy {
        every: Duration::from_secs(3600),
        ..CheckpointPolicy::default()
    };
    let store = CheckpointStore::open(storage.clone(), storage.root(), seed, keep).unwrap();
    let (settings, gate) = (Settings::default(), PauseGate::new_running());
    let mut reports = gate.subscribe();
    let stopped = async {
        reports
            .wait_for(|report| report.polls >= iterations)
            .await
            .unwrap();
    };
    let sampling = Sampling::default();
    let ended = run(goal, settings, sampling, Some(store), &gate, stopped).await;
    ended.unwrap()
}

const NEVER: u64 = u64::MAX;

#[tokio::test]
async fn interrupted_training_ends_as_if_uninterrupted() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path()).unwrap();
    let undisturbed = train_interrupted(&storage, 4, NEVER).await;
    assert_eq!(
        (undisturbed.0, undisturbed.1.version),
        (Outcome::Unsolved, 6)
    );
    assert!(!folder.path().join("checkpoints-4").exists());

    for (iterations, version) in [(2, 2), (3, 5)] {
        let (outcome, model) = train_interrupted(&storage, 4, iterations).await;
        assert_eq!((outcome, model.version), (Outcome::Interrupted, version));
    }
    assert_eq!(train_interrupted(&storage, 4, NEVER).await, undisturbed);
    assert!(
        !folder.path().join("checkpoints-4").exists(),
        "a finished training leaves no checkpoints"
    );
}

#[tokio::test]
async fn training_finishes_when_checkpoints_cannot_be_removed() {
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
    let keep = CheckpointPolicy {
        every: Duration::from_secs(3600),
        ..CheckpointPolicy::default()
    };
    let store = CheckpointStore::open(storage.clone(), storage.root(), goal.seed, keep).unwrap();
    let handle = PauseGate::new_running();
    let spoiled = async {
        wait_for_polls(&handle, 0).await;
        // A file is not a removable folder.
        let checkpoints = folder.path().join("checkpoints-0");
        fs::remove_dir(&checkpoints).unwrap();
        fs::write(&checkpoints, b"in the way").unwrap();
        pending::<()>().await;
    };
    let (settings, sampling) = (Settings::default(), Sampling::default());
    let ended = run(goal, settings, sampling, Some(store), &handle, spoiled).await;
    let (outcome, model) = ended.unwrap();
    assert_eq!((outcome, model.version), (Outcome::Unsolved, 2));
}

/// An endless training with small iterations.
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

async fn endless(gate: &PauseGate, shutdown: impl Future<Output = ()>) -> (Outcome, Model) {
    let (settings, sampling) = (Settings::default(), Sampling::default());
    let ended = run(small(), settings, sampling, None, gate, shutdown).await;
    ended.unwrap()
}

#[test]
fn evaluation_is_not_reported_for_next_model() {
    let (settings, sampling) = (
        Settings::default(),
        (&Sampling::default(), &cartpole_factory()),
    );
    let mut runner = Runner::resume_or_start(small(), settings, sampling, None).unwrap();
    let _ = runner.run_iteration().unwrap();
    for outcome in [Outcome::Interrupted, Outcome::TimedOut, Outcome::Ended] {
        let (model, end) = runner.finish_training(outcome).unwrap();
        assert_eq!((model.version, end.evaluation), (1, None), "{outcome:?}");
    }
    let (_, end) = runner.finish_training(Outcome::Unsolved).unwrap();
    assert!(end.evaluation.is_some());
}

async fn wait_for_polls(gate: &PauseGate, polls: u64) {
    let mut reports = gate.subscribe();
    reports
        .wait_for(|report| report.polls > polls)
        .await
        .unwrap();
}

#[tokio::test]
async fn paused_training_waits_until_start_or_exit() {
    let gate = PauseGate::new_running();
    let calls = async {
        wait_for_polls(&gate, 0).await;
        let paused = gate.handle_call(Call::Pause, json!({})).await.unwrap();
        assert_eq!(paused.status, Status::Paused);
        let other = PauseGate::new_running();
        endless(&other, wait_for_polls(&other, 5)).await;
        assert_eq!(
            gate.current_report(),
            paused,
            "unchanged while another training runs"
        );

        gate.handle_call(Call::Start, json!({})).await.unwrap();
        wait_for_polls(&gate, paused.polls).await;
        let again = gate.handle_call(Call::Pause, json!({})).await.unwrap();
        gate.handle_call(Call::Exit, json!({})).await.unwrap();
        again
    };
    let ((outcome, model), again) = tokio::join!(endless(&gate, pending()), calls);
    assert_eq!((outcome, model.version), (Outcome::Ended, again.polls));
    assert_eq!(again.batches, again.polls);
    for (name, count) in [("iteration", again.polls), ("frames", again.samples)] {
        assert_eq!(again.stats[name].to_string(), count.to_string());
    }
    assert!(again.stats.contains_key("evaluation"));
}

#[tokio::test]
async fn training_stopped_before_start_trains_nothing() {
    let (outcome, model) = endless(&PauseGate::new_running(), ready(())).await;
    assert_eq!((outcome, model.version), (Outcome::Interrupted, 0));
}
