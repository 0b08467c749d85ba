use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::Args;
use di_client::{Cluster, ConnectOptions, Result};

use crate::args::limit;

/// Flags of every command, as kubectl has them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global flags")]
pub struct Globals {
    /// Namespace instead of the kubeconfig's
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    /// Context of the kubeconfig to use
    #[arg(long, global = true)]
    context: Option<String>,
    /// Kubeconfig file to use
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Cluster of the kubeconfig to use
    #[arg(long, global = true)]
    cluster: Option<String>,
    /// User of the kubeconfig to use
    #[arg(long, global = true)]
    user: Option<String>,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "USER")]
    impersonate: Option<String>,
    /// Group to impersonate; may be repeated
    #[arg(
        long = "as-group",
        global = true,
        value_name = "GROUP",
        requires = "impersonate"
    )]
    impersonate_groups: Vec<String>,
    /// How long to wait for one answer of the server, as 30s; 0 means without limit
    #[arg(long, global = true, value_name = "TIME", value_parser = limit)]
    request_timeout: Option<Duration>,
}

impl Globals {
    pub fn options(&self) -> ConnectOptions {
        ConnectOptions {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
            namespace: self.namespace.clone(),
            impersonate: self.impersonate.clone(),
            impersonate_groups: self.impersonate_groups.clone(),
            request_timeout: self.request_timeout.filter(|limit| *limit != Duration::MAX),
        }
    }

    /// Connects; the server's warnings go to stderr, each once.
    pub async fn connect(&self) -> Result<Cluster> {
        let told = Arc::new(Mutex::new(HashSet::new()));
        let warn = move |text: &str| {
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.insert(text.to_owned()) {
                eprintln!("Warning: {text}");
            }
        };
        Cluster::connect(&self.options(), warn).await
    }
}
