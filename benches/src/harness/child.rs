//! Processes that are measured.

use std::{
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Read},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::harness::{
    http, machine,
    serving::{Addresses, Serve},
};

/// A process that ends with this value.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Process {
    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Starts the released `di-orchestrator`, on the cluster of this kubeconfig.
    pub fn orchestrator(kubeconfig: &Path, log: &Path, args: &[impl AsRef<OsStr>]) -> Result<Self> {
        let program = sibling("di-orchestrator")?;
        let child = Command::new(&program)
            .args(args)
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(File::create(log)?)
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| {
                format!(
                    "cannot start {}: run `make bench`, which builds it",
                    program.display()
                )
            })?;
        Ok(Self(child))
    }

    /// Its resource usage.
    pub fn usage(&self) -> Result<machine::Usage> {
        machine::usage(self.id())
    }
}

/// A program that is built with this one.
pub fn sibling(name: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

/// A free address.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Waits until a server answers this path with success.
pub async fn answers(address: SocketAddr, path: &str) -> Result<()> {
    let request = http::request("GET", path, "");
    let began = Instant::now();
    loop {
        let last = match http::Connection::open([127, 0, 0, 1].into(), address).await {
            Ok(mut connection) => match connection.call(&request).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if began.elapsed() > Duration::from_secs(60) {
            return Err(last.context(format!("the server at {address} does not answer {path}")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A process of this program that serves full caches.
pub struct Serving {
    process: Process,
    output: BufReader<ChildStdout>,
    /// Its address.
    pub addresses: Addresses,
}

impl Serving {
    /// Starts one, and waits until its caches are full.
    pub fn start(what: Serve) -> Result<Self> {
        let Serve {
            jobs,
            replicas,
            events,
            memberships,
        } = what;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .args([
                "--jobs",
                &jobs.to_string(),
                "--replicas",
                &replicas.to_string(),
            ])
            .args(["--events", &events.to_string()])
            .args(["--memberships", &memberships.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().context("no output")?;
        let (process, mut output) = (Process(child), BufReader::new(output));
        let mut line = String::new();
        output.read_line(&mut line)?;
        let addresses = serde_json::from_str(&line).context("the server did not start")?;
        Ok(Self {
            process,
            output,
            addresses,
        })
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its resource usage.
    pub fn usage(&self) -> Result<machine::Usage> {
        self.process.usage()
    }

    /// Ends it, and returns how often the endpoint asked the API server.
    pub fn end(mut self) -> Result<u64> {
        drop(self.process.0.stdin.take());
        let mut text = String::new();
        self.output.read_to_string(&mut text)?;
        text.trim().parse().context("the server ended otherwise")
    }
}
