//! `kubectl di dashboard`: jobs, replicas, training curves and logs in a browser.

use std::{
    io::{self, IsTerminal, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::{Command, ExitCode, Stdio},
};

use anyhow::Result;
use clap::Args;
use di_client::get_job;
use di_dashboard::Options;

use crate::{
    flags::{globals::Globals, names::parse_job_name},
    signals::{exit_code_for, wait_for_signal},
};

/// Show jobs, replicas, training curves and logs in a browser.
///
/// Prints the address of the page, and serves the page until it is interrupted. The page has the
/// permissions of your kubeconfig; nothing is installed in the cluster. The address contains a
/// secret: all who know it can do what you can do. Only programs on this machine can connect.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Show the jobs of the current namespace
  kubectl di dashboard

  # Show one job first, and change nothing
  kubectl di dashboard cartpole --read-only

  # On a remote machine, for: ssh -L 8080:127.0.0.1:8080 MACHINE
  kubectl di dashboard --port 8080 --no-browser")]
pub struct Dashboard {
    /// Name of a job to show first
    #[arg(value_name = "NAME", value_parser = parse_job_name)]
    name: Option<String>,
    /// If present, show the jobs of all namespaces first
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Local port to listen on; 0 selects a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Address to listen on: 127.0.0.1 or ::1
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        value_parser = parse_loopback
    )]
    address: IpAddr,
    /// If true, the page cannot change anything
    #[arg(long)]
    read_only: bool,
    /// If true, do not open a browser
    #[arg(long)]
    no_browser: bool,
}

impl Dashboard {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        if let Some(name) = &self.name {
            get_job(&cluster, name).await?;
        }
        let namespace = cluster.namespace().name.clone();
        let options = Options {
            address: self.address,
            port: self.port,
            all_namespaces: self.all_namespaces,
            read_only: self.read_only,
        };
        let dashboard = di_dashboard::Dashboard::bind(cluster, options).await?;
        let job = self.name.as_deref();
        let url = dashboard.url(job.map(|name| (namespace.as_str(), name)));
        // Handle signals before the address is printed: a caller may send one at once.
        let ended = wait_for_signal(false);
        writeln!(out, "{url}")?;
        out.flush()?;
        eprintln!("Press Ctrl-C to stop.");
        if !self.no_browser && io::stdout().is_terminal() {
            open_browser(&url);
        }
        let mut signal = 0;
        dashboard.serve(async { signal = ended.await }).await;
        Ok(exit_code_for(signal))
    }
}

fn parse_loopback(text: &str) -> Result<IpAddr, String> {
    let address = text.parse().ok();
    let address = address.filter(|address: &IpAddr| {
        *address == Ipv4Addr::LOCALHOST || *address == Ipv6Addr::LOCALHOST
    });
    address.ok_or_else(|| {
        "must be 127.0.0.1 or ::1; to use the page from another machine: ssh -L".to_owned()
    })
}

/// Opens the page. If that fails, the user can still open the printed address.
fn open_browser(url: &str) {
    let (program, first): (_, &[&str]) = if cfg!(windows) {
        ("rundll32", &["url.dll,FileProtocolHandler"])
    } else if cfg!(target_os = "macos") {
        ("open", &[])
    } else {
        ("xdg-open", &[])
    };
    // Without a display, xdg-open would start a browser in this terminal.
    let displays = ["DISPLAY", "WAYLAND_DISPLAY"];
    let has_display = displays
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    if program == "xdg-open" && !has_display {
        return;
    }
    let mut command = Command::new(program);
    command.args(first).arg(url);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().ok();
}
