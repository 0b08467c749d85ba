//! Programs from PyPI that tests run.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc)] // a helper that fails is a test that fails

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A virtual environment with the versions of a requirements file, one of which is this package's; it is made where it is missing.
pub fn installed(package: &str, requirements: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map_or_else(|| "/root".into(), PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), Into::into);
    let all = cache.join("di-orchestrator/python");
    let wanted = std::fs::read_to_string(requirements).unwrap();
    let version = wanted
        .lines()
        .find_map(|line| line.strip_prefix(package)?.strip_prefix("=="));
    let dir = all.join(format!("{package}-{}", version.unwrap()));
    std::fs::create_dir_all(&all).unwrap();
    // Other checkouts may be at it, too.
    let lock = File::create(all.join("lock")).unwrap();
    lock.lock().unwrap();
    let complete = dir.join("complete");
    if std::fs::read_to_string(&complete).ok().as_ref() != Some(&wanted) {
        install(&dir, requirements);
        std::fs::write(&complete, wanted).unwrap();
    }
    dir
}

fn install(dir: &Path, requirements: &str) {
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(dir));
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--requirement",
        requirements,
    ];
    run(Command::new(dir.join("bin/python")).args(pip));
}

/// Runs a program to its end; panics with its output where it fails.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; these tests need Python 3 with venv (Debian: python3-venv)")
    });
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
