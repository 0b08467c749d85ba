//! Python programs from PyPI that tests and benchmarks run.

#![allow(clippy::missing_panics_doc)] // a helper that fails is a test that fails

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Returns a virtual environment with the pinned versions of a requirements file, and creates it if
/// it is missing. `package` names its main package.
pub fn installed(package: &str, requirements: &str) -> PathBuf {
    try_installed(package, requirements).unwrap_or_else(|error| panic!("{error}"))
}

/// The same as [`installed`], but returns errors.
pub fn try_installed(package: &str, requirements: &str) -> io::Result<PathBuf> {
    let home = std::env::var_os("HOME").map_or_else(|| "/root".into(), PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), Into::into);
    let all = cache.join("di-orchestrator/python");
    let wanted = std::fs::read_to_string(requirements)?;
    let version = wanted
        .lines()
        .find_map(|line| line.strip_prefix(package)?.strip_prefix("=="))
        // Hashes may follow.
        .and_then(|version| version.split_whitespace().next());
    let version = version.ok_or_else(|| {
        io::Error::other(format!(
            "{requirements} does not pin the version of {package}"
        ))
    })?;
    let dir = all.join(format!("{package}-{version}"));
    std::fs::create_dir_all(&all)?;
    // Another checkout may create it at the same time.
    let lock = File::create(all.join("lock"))?;
    lock.lock()?;
    let complete = dir.join("complete");
    if std::fs::read_to_string(&complete).ok().as_ref() != Some(&wanted) {
        install(&dir, requirements)?;
        std::fs::write(&complete, wanted)?;
    }
    Ok(dir)
}

fn install(dir: &Path, requirements: &str) -> io::Result<()> {
    try_run(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(dir),
    )?;
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        // The environment itself is the cache.
        "--no-cache-dir",
        "--requirement",
        requirements,
    ];
    try_run(Command::new(dir.join("bin/python")).args(pip))?;
    Ok(())
}

/// Runs a program to its end; panics with its output if it fails.
pub fn run(command: &mut Command) -> Output {
    try_run(command).unwrap_or_else(|error| panic!("{error}"))
}

fn try_run(command: &mut Command) -> io::Result<Output> {
    let output = command.output().map_err(|error| {
        io::Error::other(format!(
            "{command:?}: {error}; this needs Python 3 with venv (Debian: python3-venv)"
        ))
    })?;
    if !output.status.success() {
        return Err(io::Error::other(format!(
            "{command:?}: {}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    Ok(output)
}
