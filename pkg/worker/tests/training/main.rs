//! Whole trainings in one process: a fake replica endpoint, real collectors and learners on
//! loopback ports, and a coordinator.

#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

mod ddp;
mod lifecycle;
mod mock_replicas;
mod panel;
mod resume;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use di_worker_lib::{
    Error,
    checkpoint::CheckpointPolicy,
    coordinator::{
        Coordinator, Options,
        panel::Configs,
        progress::{Outcome, Progress},
        replica_table::ReplicaTimeouts,
        training::Goal,
    },
    learner::settings::Settings,
    model::Model,
    protocol::{
        env::{COORDINATOR_PORT, Environment},
        http,
    },
};
use tokio::{sync::watch, time::timeout};

use mock_replicas::{Loopback, MockReplicas, loopback_listener};

fn options() -> Options {
    Options {
        goal: Goal {
            seed: 4,
            ..Goal::default()
        },
        collectors: 2,
        learners: 1,
        declared: false,
        endpoint_timeout: Duration::from_secs(20),
        timeout: Duration::from_secs(300),
        patience: ReplicaTimeouts {
            // Longer than one delayed answer.
            silent: Duration::from_secs(4),
            poll: Duration::from_millis(50),
            ..ReplicaTimeouts::default()
        },
        keep: CheckpointPolicy::default(),
        configs: Configs::default(),
    }
}

fn coordinator(mock_replicas: &MockReplicas, options: Options) -> Coordinator {
    let environment = Environment::from_lookup(COORDINATOR_PORT, |name| match name {
        "KUBERNETES_POD_NAMESPACE" => Some("rl".to_owned()),
        "KUBERNETES_POD_NAME" => Some("pole-coordinator".to_owned()),
        "KUBERNETES_SERVER_URL" => Some(mock_replicas.address().to_string()),
        _ => None,
    });
    let client = http::client_with(Loopback::resolver()).unwrap();
    let storage = mock_replicas.storage();
    Coordinator::new(options, environment.unwrap(), storage, client)
}

async fn run(coordinator: Coordinator) -> Result<Outcome, Error> {
    coordinator
        .run(loopback_listener().await, std::future::pending())
        .await
}

/// Time limit of all waits, for slow machines.
const PATIENCE: Duration = Duration::from_secs(180);

/// Waits for the first update of the model.
async fn wait_for_first_update(progress: &mut watch::Receiver<Progress>) {
    wait_for_progress(progress, |progress| progress.iteration >= 1).await;
}

/// Waits until the progress meets a condition.
async fn wait_for_progress(
    progress: &mut watch::Receiver<Progress>,
    is_met: impl FnMut(&Progress) -> bool,
) {
    let met = timeout(PATIENCE, progress.wait_for(is_met)).await;
    let met = met.map(|met| drop(met.expect("the training ended early")));
    assert!(met.is_ok(), "timeout at {:?}", progress.borrow());
}

#[tokio::test]
async fn training_survives_loss_of_all_collectors() {
    let mock_replicas = MockReplicas::start().await;
    // A transient error must be retried.
    mock_replicas.refuse_next_requests(1);
    let coordinator = coordinator(&mock_replicas, options());
    let mut progress = coordinator.subscribe_progress();
    let running = tokio::spawn(run(coordinator));

    wait_for_first_update(&mut progress).await;
    let first = mock_replicas.collectors();
    assert_eq!(first.len(), 2);
    for pod in &first {
        mock_replicas.kill(pod);
    }

    assert_eq!(running.await.unwrap().unwrap(), Outcome::Solved);
    let end = progress.borrow().clone();
    assert!(end.evaluation.unwrap() >= 475.0 && end.iteration > 1);
    let mut failed = mock_replicas.failed();
    failed.sort();
    assert_eq!(
        failed, first,
        "exactly the killed ones are reported, each once"
    );
    assert_eq!(mock_replicas.keys().len(), 2, "retried after the refusal");
    assert_eq!(
        mock_replicas.keys()[0],
        mock_replicas.keys()[1],
        "with the same key"
    );
    assert!(mock_replicas.keys()[0].starts_with("pole-coordinator-run-"));

    let left = files(mock_replicas.folder());
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(
        left[0].starts_with(mock_replicas.folder().join("rl/pole"))
            && left[0].ends_with("model-final.safetensors")
    );
    let model = Model::decode(&std::fs::read(&left[0]).unwrap()).unwrap();
    assert_eq!(model.version, end.iteration);
}

