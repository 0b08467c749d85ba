//! A training whose coordinator ends and is restarted.

use std::{path::PathBuf, time::Duration};

use di_worker_lib::{
    checkpoint::{CheckpointPolicy, run::FINAL_MODEL},
    coordinator::{Options, progress::Outcome, training::Goal},
    model::Model,
    storage::run_blocking,
};
use tokio::runtime::Builder;

use crate::{
    coordinator,
    mock_replicas::{MockReplicas, loopback_listener},
    options,
    panel::endless,
    run, wait_for_progress,
};

const ITERATIONS: u64 = 6;
/// The checkpoints of the seed.
const CHECKPOINTS: &str = "checkpoints-4";

/// A short training with a checkpoint of each model.
fn short() -> Options {
    Options {
        goal: Goal {
            max_iterations: ITERATIONS,
            target_return: 501.0,
            ..options().goal
        },
        keep: CheckpointPolicy {
            every: Duration::ZERO,
            ..CheckpointPolicy::default()
        },
        ..options()
    }
}

/// The entries of a folder of the job, if it exists.
async fn listed(mock_replicas: &MockReplicas, folder: &'static str) -> Option<Vec<PathBuf>> {
    let storage = mock_replicas.storage();
    let list = move || storage.list_entries(&storage.root().join("rl/pole").join(folder));
    run_blocking(list).await.ok().map(|mut found| {
        found.sort();
        found
    })
}

/// The newest final model of all runs.
async fn trained(mock_replicas: &MockReplicas) -> Model {
    let runs = listed(mock_replicas, "").await.unwrap();
    let storage = mock_replicas.storage();
    let load = move || {
        let models = runs.iter().filter_map(|run| {
            let file = storage.read(&run.join(FINAL_MODEL)).ok()?;
            Some(Model::decode(&file).unwrap())
        });
        Ok(models.max_by_key(|model| model.version).unwrap())
    };
    run_blocking(load).await.unwrap()
}

/// Trains to the end; returns the model and the number of frames.
async fn finish(mock_replicas: &MockReplicas) -> (Model, u64) {
    let coordinator = coordinator(mock_replicas, short());
    let progress = coordinator.subscribe_progress();
    assert_eq!(run(coordinator).await.unwrap(), Outcome::Unsolved);
    let frames = progress.borrow().frames;
    (trained(mock_replicas).await, frames)
}

/// Trains to the end with one interruption; returns the model and the number of frames.
async fn finish_in_two(mock_replicas: &MockReplicas) -> (Model, u64) {
    let first = coordinator(mock_replicas, short());
    let mut progress = first.subscribe_progress();
    let interrupted = async move {
        wait_for_progress(&mut progress, |progress| progress.iteration >= 2).await;
    };
    let ended = Box::pin(first.run(loopback_listener().await, interrupted)).await;
    assert_eq!(ended.unwrap(), Outcome::Interrupted);
    let kept = listed(mock_replicas, CHECKPOINTS).await.unwrap();
    assert!(!kept.is_empty() && kept.len() <= 3, "{kept:?}");
    let second = coordinator(mock_replicas, short());
    let mut progress = second.subscribe_progress();
    let running = tokio::spawn(run(second));
    progress.changed().await.unwrap();
    assert!(progress.borrow().iteration >= 2, "the training resumes");
    assert_eq!(running.await.unwrap().unwrap(), Outcome::Unsolved);
    assert_eq!(
        listed(mock_replicas, CHECKPOINTS).await,
        None,
        "a finished training leaves no checkpoints"
    );
    let frames = progress.borrow().frames;
    (trained(mock_replicas).await, frames)
}

#[tokio::test]
async fn interrupted_training_ends_as_if_uninterrupted() {
    let undisturbed = finish(&MockReplicas::start().await).await;
    assert_eq!(undisturbed.0.version, ITERATIONS);
    let disturbed = finish_in_two(&MockReplicas::start().await).await;
    assert_eq!(disturbed, undisturbed);
}

#[tokio::test]
async fn timed_out_training_can_be_resumed() {
    let mock_replicas = MockReplicas::start().await;
    let mut reached = 0;
    for seconds in [1, 4, 16, 64] {
        let options = Options {
            timeout: Duration::from_secs(seconds),
            keep: CheckpointPolicy::default(),
            ..endless()
        };
        let coordinator = coordinator(&mock_replicas, options);
        let mut progress = coordinator.subscribe_progress();
        let running = tokio::spawn(run(coordinator));
        progress.changed().await.unwrap();
        assert!(progress.borrow().iteration >= reached);
        assert_eq!(running.await.unwrap().unwrap(), Outcome::TimedOut);
        if reached > 0 {
            return;
        }
        reached = progress.borrow().iteration;
    }
    panic!("no training finished an iteration in time");
}

#[tokio::test]
async fn killed_coordinator_skips_damaged_checkpoint() {
    let undisturbed = finish(&MockReplicas::start().await).await;

    let mock_replicas = MockReplicas::start().await;
    let first = coordinator(&mock_replicas, short());
    let mut progress = first.subscribe_progress();
    let machine = Builder::new_multi_thread().enable_all().build().unwrap();
    machine.spawn(run(first));
    wait_for_progress(&mut progress, |progress| progress.iteration >= 3).await;
    // Waits for a file that is being written.
    let end = move || {
        drop(machine);
        Ok(())
    };
    run_blocking(end).await.unwrap();
    let kept = listed(&mock_replicas, CHECKPOINTS).await.unwrap();
    let newest = kept.last().unwrap();
    let bytes = std::fs::read(newest).unwrap();
    std::fs::write(newest, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(finish(&mock_replicas).await, undisturbed);
}
