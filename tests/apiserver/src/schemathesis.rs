use std::process::Command;

use di_python_tests::{installed, run};

const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/requirements.txt");
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schemathesis.toml");

/// Lets schemathesis loose on the API that the document at this URL describes; panics with its report where they do not fit.
pub fn run_schemathesis(document: &str, arguments: &[&str]) {
    let program = installed("schemathesis", REQUIREMENTS).join("bin/schemathesis");
    // It keeps notes of its runs where it is.
    let notes = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.current_dir(&notes);
    command.args(["--config-file", CONFIG, "run", document]);
    run(command.args(arguments));
}
