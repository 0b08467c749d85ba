//! kubectl di: create, watch and scale DIJobs.

mod cli;
mod completion;
mod flags;
mod output;
mod signals;
mod verbs;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use crate::{
    cli::{Cli, build_command},
    completion::complete_if_requested,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // An error means that a provider is installed already. See docs/decisions/0006.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if complete_if_requested(build_command()).await {
        return ExitCode::SUCCESS;
    }
    let cli = Cli::parse_args();
    let mut out = io::stdout();
    let result = cli.run(&mut out).await;
    match result.and_then(|code| Ok(out.flush().map(|()| code)?)) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::report_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Whether the reader closed the pipe, as `head` does after its last line.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
