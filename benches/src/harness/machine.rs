//! Cores, processes, and what the numbers depend on.

use std::{fs, process::Command};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// The core that measured servers keep to.
pub const SERVER_CORE: usize = 0;
/// The core that their clients keep to.
pub const CLIENT_CORE: usize = 1;

/// Keeps the calling thread, and those that it starts, to one core. On a machine of one core nothing is done.
pub fn pin(core: usize) -> Result<()> {
    pin_to([core])
}

/// The same, to some cores; processes that it starts keep to them, too.
pub fn pin_to(cores: impl IntoIterator<Item = usize>) -> Result<()> {
    if std::thread::available_parallelism()?.get() == 1 {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for core in cores {
        set.set(core);
    }
    sched_setaffinity(None, &set).context("sched_setaffinity")
}

/// Resource usage of a process.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Memory now, in MiB.
    pub resident: f64,
    /// The most memory so far, in MiB.
    pub peak: f64,
    /// Processor time so far, in seconds.
    pub cpu: f64,
}

/// Resource usage of a running process.
pub fn usage(pid: u32) -> Result<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let of = |field: &str| -> Result<f64> {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.split_whitespace().next());
        let kib: f64 = number.with_context(|| format!("no {field}"))?.parse()?;
        Ok(kib / 1024.0)
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name, in parentheses, may hold blanks.
    let fields = stat.rsplit_once(')').context("no stat")?.1;
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<f64>);
    let ticks: f64 = ticks.sum::<Result<f64, _>>()?;
    Ok(Usage {
        resident: of("VmRSS:")?,
        peak: of("VmHWM:")?,
        cpu: ticks / 100.0,
    })
}

/// Machine, versions and time of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor, and how many cores there are.
    pub processor: String,
    /// Memory.
    pub memory: String,
    /// Kernel.
    pub kernel: String,
    /// Compiler.
    pub rustc: String,
    /// Commit, and whether there were changes on top.
    pub commit: String,
    /// The servers that the API server benchmarks ran against.
    pub servers: String,
    /// When.
    pub when: String,
    /// Load average over a minute as the run began and as it ended.
    pub load: Vec<String>,
}

impl Machine {
    /// Looks.
    pub fn look() -> Result<Self> {
        let cpu = fs::read_to_string("/proc/cpuinfo")?;
        let model = cpu.lines().find(|line| line.starts_with("model name"));
        let model = model
            .and_then(|line| line.split_once(':'))
            .map_or("unknown", |(_, name)| name);
        let cores = std::thread::available_parallelism()?;
        let memory = fs::read_to_string("/proc/meminfo")?;
        let memory = memory.lines().next().unwrap_or_default();
        let says = |program: &str, args: &[&str]| {
            let output = Command::new(program).args(args).output().ok();
            let text =
                output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
            text.unwrap_or_default()
        };
        let assets = std::env::var("KUBEBUILDER_ASSETS").unwrap_or_default();
        let api_server = says(&format!("{assets}/kube-apiserver"), &["--version"]);
        let etcd = says(&format!("{assets}/etcd"), &["--version"]);
        let etcd = etcd.lines().next().unwrap_or_default();
        Ok(Self {
            processor: format!("{}, {cores} cores", model.trim()),
            memory: memory.trim_start_matches("MemTotal:").trim().to_owned(),
            kernel: says("uname", &["-sr"]),
            rustc: says("rustc", &["--version"]),
            commit: says("git", &["describe", "--always", "--dirty"]),
            servers: format!(
                "kube-apiserver {api_server}, {etcd} with --unsafe-no-fsync, both on this machine"
            ),
            when: jiff::Timestamp::now()
                .strftime("%Y-%m-%d %H:%M UTC")
                .to_string(),
            load: vec![load()?],
        })
    }
}

/// The load average over the last minute.
pub fn load() -> Result<String> {
    let load = fs::read_to_string("/proc/loadavg")?;
    Ok(load
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned())
}
