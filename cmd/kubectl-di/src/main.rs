//! kubectl di: create, watch, scale and end DIJobs.

mod age;
mod args;
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
mod life;
mod logs;
mod manifests;
mod mistakes;
mod names;
mod options;
mod output;
mod port_forward;
mod printed;
mod replicas;
mod resources;
mod restart;
mod role;
mod rows;
mod selection;
mod setup;
mod sort;
mod suspend;
mod table;
mod top;
mod uninstall;
mod upgrade;
mod validate;
mod version;
mod wait;
mod waiting;
mod words;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use crate::args::{Cli, Misread};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // The only provider that is compiled in; an error would mean that it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(words) = complete::asked() {
        return complete::run(words).await;
    }
    let cli = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli,
        Err(Misread::Asked(help)) => {
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
        Err(Misread::Mistake(told)) => {
            eprint!("{told}");
            return ExitCode::FAILURE;
        }
    };
    let mut out = io::stdout();
    let result = cli.run(&mut out).await;
    match result.and_then(|code| Ok(out.flush().map(|()| code)?)) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::report(&error);
            ExitCode::FAILURE
        }
    }
}

/// Whether the reader of our output has seen enough, as `head` does.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
