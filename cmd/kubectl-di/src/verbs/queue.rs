use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_api::names;
use di_client::{QueueRow, list_queue};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    flags::{globals::Globals, names::parse_job_name},
    output::{
        format::{self, ObjectFormat},
        rows::{queue_cells, queue_headers},
        table::Table,
        to_list,
    },
};

/// List jobs that wait in a queue of Kueue or for their gang, and jobs with replicas that wait.
///
/// The position is that in the LocalQueue and counts from 0, as in Kueue. It is unknown while the
/// pods of a preempted job end, if the cluster does not serve the API group
/// visibility.kueue.x-k8s.io, or without the permission to get localqueues/pendingworkloads in it. A
/// job that waits for its gang has the queue of the gang scheduler and no position.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List what waits in the current namespace, and why
  kubectl di queue

  # List what waits in all namespaces
  kubectl di queue -A

  # Show the position of a job, or the ClusterQueue that admitted it
  kubectl di queue cartpole")]
pub struct Queue {
    /// Name of a job, which is shown even if it does not wait; without it, all that wait
    #[arg(value_name = "JOB", value_parser = parse_job_name)]
    job: Option<String>,
    /// If present, list the requested jobs across all namespaces
    #[arg(short = 'A', long, conflicts_with = "job")]
    all_namespaces: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<ObjectFormat>,
}

impl Queue {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let rows = list_queue(&cluster, self.job.as_deref(), self.all_namespaces).await?;
        match self.output {
            Some(ObjectFormat::Name) => {
                for row in &rows {
                    writeln!(out, "dijob.{}/{}", names::GROUP, row.name)?;
                }
            }
            Some(format) => self.print_data(format, &rows, out)?,
            None if rows.is_empty() => eprintln!("No DIJobs wait in a queue or for their gang."),
            None => out.write_all(self.render_table(rows).as_bytes())?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints the rows. As in `get`, a single named job is printed as an object instead of a list.
    fn print_data(
        &self,
        format: ObjectFormat,
        rows: &[QueueRow],
        out: &mut impl Write,
    ) -> Result<()> {
        let items: Vec<Value> = rows.iter().map(|row| json!(row)).collect();
        match (&self.job, items.as_slice()) {
            (Some(_), [job]) => format::print_object(format, out, job),
            _ => format::print_objects(format, out, &to_list(&items), &items),
        }
    }

    fn render_table(&self, rows: Vec<QueueRow>) -> String {
        let (namespaces, admission) = (self.all_namespaces, self.job.is_some());
        let now = Timestamp::now();
        let cells = |row| queue_cells(row, now, namespaces, admission);
        let rows: Vec<_> = rows.into_iter().map(cells).collect();
        Table::new(&queue_headers(namespaces, admission), true).render(&rows)
    }
}
