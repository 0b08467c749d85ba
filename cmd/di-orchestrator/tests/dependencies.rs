//! What the in-cluster program is made of.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::{collections::BTreeSet, process::Command};

/// Names of the crates that a program is linked from.
fn crates_of(program: &str) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--locked", "--package", program]);
    cargo.args(["--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    let told = cargo.output().unwrap();
    let complaint = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{complaint}");
    let tree = String::from_utf8(told.stdout).unwrap();
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn nothing_of_the_worker_is_in_the_in_cluster_program() {
    let (orchestrator, worker) = (crates_of("di-orchestrator"), crates_of("di-worker"));
    assert!(orchestrator.contains("di-controller"));
    for name in ["di-runtime", "candle-core", "object_store"] {
        assert!(worker.contains(name), "{name} is not what it is called");
        assert!(!orchestrator.contains(name), "{name} has come in");
    }
}
