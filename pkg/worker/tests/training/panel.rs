//! A coordinator as the control panel of its replicas.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use di_worker_lib::{
    Error,
    coordinator::{
        Options,
        progress::{Outcome, Progress},
        training::Goal,
    },
    lifecycle::{Report, Status},
};
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    PATIENCE, coordinator, files,
    lifecycle::{ask, ask_all, call, patient},
    mock_replicas::{MockReplicas, loopback_listener},
    options, wait_for_first_update, wait_for_progress,
};

/// A running training and the address of its coordinator.
pub struct Training {
    pub address: String,
    pub progress: watch::Receiver<Progress>,
    pub running: JoinHandle<Result<Outcome, Error>>,
}

impl Training {
    pub async fn begin(mock_replicas: &MockReplicas, options: Options) -> Self {
        let coordinator = coordinator(mock_replicas, options);
        let mut progress = coordinator.subscribe_progress();
        let listener = loopback_listener().await;
        let address = listener.local_addr().unwrap().to_string();
        let running = tokio::spawn(coordinator.run(listener, std::future::pending()));
        wait_for_first_update(&mut progress).await;
        Self {
            address,
            progress,
            running,
        }
    }

    /// Waits for two updates of the model.
    pub async fn wait_for_two_updates(&mut self) {
        let iteration = self.progress.borrow().iteration;
        self.wait_for_progress(|progress| progress.iteration >= iteration + 2)
            .await;
    }

    /// Waits until the progress meets a condition.
    pub async fn wait_for_progress(&mut self, is_met: impl FnMut(&Progress) -> bool) {
        wait_for_progress(&mut self.progress, is_met).await;
    }

    /// Ends all by an exit call to the coordinator; every program must succeed.
    pub async fn exit_all(self, mock_replicas: &MockReplicas, programs: usize) {
        assert_eq!(ask(&self.address, "exit").await.status, Status::Exiting);
        assert_eq!(self.running.await.unwrap().unwrap(), Outcome::Ended);
        let ended = wait_until(|| mock_replicas.ended(), |ended| ended.len() == programs).await;
        assert!(ended.values().all(|is_ok| *is_ok), "{ended:?}");
        assert!(
            mock_replicas.failed().is_empty(),
            "{:?}",
            mock_replicas.failed()
        );
    }
}

/// Waits until a value meets a condition.
pub async fn wait_until<T: Debug>(look: impl Fn() -> T, is_met: impl Fn(&T) -> bool) -> T {
    let start = Instant::now();
    loop {
        let seen = look();
        if is_met(&seen) {
            return seen;
        }
        assert!(start.elapsed() < PATIENCE, "timeout at {seen:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Options of an endless training.
pub fn endless() -> Options {
    let goal = Goal {
        target_return: 501.0,
        max_iterations: u64::MAX,
        ..Goal::default()
    };
    Options { goal, ..patient() }
}

pub fn all_are(reports: &[Report], status: Status) -> bool {
    reports.iter().all(|report| report.status == status)
}

/// Waits until the coordinator has read the present list.
async fn wait_for_listing(mock_replicas: &MockReplicas) {
    let lists = mock_replicas.lists();
    // The third list request begins after the response of the second is processed.
    wait_until(|| mock_replicas.lists(), |now| *now >= lists + 3).await;
}

#[tokio::test]
async fn coordinator_pause_and_start_apply_to_all_replicas() {
    let mock_replicas = MockReplicas::start().await;
    let mut training = Training::begin(&mock_replicas, endless()).await;
    let before = mock_replicas.addresses();

    let paused = ask(&training.address, "pause").await;
    assert_eq!(paused.status, Status::Paused);
    assert!(paused.samples > 0 && paused.batches > 0);
    let all_paused = ask_all(&before, "").await;
    assert!(all_are(&all_paused, Status::Paused), "{all_paused:?}");
    assert!(all_paused.iter().all(|report| report.samples > 0));

    mock_replicas.declare(1, 1);
    wait_for_listing(&mock_replicas).await;
    let after = mock_replicas.addresses();
    let came: Vec<_> = after.iter().filter(|one| !before.contains(one)).collect();
    for came in &came {
        let waits = ask(came, "").await;
        assert_eq!((waits.status, waits.polls), (Status::Configured, 0));
    }
    assert_eq!(ask_all(&before, "").await, all_paused, "nothing moves");

    assert_eq!(
        ask(&training.address, "start").await.status,
        Status::Running
    );
    let started = ask_all(&after, "").await;
    assert!(all_are(&started, Status::Running), "{started:?}");
    training.wait_for_two_updates().await;
    training.exit_all(&mock_replicas, after.len()).await;
    // The learner may store another model during the exit.
    let left = files(mock_replicas.folder());
    let has = |name: &str| {
        left.iter()
            .any(|file| file.display().to_string().contains(name))
    };
    assert!(
        has("checkpoints-") && has("model-final.safetensors"),
        "{left:?}"
    );
}

#[tokio::test]
async fn replicas_are_configured_at_next_start() {
    let mock_replicas = MockReplicas::start().await;
    let mut training = Training::begin(&mock_replicas, endless()).await;
    let narrow = json!({"learner": {"num_epochs": 1}});
    let (code, envelope, _) = call(&training.address, "configure", &narrow).await;
    assert_eq!(code, 409);
    let why = "cannot configure while it is running: pause it first";
    assert_eq!(envelope.message, why);

    ask(&training.address, "pause").await;
    for (refused, part) in [
        (json!({"learners": {}}), "learners"),
        (
            json!({"collector": {"num_envs_per_worker": 3}}),
            "worker_num_splits 1",
        ),
        (
            json!({"learner": {"num_epochs": 0}}),
            "num_epochs must be in 1..=1000, but is 0",
        ),
    ] {
        let (code, envelope, report) = call(&training.address, "configure", &refused).await;
        assert_eq!((code, report.status), (400, Status::Paused));
        assert!(envelope.message.contains(part), "{}", envelope.message);
    }
    let (_, _, configured) = call(&training.address, "configure", &narrow).await;
    assert_eq!(configured.status, Status::Configured);
    let replicas = ask_all(&mock_replicas.addresses(), "").await;
    assert!(all_are(&replicas, Status::Paused));

    ask(&training.address, "start").await;
    training.wait_for_two_updates().await;
    training.exit_all(&mock_replicas, 3).await;
}

#[tokio::test]
async fn replacement_replica_is_configured_and_started() {
    let mock_replicas = MockReplicas::start().await;
    let mut options = Options {
        patience: options().patience,
        ..endless()
    };
    options.configs = serde_json::from_value(json!({
        "collector": {"num_envs_per_worker": 4}, "learner": {"num_epochs": 1},
    }))
    .unwrap();
    let mut training = Training::begin(&mock_replicas, options).await;
    let learner = mock_replicas.learners().remove(0);
    mock_replicas.kill(&learner);
    wait_until(
        || mock_replicas.failed(),
        |failed| failed.contains(&learner),
    )
    .await;
    training.wait_for_two_updates().await;
    ask(&training.address, "exit").await;
    assert_eq!(training.running.await.unwrap().unwrap(), Outcome::Ended);
}
