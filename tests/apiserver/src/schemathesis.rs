use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/requirements.txt");
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schemathesis.toml");

/// Lets schemathesis loose on the API that the document at this URL describes; panics with its report where they do not fit.
pub fn schemathesis(document: &str, arguments: &[&str]) {
    let program = installed().join("bin/schemathesis");
    let mut command = Command::new(program);
    command.args(["--config-file", CONFIG, "run", document]);
    run(command.args(arguments));
}

/// A virtual environment of Python with the versions of `requirements.txt`; it is made where it is missing.
fn installed() -> PathBuf {
    let home = std::env::var_os("HOME").map_or_else(|| "/root".into(), PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(|| home.join(".cache"), Into::into);
    let all = cache.join("di-orchestrator/python");
    let wanted = std::fs::read_to_string(REQUIREMENTS).unwrap();
    let version = wanted
        .lines()
        .find_map(|line| line.strip_prefix("schemathesis=="));
    let dir = all.join(format!("schemathesis-{}", version.unwrap()));
    std::fs::create_dir_all(&all).unwrap();
    // Other checkouts may be at it, too.
    let lock = File::create(all.join("lock")).unwrap();
    lock.lock().unwrap();
    let complete = dir.join("complete");
    if std::fs::read_to_string(&complete).ok().as_ref() != Some(&wanted) {
        install(&dir);
        std::fs::write(&complete, wanted).unwrap();
    }
    dir
}

fn install(dir: &Path) {
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(dir));
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--requirement",
        REQUIREMENTS,
    ];
    run(Command::new(dir.join("bin/python")).args(pip));
}

fn run(command: &mut Command) -> Output {
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
