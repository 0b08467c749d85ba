//! Checks the dependencies of the in-cluster program.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::{collections::BTreeSet, process::Command};

/// The names of the crates that a program depends on.
fn crates_of(program: &str) -> BTreeSet<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--locked", "--package", program]);
    cargo.args(["--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = cargo.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let tree = String::from_utf8(output.stdout).unwrap();
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn orchestrator_does_not_depend_on_the_worker() {
    let (orchestrator, worker) = (crates_of("di-orchestrator"), crates_of("di-worker"));
    assert!(orchestrator.contains("di-controller"));
    for name in ["di-worker-lib", "candle-core"] {
        assert!(
            worker.contains(name),
            "di-worker does not depend on {name}; update this test"
        );
        assert!(
            !orchestrator.contains(name),
            "di-orchestrator depends on {name}"
        );
    }
}
