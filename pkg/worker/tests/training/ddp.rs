//! A training whose learner is a learner group: an aggregator and ranks.

use crate::{
    coordinator, files,
    lifecycle::{ask, ask_all, patient},
    mock_replicas::MockReplicas,
    options,
    panel::{Training, all_are, endless},
    run, wait_for_first_update,
};
use di_worker_lib::{
    coordinator::{Options, progress::Outcome, training::Goal},
    learner::settings::Settings,
    lifecycle::Status,
    model::Model,
};

fn iterations(max_iterations: u64) -> Options {
    let goal = Goal {
        max_iterations,
        target_return: 501.0,
        ..options().goal
    };
    Options { goal, ..patient() }
}

/// The final model of a training.
fn model(mock_replicas: &MockReplicas) -> Model {
    let left = files(mock_replicas.folder());
    assert_eq!(left.len(), 1, "{left:?}");
    Model::decode(&std::fs::read(&left[0]).unwrap()).unwrap()
}

#[tokio::test]
async fn two_ranks_train_same_model_as_one_learner() {
    let mut models = Vec::new();
    for ranks in [0, 2] {
        let mock_replicas = MockReplicas::start().await;
        mock_replicas.learners_have_ranks(ranks);
        // Rounding affects actions later, but not those of the first model.
        let outcome = run(coordinator(&mock_replicas, iterations(1))).await;
        assert_eq!(outcome.unwrap(), Outcome::Unsolved);
        assert!(
            mock_replicas.failed().is_empty(),
            "{:?}",
            mock_replicas.failed()
        );
        models.push(model(&mock_replicas));
    }
    assert_eq!((models[0].version, models[1].version), (1, 1));
    let [one, two] = [0, 1].map(|which: usize| models[which].policy.parameters());
    for (one, two) in one.iter().zip(two) {
        assert!((one - two).abs() < 1e-9, "{one} is not {two}");
    }
}

#[tokio::test]
async fn training_survives_loss_of_one_rank() {
    let mock_replicas = MockReplicas::start().await;
    mock_replicas.learners_have_ranks(2);
    let coordinator = coordinator(&mock_replicas, patient());
    let mut progress = coordinator.subscribe_progress();
    let running = tokio::spawn(run(coordinator));
    wait_for_first_update(&mut progress).await;
    let unit = mock_replicas.learners().remove(0);
    mock_replicas.kill_rank(&unit, 1);
    assert_eq!(running.await.unwrap().unwrap(), Outcome::Solved);
    assert!(progress.borrow().evaluation.unwrap() >= 475.0);
    assert_eq!(
        mock_replicas.failed(),
        [unit],
        "the learner group is replaced as a whole"
    );
}

#[tokio::test]
async fn ranks_pause_start_and_exit_with_coordinator() {
    let mock_replicas = MockReplicas::start().await;
    mock_replicas.learners_have_ranks(2);
    let mut training = Training::begin(&mock_replicas, endless()).await;
    let unit = mock_replicas.learners().remove(0);
    let ranks = mock_replicas.rank_addresses(&unit);
    assert_eq!(ranks.len(), 2);

    ask(&training.address, "pause").await;
    let paused = ask_all(&ranks, "").await;
    assert!(all_are(&paused, Status::Paused), "{paused:?}");
    assert!(paused.iter().all(|report| report.samples > 0));
    ask(&training.address, "start").await;
    assert!(all_are(&ask_all(&ranks, "").await, Status::Running));
    training.wait_for_two_updates().await;

    // A task waits for a rank that was paused manually.
    ask(&ranks[1], "pause").await;
    ask(&ranks[1], "start").await;
    training.wait_for_two_updates().await;
    // Two collectors, an aggregator and its ranks.
    training.exit_all(&mock_replicas, 5).await;
}

#[tokio::test]
async fn diverged_ranks_report_divergence_and_keep_running() {
    let mock_replicas = MockReplicas::start().await;
    mock_replicas.learners_have_ranks(2);
    mock_replicas.set_learner_settings(Settings {
        learning_rate: 1e300,
        ..Settings::default()
    });
    let coordinator = coordinator(&mock_replicas, options());
    let error = run(coordinator).await.unwrap_err().to_string();
    assert!(
        error.contains("(400): the training has diverged"),
        "{error}"
    );
    assert!(mock_replicas.failed().is_empty() && mock_replicas.ended().is_empty());
}
