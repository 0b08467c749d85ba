//! kubectl di: create, watch, scale and delete DIJobs.

mod age;
mod args;
mod clap_errors;
mod cmdline;
mod colour;
mod columns;
mod complete;
mod completion;
mod create;
mod delete;
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
mod options;
mod output;
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
mod sort;
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

use crate::args::{Cli, ParseError};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // An error means that a provider is installed already. See docs/decisions/0006.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(request) = complete::requested_completion() {
        return complete::run(request).await;
    }
    let cli = match Cli::parse_args(std::env::args_os()) {
        Ok(cli) => cli,
        Err(ParseError::Help(help)) => {
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
        Err(ParseError::Usage(message)) => {
            eprint!("{message}");
            return ExitCode::FAILURE;
        }
    };
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
