//! kubectl di: create, watch, scale and delete DIJobs.

mod age;
mod args;
mod colour;
mod completion;
mod completion_verb;
mod create;
mod describe;
mod doctor;
mod dry_run;
mod events;
mod exec;
mod format;
mod generate;
mod get;
mod globals;
mod install;
mod lifecycle;
mod logs;
mod manifests;
mod names;
mod output;
mod parsers;
mod port_forward;
mod printer;
mod progress_bar;
mod replicas;
mod resources;
mod restart;
mod role;
mod rows;
mod selection;
mod setup;
mod signals;
mod suspend;
mod table;
mod top;
mod uninstall;
mod upgrade;
mod validate;
mod version;
mod wait;
mod wait_flags;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use crate::{
    args::{Cli, build_command},
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
