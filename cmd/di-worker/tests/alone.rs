//! Trainings of one process that is told to end, and started anew.

#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

use std::{
    fs,
    io::{BufRead, BufReader, Lines},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

const COORDINATOR: &str = "KUBERNETES_COORDINATOR_URL";
/// So long that it is told to end in the iteration that it has begun with, however slow the machine is.
const SLOWLY: [&str; 2] = ["--pace", "1h"];

struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits for a line with these words; what it says from there.
    fn says(&mut self, words: &str) -> String {
        let mut said = String::new();
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            if let Some(at) = line.find(words) {
                return line[at..].to_owned();
            }
            said += &line;
            said.push('\n');
        }
        panic!("no {words:?} in {said}");
    }

    /// Sends a signal; the exit code.
    fn end_by(mut self, signal: &str) -> Option<i32> {
        let kill = format!("kill -{signal} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success(), "{kill}");
        self.child.wait().unwrap().code()
    }

    /// Trains to the end; all that is told of it but the time.
    fn solves(&mut self) -> String {
        let solved = self.says("solved: ");
        let (told, _time) = solved.rsplit_once(", ").unwrap();
        told.to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
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

/// Names of the checkpoints below a folder, if it has any.
fn checkpoints(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder.join("checkpoints"));
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
        .map(|version| format!("checkpoint-{version}.bin").into())
        .collect()
}

#[test]
fn a_training_that_was_told_to_end_goes_on_where_it_was() {
    let mut undisturbed = Worker::start(&mut serial());
    let solved = undisturbed.solves();
    assert_eq!(undisturbed.child.wait().unwrap().code(), Some(0));

    let folder = tempfile::tempdir().unwrap();
    let stored = || {
        let mut command = serial();
        command.arg("--storage").arg(folder.path());
        command
    };
    let mut first = Worker::start(stored().args(SLOWLY));
    first.says("iteration   0");
    assert_eq!(first.end_by("TERM"), Some(143));
    assert_eq!(checkpoints(folder.path()), names(&[1]));

    let mut second = Worker::start(stored().args(SLOWLY));
    second.says("going on from");
    second.says("iteration   1");
    assert_eq!(second.end_by("INT"), Some(143));
    assert_eq!(checkpoints(folder.path()), names(&[1, 2]));

    let mut third = Worker::start(stored().args(["--save-every", "0s"]));
    third.says("going on from");
    third.says("saved");
    assert_eq!(third.solves(), solved, "as if it had not been disturbed");
    assert_eq!(third.child.wait().unwrap().code(), Some(0));
    assert!(!folder.path().join("checkpoints").exists());
}

#[test]
fn without_a_storage_it_ends_when_it_is_told_to_all_the_same() {
    let mut worker = Worker::start(serial().args(SLOWLY));
    worker.says("iteration   0");
    assert_eq!(worker.end_by("TERM"), Some(143));
}

#[test]
fn trials_of_two_seeds_in_one_storage_do_not_touch_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let of = |seed| folder.path().join("rl/sweep/trials").join(seed);
    let mut both = ["0", "1"].map(|seed| Worker::start(trial(seed, folder.path()).args(SLOWLY)));
    for trial in &mut both {
        trial.says("iteration   0");
    }
    for trial in both {
        assert_eq!(trial.end_by("TERM"), Some(143));
    }
    for seed in ["0", "1"] {
        assert_eq!(checkpoints(&of(seed)), names(&[1]), "seed {seed}");
    }

    let mut again = Worker::start(&mut trial("1", folder.path()));
    again.says("going on from");
    again.solves();
    assert_eq!(again.end_by("TERM"), Some(0), "it has trained to the end");
    assert_eq!(checkpoints(&of("1")), names(&[]));
    assert_eq!(checkpoints(&of("0")), names(&[1]));
}
