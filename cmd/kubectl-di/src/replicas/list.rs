use std::{collections::HashMap, io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Job, JobQuery, Known, Live, Replica, job, replicas};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::pin;

use crate::{
    format::{self, Format, is_table},
    globals::Globals,
    names::job_name,
    output::{self, list_whole, warn_unseen},
    role::RoleName,
    rows::{replica_cells, replica_headers},
    sort::sort_by,
    table::Table,
};

/// Show every replica that a job plans or has.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Replicas and how they are
  kubectl di replicas list cartpole

  # Where they run, with how many GPUs, how they ended last, and what they replace
  kubectl di replicas list cartpole -o wide

  # How they change
  kubectl di replicas list cartpole --role collector -w

  # Ready or not, for scripts
  kubectl di replicas list cartpole -o json

  # Where each can be reached
  kubectl di replicas list cartpole -o custom-columns=NAME:.name,URL:.url")]
pub struct List {
    /// Name of the job
    #[arg(value_parser = job_name)]
    job: String,
    /// Only replicas of this role
    #[arg(long, value_enum)]
    role: Option<RoleName>,
    /// Go on with every change, until the job is gone
    #[arg(short, long)]
    watch: bool,
    /// Another form than the table: wide, json, yaml, name, jsonpath=…, jsonpath-as-json=…, jsonpath-file=…, custom-columns=… or custom-columns-file=…
    #[arg(short, long)]
    output: Option<Format>,
    /// Sort by a field, as .pod.node
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,
    /// Leave out the names of the columns
    #[arg(long)]
    no_headers: bool,
}

impl List {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let job = job(&cluster, &self.job).await?;
        if self.watch {
            let query = JobQuery {
                name: Some(self.job.clone()),
                ..JobQuery::default()
            };
            return self.follow(Live::new(&cluster, &query), &job, out).await;
        }
        let Known { replicas, unseen } = replicas(&cluster, &job).await?;
        if let Some(why) = unseen {
            warn_unseen(&why);
        }
        let mut found = self.wanted(replicas);
        if let Some(field) = &self.sort_by {
            let mut with_objects: Vec<_> = found.into_iter().map(|r| (json!(r), r)).collect();
            sort_by(&mut with_objects, field, |(object, _)| object)?;
            found = with_objects
                .into_iter()
                .map(|(_, replica)| replica)
                .collect();
        }
        match &self.output {
            Some(Format::Name) => {
                for replica in found
                    .iter()
                    .filter(|replica| replica.pod.is_some() || replica.unseen)
                {
                    writeln!(out, "pod/{}", replica.name)?;
                }
            }
            Some(format) if !is_table(Some(format)) => {
                let items: Vec<Value> = found.iter().map(|replica| json!(replica)).collect();
                format::print(format, out, &list_whole(&items), &items, !self.no_headers)?;
            }
            _ if found.is_empty() => {
                eprintln!("No replicas of job {:?} are planned yet.", job.name());
            }
            _ => self.show(&mut self.table(), &found, out)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn follow(self, mut live: Live, job: &Job, out: &mut impl Write) -> Result<ExitCode> {
        let mut table = self.table();
        let mut shown: HashMap<String, Vec<String>> = HashMap::new();
        let closed = output::closed();
        pin!(closed);
        loop {
            tokio::select! {
                changed = live.changed() => changed?,
                () = &mut closed => return Ok(ExitCode::SUCCESS),
            }
            let Some(job) = live.job(job.namespace(), job.name()) else {
                return Ok(ExitCode::SUCCESS);
            };
            let now = self.wanted(live.replicas(job));
            let mut changed = Vec::new();
            for replica in now {
                let look = self.look(&replica)?;
                if shown.get(&replica.name) != Some(&look) {
                    shown.insert(replica.name.clone(), look);
                    changed.push(replica);
                }
            }
            self.show(&mut table, &changed, out)?;
        }
    }

    /// What is to be seen of a replica, but for its age: time alone passes without a change.
    fn look(&self, replica: &Replica) -> Result<Vec<String>> {
        Ok(match &self.output {
            Some(Format::Columns(columns)) => columns.cells(&json!(replica))?,
            Some(format) if !is_table(Some(format)) => vec![json!(replica).to_string()],
            _ => {
                let headers = replica_headers(self.is_wide());
                let cells = replica_cells(replica, Timestamp::now(), self.is_wide());
                let ageless = headers
                    .iter()
                    .zip(cells)
                    .filter(|(header, _)| **header != "AGE");
                ageless.map(|(_, cell)| cell).collect()
            }
        })
    }

    fn wanted(&self, mut replicas: Vec<Replica>) -> Vec<Replica> {
        if let Some(role) = self.role {
            replicas.retain(|replica| replica.role == role.into());
        }
        replicas
    }

    fn table(&self) -> Table {
        match &self.output {
            Some(Format::Columns(columns)) => columns.table(!self.no_headers),
            _ => Table::new(&replica_headers(self.is_wide()), !self.no_headers),
        }
    }

    fn show(&self, table: &mut Table, replicas: &[Replica], out: &mut impl Write) -> Result<()> {
        let now = Timestamp::now();
        let mut rows = Vec::new();
        for replica in replicas {
            match &self.output {
                Some(Format::Columns(columns)) => rows.push(columns.cells(&json!(replica))?),
                Some(Format::Name) => writeln!(out, "pod/{}", replica.name)?,
                Some(format) if !is_table(Some(format)) => {
                    format::print_next(format, out, &json!(replica))?;
                }
                _ => rows.push(replica_cells(replica, now, self.is_wide())),
            }
        }
        if !rows.is_empty() {
            out.write_all(table.render(&rows).as_bytes())?;
        }
        Ok(out.flush()?)
    }

    fn is_wide(&self) -> bool {
        matches!(self.output, Some(Format::Wide))
    }
}
