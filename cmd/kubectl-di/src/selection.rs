use anyhow::{Result, ensure};
use clap::Args;
use di_client::{Cluster, Error, JobQuery, jobs};

use crate::names::job_name;

/// Which jobs a command is for.
#[derive(Debug, Args)]
pub struct Selection {
    /// Names of jobs
    #[arg(value_name = "NAME", value_parser = job_name)]
    names: Vec<String>,
    /// Those whose labels match, as group=a,tier!=b
    #[arg(short = 'l', long, conflicts_with_all = ["names", "all"])]
    selector: Option<String>,
    /// Those whose fields match, as metadata.name!=a
    #[arg(long, conflicts_with = "names")]
    field_selector: Option<String>,
    /// All jobs of the namespace
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Of all namespaces, with -l, --field-selector or --all
    #[arg(short = 'A', long, conflicts_with = "names")]
    all_namespaces: bool,
}

impl Selection {
    /// Whether any way to choose was used.
    pub fn is_given(&self) -> bool {
        let selectors = [&self.selector, &self.field_selector];
        let by_query = self.all || selectors.iter().any(|one| given(one.as_deref()).is_some());
        self.is_by_name() || by_query
    }

    /// Whether the jobs were named one by one.
    pub fn is_by_name(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether they may be of several namespaces.
    pub fn is_of_all_namespaces(&self) -> bool {
        self.all_namespaces
    }

    /// Whether an error is only that a job has gone since it was found by a query.
    pub fn has_gone(&self, error: &Error) -> bool {
        error.is_not_found() && self.is_given() && !self.is_by_name()
    }

    /// Each of them once.
    pub async fn jobs(&self, cluster: &Cluster) -> Result<Vec<Chosen>> {
        if self.is_by_name() {
            let mut chosen: Vec<Chosen> = Vec::new();
            for name in &self.names {
                if !chosen.iter().any(|one| one.name == *name) {
                    chosen.push(Chosen::new(cluster.clone(), name));
                }
            }
            return Ok(chosen);
        }
        ensure!(
            self.is_given(),
            "must specify names of jobs, -l, --field-selector or --all{}",
            if self.all_namespaces {
                ", also with -A"
            } else {
                ""
            }
        );
        let query = JobQuery {
            selector: given(self.selector.as_deref()),
            field_selector: given(self.field_selector.as_deref()),
            all_namespaces: self.all_namespaces,
            ..JobQuery::default()
        };
        let list = jobs(cluster, &query).await?;
        let chosen = list.jobs.iter();
        let chosen = chosen.map(|job| Chosen::new(cluster.within(job.namespace()), job.name()));
        Ok(chosen.collect())
    }

    /// Tells that no job matches.
    pub fn tell_nothing(&self, cluster: &Cluster) {
        tell_nothing(cluster, self.all_namespaces);
    }
}

/// What a selector says. An empty one, as of a variable that is not set, counts as not given, as kubectl has it: it would match every job.
pub fn given(selector: Option<&str>) -> Option<String> {
    let selector = selector.map(str::trim).filter(|text| !text.is_empty());
    selector.map(str::to_owned)
}

/// A job, and the cluster as seen from its namespace.
pub struct Chosen {
    pub cluster: Cluster,
    pub name: String,
}

impl Chosen {
    pub fn new(cluster: Cluster, name: &str) -> Self {
        Self {
            cluster,
            name: name.to_owned(),
        }
    }
}

/// Tells that there is no job.
pub fn tell_nothing(cluster: &Cluster, all_namespaces: bool) {
    if all_namespaces {
        eprintln!("No resources found");
    } else {
        let namespace = &cluster.namespace().name;
        eprintln!("No resources found in {namespace} namespace.");
    }
}
