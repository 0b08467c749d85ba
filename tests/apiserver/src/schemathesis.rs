use std::process::Command;

use di_python_tests::{installed, run};

const REQUIREMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/requirements.txt");
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/schemathesis.toml");

/// Runs schemathesis against the API of the OpenAPI document at this URL; panics with its report if
/// the API does not match.
pub fn run_schemathesis(document: &str, arguments: &[&str]) {
    let program = installed("schemathesis", REQUIREMENTS).join("bin/schemathesis");
    // It writes files into its working directory.
    let notes = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.current_dir(&notes);
    command.args(["--config-file", CONFIG, "run", document]);
    run(command.args(arguments));
}
