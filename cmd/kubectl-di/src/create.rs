use std::{io::Write, process::ExitCode};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use di_client::{Check, Ready, manifest, prepare};
use serde_json::Value;

use crate::{
    globals::Globals,
    output::{self, ObjectFormat, presentable, report, title},
};

/// Create DIJobs and AggregatorConfigs from manifests; other objects beside them, too.
///
/// All documents are checked before any is sent: every fault is told, and nothing is created while there is one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Create a job
  kubectl di create -f cartpole.yaml

  # Check a manifest without a cluster
  kubectl di create -f cartpole.yaml --dry-run=client

  # Create what another program writes, and show what the server made of it
  cat cartpole.yaml | kubectl di create -f - -o yaml")]
pub struct Create {
    /// File or directory of manifests, YAML or JSON; - reads standard input; may be repeated
    #[arg(short, long, required = true, value_name = "FILE")]
    filename: Vec<String>,
    /// client only checks the manifests; server does all but keep the objects
    #[arg(long, value_enum, default_value_t = DryRun::None)]
    dry_run: DryRun,
    /// Show the objects instead of telling that they were created
    #[arg(short, long)]
    output: Option<ObjectFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DryRun {
    None,
    Client,
    Server,
}

impl Create {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let documents = read(&self.filename)?;
        let cluster = match globals.connect().await {
            // Our own kinds can be checked anywhere.
            Err(_) if self.dry_run == DryRun::Client => None,
            connected => Some(connected?),
        };
        let namespace = match &cluster {
            Some(cluster) => cluster.namespace().clone(),
            None => globals.options().offline_namespace(),
        };
        let ready = prepare(cluster.as_ref(), &namespace, documents, Check::Whole).await?;
        let mut code = ExitCode::SUCCESS;
        let mut printed = 0;
        for one in &ready {
            let created = match &cluster {
                Some(cluster) if self.dry_run != DryRun::Client => {
                    di_client::create(cluster, one, self.dry_run == DryRun::Server).await
                }
                _ => Ok(placed(one)),
            };
            match created {
                Ok(object) => {
                    self.print(out, object, printed)?;
                    printed += 1;
                }
                Err(error) => {
                    report(&error.into());
                    code = ExitCode::FAILURE;
                }
            }
        }
        Ok(code)
    }

    fn print(&self, out: &mut impl Write, object: Value, printed: usize) -> Result<()> {
        let suffix = match self.dry_run {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        };
        match self.output {
            None => writeln!(out, "{} created{suffix}", title(&object))?,
            Some(ObjectFormat::Name) => writeln!(out, "{}", title(&object))?,
            Some(ObjectFormat::Json) => output::json(out, &presentable(object))?,
            Some(ObjectFormat::Yaml) => {
                if printed > 0 {
                    writeln!(out, "---")?;
                }
                output::yaml(out, &presentable(object))?;
            }
        }
        Ok(())
    }
}

/// The documents of all the manifests that `-f` names.
pub fn read(names: &[String]) -> Result<Vec<di_client::Document>> {
    let mut documents = Vec::new();
    for name in names {
        documents.extend(manifest::read(name)?);
    }
    ensure!(!documents.is_empty(), "no objects in {}", names.join(", "));
    Ok(documents)
}

/// The object as it would be sent.
fn placed(ready: &Ready) -> Value {
    let mut object = ready.object.clone();
    if let Some(namespace) = &ready.namespace {
        object["metadata"]["namespace"] = namespace.as_str().into();
    }
    object
}
