use anyhow::{Result, ensure};
use clap::Args;
use di_client::{Cluster, Error, JobQuery, list_jobs};

use crate::flags::names::parse_job_name;

/// The flags that select jobs.
#[derive(Debug, Args)]
pub struct Selection {
    /// Names of jobs
    #[arg(value_name = "NAME", value_parser = parse_job_name)]
    names: Vec<String>,
    /// Selector (label query) to filter on, such as group=a,tier!=b. Matching objects must satisfy
    /// all of the specified label constraints
    #[arg(short = 'l', long, conflicts_with_all = ["names", "all"])]
    selector: Option<String>,
    /// Select all jobs in the namespace
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// If present, select jobs across all namespaces; use with -l or --all
    #[arg(short = 'A', long, conflicts_with = "names")]
    all_namespaces: bool,
}

impl Selection {
    /// Whether names, a selector or --all is given.
    pub fn is_given(&self) -> bool {
        self.is_by_name() || self.all || non_empty(self.selector.as_deref()).is_some()
    }

    /// Whether jobs are selected by name.
    pub fn is_by_name(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether the error only says that a job was deleted after a query found it.
    pub fn is_deleted_since_query(&self, error: &Error) -> bool {
        error.is_not_found() && self.is_given() && !self.is_by_name()
    }

    /// The selected jobs without duplicates.
    pub async fn selected_jobs(&self, cluster: &Cluster) -> Result<Vec<SelectedJob>> {
        if self.is_by_name() {
            let mut selected: Vec<SelectedJob> = Vec::new();
            for name in &self.names {
                if !selected.iter().any(|job| job.name == *name) {
                    selected.push(SelectedJob::new(cluster.clone(), name));
                }
            }
            return Ok(selected);
        }
        ensure!(
            self.is_given(),
            "must specify job names, -l or --all{}",
            if self.all_namespaces {
                ", also with -A"
            } else {
                ""
            }
        );
        let query = JobQuery {
            selector: non_empty(self.selector.as_deref()),
            all_namespaces: self.all_namespaces,
            ..JobQuery::default()
        };
        let list = list_jobs(cluster, &query).await?;
        let selected = list.jobs.iter();
        let selected = selected
            .map(|job| SelectedJob::new(cluster.with_namespace(job.namespace()), job.name()));
        Ok(selected.collect())
    }

    /// Prints that no job matches.
    pub fn print_no_jobs(&self, cluster: &Cluster) {
        print_no_jobs(cluster, self.all_namespaces);
    }
}

/// The trimmed selector. As in kubectl, an empty selector counts as not given: it would match
/// every job, for example when a shell variable is not set.
pub fn non_empty(selector: Option<&str>) -> Option<String> {
    let selector = selector.map(str::trim).filter(|text| !text.is_empty());
    selector.map(str::to_owned)
}

/// The name of a job, and the cluster connection for its namespace.
pub struct SelectedJob {
    pub cluster: Cluster,
    pub name: String,
}

impl SelectedJob {
    pub fn new(cluster: Cluster, name: &str) -> Self {
        Self {
            cluster,
            name: name.to_owned(),
        }
    }
}

/// Prints that there is no job.
pub fn print_no_jobs(cluster: &Cluster, all_namespaces: bool) {
    if all_namespaces {
        eprintln!("No resources found");
    } else {
        let namespace = &cluster.namespace().name;
        eprintln!("No resources found in {namespace} namespace.");
    }
}
