//! Trainings in one process that are interrupted and restarted.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use di_worker_lib::lifecycle::Status;

use crate::{LifecycleHandles, Worker};

const COORDINATOR: &str = "KUBERNETES_COORDINATOR_URL";
/// An iteration long enough that the process is stopped in its first one.
const SLOWLY: [&str; 2] = ["--pace", "1h"];
/// An endless training with small iterations, whose log fits into a pipe that is not read.
const FOREVER: [&str; 10] = [
    "--target-return",
    "501",
    "--max-iterations",
    "1000000",
    "--frames-per-task",
    "64",
    "--evaluation-episodes",
    "4",
    "--pace",
    "200ms",
];

impl Worker {
    /// Waits for the end of the training; returns its summary without the time.
    fn wait_until_solved(&mut self) -> String {
        let solved = self.wait_for_line("solved: ");
        let (summary, _time) = solved.rsplit_once(", ").unwrap();
        summary.to_owned()
    }
}

fn serial() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_di-worker"));
    command.args(["serial", "--seed", "2"]);
    command.env_remove(COORDINATOR);
    command
}

fn trial(seed: &str, storage: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_di-worker"));
    command.args(["trial", "--seed", seed, "--storage"]);
    command.arg(storage);
    command.env(COORDINATOR, "sweep-coordinator.rl:1");
    command
}

/// Starts a training in a pod of a job with a free port.
fn in_a_job(command: &mut Command, port: &str) -> (Worker, LifecycleHandles) {
    let mut worker = Worker::start(command.env(port, "0"));
    let said = worker.wait_for_line("life cycle on port ");
    let handles = LifecycleHandles::at(said.rsplit(' ').next().unwrap());
    (worker, handles)
}

/// File names of the checkpoints of a seed.
fn checkpoints(folder: &Path, seed: &str) -> Vec<PathBuf> {
    let found = fs::read_dir(folder.join(format!("checkpoints-{seed}")));
    let found = found.into_iter().flatten();
    let mut names: Vec<_> = found
        .map(|entry| entry.unwrap().file_name().into())
        .collect();
    names.sort();
    names
}

fn names(versions: &[u64]) -> Vec<PathBuf> {
    let names = versions.iter();
    names
        .map(|version| format!("checkpoint-{version}.safetensors").into())
        .collect()
}

#[test]
fn interrupted_training_resumes_from_checkpoint() {
    let mut undisturbed = Worker::start(&mut serial());
    let solved = undisturbed.wait_until_solved();
    assert_eq!(undisturbed.child.wait().unwrap().code(), Some(0));

    let folder = tempfile::tempdir().unwrap();
    let stored = || {
        let mut command = serial();
        command.arg("--storage").arg(folder.path());
        command
    };
    let mut first = Worker::start(stored().args(SLOWLY));
    first.wait_for_line("iteration   0");
    assert_eq!(first.exit_code_after_signal("TERM"), Some(143));
    assert_eq!(checkpoints(folder.path(), "2"), names(&[1]));

    let mut second = Worker::start(stored().args(SLOWLY));
    second.wait_for_line("resuming from");
    second.wait_for_line("iteration   1");
    assert_eq!(second.exit_code_after_signal("INT"), Some(143));
    assert_eq!(checkpoints(folder.path(), "2"), names(&[1, 2]));

    let mut third = Worker::start(stored().args(["--save-every", "0s"]));
    third.wait_for_line("resuming from");
    third.wait_for_line("saved");
    assert_eq!(
        third.wait_until_solved(),
        solved,
        "equal to the uninterrupted training"
    );
    assert_eq!(third.child.wait().unwrap().code(), Some(0));
    let left = fs::read_dir(folder.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn training_without_storage_stops_on_sigterm() {
    let mut worker = Worker::start(serial().args(SLOWLY));
    worker.wait_for_line("iteration   0");
    assert_eq!(worker.exit_code_after_signal("TERM"), Some(143));
}

#[test]
fn invalid_coordinator_url_prevents_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = serial();
    command.arg("--storage").arg(folder.path());
    let mut worker = Worker::start(command.env(COORDINATOR, "127.0.0.1:80"));
    worker.wait_for_line(COORDINATOR);
    assert_eq!(worker.child.wait().unwrap().code(), Some(2));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn trials_with_two_seeds_share_storage_independently() {
    let folder = tempfile::tempdir().unwrap();
    let of = |seed| checkpoints(&folder.path().join("rl/sweep"), seed);
    let mut both = ["0", "1"].map(|seed| Worker::start(trial(seed, folder.path()).args(SLOWLY)));
    for trial in &mut both {
        trial.wait_for_line("iteration   0");
    }
    for trial in both {
        assert_eq!(trial.exit_code_after_signal("TERM"), Some(143));
    }
    for seed in ["0", "1"] {
        assert_eq!(of(seed), names(&[1]), "seed {seed}");
    }

    let mut again = Worker::start(&mut trial("1", folder.path()));
    again.wait_for_line("resuming from");
    again.wait_until_solved();
    assert_eq!(
        again.exit_code_after_signal("TERM"),
        Some(0),
        "the training has ended"
    );
    assert_eq!(of("1"), names(&[]));
    assert_eq!(of("0"), names(&[1]));
}

#[tokio::test]
async fn serial_training_is_paused_and_stopped_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = serial();
    command.args(FOREVER).arg("--storage").arg(folder.path());
    let (mut worker, handles) = in_a_job(&mut command, "COORDINATOR_PORT");
    worker.wait_for_line("iteration   0");
    let paused = handles.call("pause").await;
    assert_eq!(paused.status, Status::Paused);
    assert!(paused.polls > 0 && paused.samples > 0 && paused.stats.contains_key("evaluation"));
    // Another training makes progress meanwhile.
    Worker::start(serial().args(FOREVER)).wait_for_line("iteration   2");
    assert_eq!(handles.status().await, paused);

    assert_eq!(handles.call("start").await.status, Status::Running);
    worker.wait_for_line(&format!("iteration {:3}", paused.polls));
    let paused = handles.call("pause").await;
    assert_eq!(handles.call("exit").await.status, Status::Exiting);
    assert_eq!(worker.child.wait().unwrap().code(), Some(0));
    let kept = checkpoints(folder.path(), "2");
    assert!(kept.contains(&names(&[paused.polls])[0]), "{kept:?}");
}

#[tokio::test]
async fn trial_serves_lifecycle_until_sweep_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = trial("3", folder.path());
    let (mut worker, handles) = in_a_job(command.args(SLOWLY), "COLLECTOR_PORT");
    worker.wait_for_line("iteration   0");
    assert_eq!(handles.call("pause").await.polls, 1);
    handles.call("exit").await;
    assert_eq!(worker.child.wait().unwrap().code(), Some(143));

    let (mut worker, handles) = in_a_job(&mut trial("3", folder.path()), "COLLECTOR_PORT");
    worker.wait_for_line("resuming from");
    worker.wait_until_solved();
    assert_eq!(handles.status().await.status, Status::Running);
    handles.call("exit").await;
    assert_eq!(worker.child.wait().unwrap().code(), Some(0));
}
