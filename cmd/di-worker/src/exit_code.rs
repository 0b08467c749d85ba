use std::process::ExitCode;

use di_worker_lib::coordinator::progress::Outcome;

/// Exit code of a process that SIGTERM ends, as in a shell.
pub const TERMINATED: u8 = 128 + 15;

/// The exit code of a training.
pub fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        // A training that was ended by an exit call must not be restarted.
        Outcome::Solved | Outcome::Ended => ExitCode::SUCCESS,
        Outcome::Unsolved | Outcome::TimedOut => ExitCode::FAILURE,
        Outcome::Interrupted => ExitCode::from(TERMINATED),
    }
}
