use anyhow::{Result, ensure};
use clap::Args;
use di_client::{Cluster, JobQuery, jobs};

/// Which jobs a command is for.
#[derive(Debug, Args)]
pub struct Selection {
    /// Names of jobs
    #[arg(value_name = "NAME", value_parser = job_name)]
    names: Vec<String>,
    /// Those whose labels match, as group=a,tier!=b
    #[arg(short = 'l', long, conflicts_with_all = ["names", "all"])]
    selector: Option<String>,
    /// All jobs of the namespace
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

/// `dijob/cartpole` is as good as `cartpole`, so that what -o name prints can be given back.
pub fn job_name(text: &str) -> Result<String, String> {
    let name = match text.split_once('/') {
        None => text,
        Some((kind, name)) => {
            let kind = kind.split('.').next().unwrap_or_default();
            if !["dijob", "dijobs"].contains(&kind) {
                return Err(format!("expected a dijob, not a {kind}"));
            }
            name
        }
    };
    if name.is_empty() {
        return Err("a name must not be empty".to_owned());
    }
    Ok(name.to_owned())
}

impl Selection {
    /// Whether any way to choose was used.
    pub fn is_given(&self) -> bool {
        self.is_by_name() || self.all || self.selector.is_some()
    }

    /// Whether the jobs were named one by one.
    pub fn is_by_name(&self) -> bool {
        !self.names.is_empty()
    }

    /// Their names, each once.
    pub async fn names(&self, cluster: &Cluster) -> Result<Vec<String>> {
        if self.is_by_name() {
            let mut names = Vec::new();
            for name in &self.names {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
            return Ok(names);
        }
        ensure!(self.is_given(), "must specify names of jobs, -l or --all");
        let query = JobQuery {
            selector: self.selector.clone(),
            ..JobQuery::default()
        };
        let list = jobs(cluster, &query).await?;
        Ok(list.jobs.iter().map(|job| job.name().to_owned()).collect())
    }
}

/// What is said where no job matches.
pub fn nothing(cluster: &Cluster) -> String {
    format!(
        "No resources found in {} namespace.",
        cluster.namespace().name
    )
}
