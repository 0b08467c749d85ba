//! The in-cluster program: manager, server, crds.

mod crds;

use clap::{Parser, Subcommand};

/// DI Orchestrator: runs reinforcement-learning jobs on Kubernetes.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Crds(crds::Crds),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Crds(crds) => crds.run(),
    }
}
