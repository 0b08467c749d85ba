use std::{collections::HashMap, io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Job, JobQuery, LiveView, Replica, ReplicaList, get_job, list_replicas};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::pin;

use crate::{
    flags::{globals::Globals, names::parse_job_name, role::RoleName},
    output::{
        self,
        format::{self, Format, ObjectFormat},
        rows::{replica_cells, replica_headers},
        table::Table,
        to_list, warn_planned_only,
    },
};

/// List the planned and running replicas of a job.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # List replicas and their status
  kubectl di replicas list cartpole

  # Include nodes, GPUs, last exit codes and replaced replicas
  kubectl di replicas list cartpole -o wide

  # Watch the collectors
  kubectl di replicas list cartpole --role collector -w

  # Print JSON for scripts
  kubectl di replicas list cartpole -o json")]
pub struct List {
    /// Name of the job
    #[arg(value_parser = parse_job_name)]
    job: String,
    /// Only replicas of this role
    #[arg(long, value_enum)]
    role: Option<RoleName>,
    /// After listing the replicas, watch for changes until the job is deleted
    #[arg(short, long)]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Format>,
    /// When using the default output format, don't print headers
    #[arg(long)]
    no_headers: bool,
}

impl List {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let job = get_job(&cluster, &self.job).await?;
        if self.watch {
            let query = JobQuery {
                name: Some(self.job.clone()),
                ..JobQuery::default()
            };
            return self
                .watch_replicas(LiveView::new(&cluster, &query), &job, out)
                .await;
        }
        let ReplicaList { replicas, unseen } = list_replicas(&cluster, &job).await?;
        if let Some(why) = unseen {
            warn_planned_only(&why);
        }
        let found = self.with_role(replicas);
        match self.objects() {
            Some(ObjectFormat::Name) => {
                for replica in found
                    .iter()
                    .filter(|replica| replica.pod.is_some() || replica.unseen)
                {
                    writeln!(out, "pod/{}", replica.name)?;
                }
            }
            Some(format) => {
                let items: Vec<Value> = found.iter().map(|replica| json!(replica)).collect();
                format::print_objects(format, out, &to_list(&items), &items)?;
            }
            None if found.is_empty() => {
                eprintln!("No replicas of job {:?} are planned yet.", job.name());
            }
            None => self.print_replicas(&mut self.new_table(), &found, out)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn watch_replicas(
        self,
        mut live: LiveView,
        job: &Job,
        out: &mut impl Write,
    ) -> Result<ExitCode> {
        let mut table = self.new_table();
        let mut shown: HashMap<String, Vec<String>> = HashMap::new();
        let closed = output::stdout_closed();
        pin!(closed);
        loop {
            tokio::select! {
                changed = live.wait_for_change() => changed?,
                () = &mut closed => return Ok(ExitCode::SUCCESS),
            }
            let Some(job) = live.find_job(job.namespace(), job.name()) else {
                return Ok(ExitCode::SUCCESS);
            };
            let now = self.with_role(live.replicas_of_job(job));
            let mut changed = Vec::new();
            for replica in now {
                let cells = self.visible_cells(&replica);
                if shown.get(&replica.name) != Some(&cells) {
                    shown.insert(replica.name.clone(), cells);
                    changed.push(replica);
                }
            }
            self.print_replicas(&mut table, &changed, out)?;
        }
    }

    /// The printed cells of a replica without its age, which changes all the time.
    fn visible_cells(&self, replica: &Replica) -> Vec<String> {
        if self.objects().is_some() {
            return vec![json!(replica).to_string()];
        }
        let headers = replica_headers(self.is_wide());
        let cells = replica_cells(replica, Timestamp::now(), self.is_wide());
        let ageless = headers
            .iter()
            .zip(cells)
            .filter(|(header, _)| **header != "AGE");
        ageless.map(|(_, cell)| cell).collect()
    }

    fn with_role(&self, mut replicas: Vec<Replica>) -> Vec<Replica> {
        if let Some(role) = self.role {
            replicas.retain(|replica| replica.role == role.into());
        }
        replicas
    }

    fn new_table(&self) -> Table {
        Table::new(&replica_headers(self.is_wide()), !self.no_headers)
    }

    fn print_replicas(
        &self,
        table: &mut Table,
        replicas: &[Replica],
        out: &mut impl Write,
    ) -> Result<()> {
        let now = Timestamp::now();
        let mut rows = Vec::new();
        for replica in replicas {
            match self.objects() {
                Some(ObjectFormat::Name) => writeln!(out, "pod/{}", replica.name)?,
                Some(format) => format::print_watched(format, out, &json!(replica))?,
                None => rows.push(replica_cells(replica, now, self.is_wide())),
            }
        }
        if !rows.is_empty() {
            out.write_all(table.render(&rows).as_bytes())?;
        }
        Ok(out.flush()?)
    }

    /// The format of the replicas; none for a table.
    fn objects(&self) -> Option<ObjectFormat> {
        self.output.and_then(Format::objects)
    }

    fn is_wide(&self) -> bool {
        self.output == Some(Format::Wide)
    }
}
