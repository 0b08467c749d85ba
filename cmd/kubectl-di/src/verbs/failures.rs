use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::get_job;
use jiff::Timestamp;
use serde_json::json;

use crate::{
    flags::{globals::Globals, names::parse_job_name},
    output::{
        failures::{failure_line, tail_lines},
        format::DataFormat,
        print_json, print_yaml,
    },
};

/// Print the last failures of a job's pods, newest first, with the end of their logs.
///
/// The failures are stored in the job, so they remain after the pods are deleted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Print why pods of a job failed
  kubectl di failures cartpole

  # Print the exit codes as JSON
  kubectl di failures cartpole -o json")]
pub struct Failures {
    /// Name of the job
    #[arg(value_name = "NAME", value_parser = parse_job_name)]
    job: String,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<DataFormat>,
}

impl Failures {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let job = get_job(&cluster, &self.job).await?;
        let failures = &job.status.failures;
        match self.output {
            Some(DataFormat::Json) => print_json(out, &json!(failures))?,
            Some(DataFormat::Yaml) => print_yaml(out, &json!(failures))?,
            None if failures.is_empty() => {
                eprintln!("No failures of {} are recorded.", job.resource_name());
            }
            None => {
                for failure in failures {
                    writeln!(out, "{}", failure_line(failure, Timestamp::now()))?;
                    for line in tail_lines(failure, usize::MAX) {
                        writeln!(out, "    {line}")?;
                    }
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
