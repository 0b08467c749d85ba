//! `kubectl di exec`: a command in a replica's container.

mod terminal;

use std::{
    io::{self, IsTerminal, Read, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args;
use di_client::{Deadline, ExecOptions, job, started_pod};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

use crate::{args::duration, globals::Globals, names::JobAndReplica, role::RoleName};

pub use terminal::ended;
use terminal::{RawMode, resized};

/// Run a command in a replica's container; the coordinator's unless told otherwise.
///
/// Ends with the exit code of the command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # What runs in the coordinator
  kubectl di exec cartpole -- ps aux

  # A shell in the first collector
  kubectl di exec cartpole --role collector --index 0 -it -- bash

  # A file of the replica of this name
  kubectl di exec cartpole/cartpole-learner-x7k2p -- cat /ckpt/log")]
pub struct Exec {
    /// Name of the job, or of the job and one of its replicas: NAME/REPLICA
    #[arg(value_name = "NAME[/REPLICA]")]
    target: JobAndReplica,
    /// In a replica of this role
    #[arg(long, value_enum)]
    role: Option<RoleName>,
    /// In the replica of this index within its role
    #[arg(long, value_name = "N", requires = "role")]
    index: Option<i32>,
    /// How long to wait for the replica's pod to run
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration)]
    pod_running_timeout: Duration,
    /// Container instead of di-container
    #[arg(short, long)]
    container: Option<String>,
    /// Pass on what is typed
    #[arg(short = 'i', long)]
    stdin: bool,
    /// What is typed on is a terminal
    #[arg(short = 't', long)]
    tty: bool,
    /// Only the command's own output, none of ours
    #[arg(short, long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Exec {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let job = job(&cluster, &self.target.job).await?;
        let deadline = Deadline::after(Some(self.pod_running_timeout));
        let choice = self.target.choice(self.role.map(Into::into), self.index);
        let pod = started_pod(&cluster, &job, &choice, deadline).await?;
        let is_terminal = io::stdin().is_terminal();
        if self.tty && self.stdin && !is_terminal && !self.quiet {
            eprintln!("Unable to use a TTY - input is not a terminal or the right kind of file");
        }
        let options = ExecOptions {
            container: self.container.clone(),
            stdin: self.stdin,
            tty: self.tty && (is_terminal || !self.stdin),
        };
        let mut process = di_client::exec(&cluster, &pod, &self.command, &options).await?;
        // Where nothing is passed on, Ctrl-C is for us.
        let is_raw = options.tty && options.stdin && is_terminal;
        let ended = ended(is_raw);
        let raw = is_raw.then(RawMode::enter).transpose();
        let raw = raw.context("the terminal")?;
        if options.stdin
            && let Some(stdin) = process.stdin()
        {
            tokio::spawn(type_in(stdin, process.takes_end(), self.quiet));
        }
        if let Some(tell) = process.sizes() {
            tokio::spawn(resized(tell));
        }
        let (stdout, stderr) = (process.stdout(), process.stderr());
        let mut errors = io::stderr();
        let outputs = async {
            let (a, b) = tokio::join!(show(stdout, out), show(stderr, &mut errors));
            a.and(b)
        };
        let code = tokio::select! {
            // Both, whichever is first: output may still come when the command has ended.
            (shown, code) = async { tokio::join!(outputs, process.wait()) } => {
                shown?;
                code?
            }
            // Nobody knows how the command ends then.
            signal = ended => {
                drop(raw);
                return Ok(ExitCode::from(u8::try_from(signal).unwrap_or(1)));
            }
        };
        drop(raw);
        if code != 0 && !self.quiet {
            eprintln!("command terminated with exit code {code}");
        }
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
    }
}

async fn show(from: Option<impl AsyncRead + Unpin>, to: &mut impl Write) -> io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match from.read(&mut buffer).await? {
            0 => return Ok(()),
            read => {
                to.write_all(&buffer[..read])?;
                to.flush()?;
            }
        }
    }
}

/// Passes on what is typed, to the end.
async fn type_in(mut to: impl AsyncWrite + Unpin, takes_end: bool, quiet: bool) {
    let (send, mut typed) = mpsc::channel::<Vec<u8>>(4);
    // A thread of its own, which the end of the process does not wait for.
    std::thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
                Ok(read) => {
                    if send.blocking_send(buffer[..read].to_vec()).is_err() {
                        return;
                    }
                }
            }
        }
    });
    while let Some(bytes) = typed.recv().await {
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    if takes_end {
        to.shutdown().await.ok();
    } else {
        // It would take the output with it; so a command that reads on must be interrupted.
        tokio::time::sleep(Duration::from_secs(1)).await;
        if !quiet {
            eprintln!(
                "Warning: Kubernetes before 1.30 cannot be told that the input has ended; a command that waits for that goes on until Ctrl-C"
            );
        }
        std::future::pending::<()>().await;
    }
}
