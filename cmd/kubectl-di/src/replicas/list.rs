use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{job, replicas};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    globals::Globals,
    output::{self, Format},
    rows::{replica_cells, replica_headers},
    table::Table,
};

/// Show every replica that a job plans or has.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Replicas and how they are
  kubectl di replicas list cartpole

  # Where they run, and what they replace
  kubectl di replicas list cartpole -o wide

  # Ready or not, for scripts
  kubectl di replicas list cartpole -o json")]
pub struct List {
    /// Name of the job
    job: String,
    /// Another form than the table
    #[arg(short, long)]
    output: Option<Format>,
    /// Leave out the names of the columns
    #[arg(long)]
    no_headers: bool,
}

impl List {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let job = job(&cluster, &self.job).await?;
        let replicas = replicas(&cluster, &job).await?;
        let as_object = || {
            json!({
                "job": job.name(),
                "namespace": job.namespace(),
                "replicas": replicas,
            })
        };
        match self.output {
            Some(Format::Json) => output::json(out, &as_object())?,
            Some(Format::Yaml) => output::yaml(out, &as_object())?,
            Some(Format::Name) => {
                for replica in replicas.iter().filter(|replica| replica.pod.is_some()) {
                    writeln!(out, "pod/{}", replica.name)?;
                }
            }
            None | Some(Format::Wide) if replicas.is_empty() => {
                eprintln!("No replicas of job {:?} are planned yet.", job.name());
            }
            None | Some(Format::Wide) => {
                let wide = self.output.is_some();
                let now = Timestamp::now();
                let rows: Vec<_> = replicas
                    .iter()
                    .map(|replica| replica_cells(replica, now, wide))
                    .collect();
                let mut table = Table::new(&replica_headers(wide), !self.no_headers);
                out.write_all(table.render(&rows).as_bytes())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