#[tokio::test]
async fn declared_replicas_are_used_without_request() {
    let mock_replicas = MockReplicas::start().await;
    mock_replicas.declare(1, 2);
    let goal = Goal {
        max_iterations: 2,
        target_return: 501.0,
        ..Goal::default()
    };
    let outcome = run(coordinator(
        &mock_replicas,
        Options {
            declared: true,
            goal,
            ..options()
        },
    ))
    .await;
    assert_eq!(outcome.unwrap(), Outcome::Unsolved);
    assert!(mock_replicas.keys().is_empty());
    assert_eq!(files(mock_replicas.folder()).len(), 1);
}

#[tokio::test]
async fn overlapped_training_is_deterministic() {
    let mut ends = Vec::new();
    for collectors in [1, 3] {
        let mock_replicas = MockReplicas::start().await;
        let goal = Goal {
            overlap: true,
            ..options().goal
        };
        let coordinator = coordinator(
            &mock_replicas,
            Options {
                goal,
                collectors,
                ..options()
            },
        );
        let progress = coordinator.subscribe_progress();
        assert_eq!(run(coordinator).await.unwrap(), Outcome::Solved);
        let end = progress.borrow().clone();
        let left = files(mock_replicas.folder());
        assert_eq!(left.len(), 1, "{left:?}");
        let model = Model::decode(&std::fs::read(&left[0]).unwrap()).unwrap();
        assert_eq!(model.version, end.iteration);
        ends.push(model);
    }
    assert_eq!(ends[0], ends[1]);
}

#[tokio::test]
async fn lost_learner_is_replaced() {
    let mock_replicas = MockReplicas::start().await;
    let goal = Goal {
        max_iterations: 4,
        target_return: 501.0,
        ..Goal::default()
    };
    let coordinator = coordinator(&mock_replicas, Options { goal, ..options() });
    let mut progress = coordinator.subscribe_progress();
    let running = tokio::spawn(run(coordinator));
    wait_for_first_update(&mut progress).await;
    let learner = mock_replicas.learners().remove(0);
    mock_replicas.kill(&learner);
    assert_eq!(running.await.unwrap().unwrap(), Outcome::Unsolved);
    assert_eq!(progress.borrow().iteration, 4);
    assert_eq!(mock_replicas.failed(), [learner]);
}

#[tokio::test]
async fn permanent_refusal_ends_coordinator_with_reason() {
    let mock_replicas = MockReplicas::start().await;
    mock_replicas.forget_the_job();
    let error = run(coordinator(&mock_replicas, options()))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no such coordinator"), "{error}");
    assert_eq!(error.exit_code(), 1);
}

#[tokio::test]
async fn diverged_training_ends_without_losing_learners() {
    let mock_replicas = MockReplicas::start().await;
    mock_replicas.set_learner_settings(Settings {
        learning_rate: 1e300,
        ..Settings::default()
    });
    let error = run(coordinator(&mock_replicas, options()))
        .await
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("(400): the training has diverged"),
        "{message}"
    );
    assert!(mock_replicas.failed().is_empty());
}

#[tokio::test]
async fn interrupted_run_keeps_one_model_and_one_checkpoint() {
    let mock_replicas = MockReplicas::start().await;
    let goal = Goal {
        target_return: 501.0,
        ..Goal::default()
    };
    let coordinator = coordinator(&mock_replicas, Options { goal, ..options() });
    let mut progress = coordinator.subscribe_progress();
    let interrupted = async move {
        wait_for_progress(&mut progress, |progress| progress.iteration >= 2).await;
    };
    let outcome = coordinator
        .run(loopback_listener().await, interrupted)
        .await;
    assert_eq!(outcome.unwrap(), Outcome::Interrupted);
    // Replicas may still store files.
    let left = files(mock_replicas.folder());
    let checkpoints = mock_replicas.folder().join("rl/pole/checkpoints-0");
    let count = |is_one: &dyn Fn(&&PathBuf) -> bool| left.iter().filter(is_one).count();
    assert_eq!(count(&|file| file.starts_with(&checkpoints)), 1, "{left:?}");
    assert_eq!(
        count(&|file| file.ends_with("model-final.safetensors")),
        1,
        "{left:?}"
    );
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}
