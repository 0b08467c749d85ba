//! `kubectl di exec`: runs a command in a container of a replica.

mod terminal;

use std::{
    io::{self, IsTerminal, Read, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args;
use di_client::{Deadline, ExecOptions, get_job, wait_for_started_pod};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

use crate::{
    flags::{globals::Globals, names::JobAndReplica, parsers::parse_duration, role::RoleName},
    signals::wait_for_signal,
};

use terminal::{RawMode, send_terminal_sizes};

/// Execute a command in a container of a replica; by default in the coordinator.
///
/// The exit code is that of the command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List the processes in the coordinator
  kubectl di exec cartpole -- ps aux

  # Open a shell in the first collector
  kubectl di exec cartpole --role collector --index 0 -it -- bash

  # Print a file in the replica with this name
  kubectl di exec cartpole/cartpole-learner-x7k2p -- cat /ckpt/log")]
pub struct Exec {
    /// Name of the job, or of the job and one of its replicas: NAME/REPLICA
    #[arg(value_name = "NAME[/REPLICA]")]
    target: JobAndReplica,
    /// Role of the replica
    #[arg(long, value_enum)]
    role: Option<RoleName>,
    /// Index of the replica within its role
    #[arg(long, value_name = "N", requires = "role")]
    index: Option<i32>,
    /// The length of time (like 5s, 2m, or 3h) to wait until the pod of the replica is running
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration)]
    pod_running_timeout: Duration,
    /// Container name. If omitted, use di-container
    #[arg(short, long)]
    container: Option<String>,
    /// Pass stdin to the container
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Stdin is a TTY
    #[arg(short = 't', long)]
    tty: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl Exec {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect_with_stdin(self.stdin).await?;
        let job = get_job(&cluster, &self.target.job).await?;
        let deadline = Deadline::after(Some(self.pod_running_timeout));
        let choice = self.target.to_choice(self.role.map(Into::into), self.index);
        let pod = wait_for_started_pod(&cluster, &job, &choice, deadline).await?;
        let is_terminal = io::stdin().is_terminal();
        if self.tty && self.stdin && !is_terminal {
            eprintln!("Unable to use a TTY - input is not a terminal or the right kind of file");
        }
        let options = ExecOptions {
            container: self.container.clone(),
            stdin: self.stdin,
            tty: self.tty && (is_terminal || !self.stdin),
        };
        let mut process = di_client::exec(&cluster, &pod, &self.command, &options).await?;
        // In raw mode, Ctrl-C goes to the container; otherwise it ends this process.
        let is_raw = options.tty && options.stdin && is_terminal;
        let signal = wait_for_signal(is_raw);
        let raw = is_raw.then(RawMode::enter).transpose();
        let raw = raw.context("cannot set the terminal to raw mode")?;
        if options.stdin
            && let Some(stdin) = process.stdin()
        {
            tokio::spawn(forward_stdin(stdin, process.can_close_stdin()));
        }
        if let Some(send) = process.resize_sender() {
            tokio::spawn(send_terminal_sizes(send));
        }
        let (stdout, stderr) = (process.stdout(), process.stderr());
        let mut errors = io::stderr();
        let outputs = async {
            let (a, b) = tokio::join!(copy_output(stdout, out), copy_output(stderr, &mut errors));
            a.and(b)
        };
        let code = tokio::select! {
            // Wait for both: output may arrive after the command has ended.
            (shown, code) = async { tokio::join!(outputs, process.wait_exit_code()) } => {
                shown?;
                code?
            }
            // After a signal, the exit code of the command is unknown.
            code = signal => {
                drop(raw);
                return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
            }
        };
        drop(raw);
        if code != 0 {
            eprintln!("command terminated with exit code {code}");
        }
        Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
    }
}

async fn copy_output(from: Option<impl AsyncRead + Unpin>, to: &mut impl Write) -> io::Result<()> {
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

/// Copies stdin to the container until its end.
async fn forward_stdin(mut to: impl AsyncWrite + Unpin, takes_end: bool) {
    let (send, mut input) = mpsc::channel::<Vec<u8>>(4);
    // A plain thread: unlike `spawn_blocking`, it does not delay the exit of the process.
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
    while let Some(bytes) = input.recv().await {
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    if takes_end {
        to.shutdown().await.ok();
    } else {
        // Closing the stream would also close the output, so the command must be interrupted.
        tokio::time::sleep(Duration::from_secs(1)).await;
        eprintln!(
            "Warning: Kubernetes before 1.30 cannot forward the end of stdin; press Ctrl-C if the command waits for it"
        );
        std::future::pending::<()>().await;
    }
}
