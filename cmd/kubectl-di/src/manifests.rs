use anyhow::{Result, ensure};
use clap::Args;
use di_client::{Check, Cluster, Document, Target, convert, manifest, prepare};

use crate::selection::Chosen;

/// What is said where jobs are chosen in two ways.
pub const EITHER: &str = "-f cannot be combined with names, -l, --field-selector, --all or -A";

/// The flags that name manifests, where there may be others instead.
#[derive(Debug, Args)]
pub struct Manifests {
    /// File, directory or address of manifests, YAML or JSON; - reads standard input; may be repeated, or several with commas between them
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    pub filename: Vec<String>,
    /// Read the directories in directories, too
    #[arg(short = 'R', long, requires = "filename")]
    pub recursive: bool,
}

impl Manifests {
    pub fn are_named(&self) -> bool {
        !self.filename.is_empty()
    }

    /// Their documents; it is noted which ones were of the predecessor.
    pub fn read(&self) -> Result<Vec<Document>> {
        let mut documents = Vec::new();
        for name in &self.filename {
            documents.extend(manifest::read(name, self.recursive)?);
        }
        ensure!(
            !documents.is_empty(),
            "no objects in {}",
            self.filename.join(", ")
        );
        for document in &mut documents {
            if let Some(note) = convert(document) {
                eprintln!("Note: {note}");
            }
        }
        Ok(documents)
    }

    /// The jobs that they name.
    pub async fn jobs(&self, cluster: &Cluster) -> Result<Vec<Chosen>> {
        let namespace = cluster.namespace();
        let ready = prepare(Some(cluster), namespace, self.read()?, Check::Identity).await?;
        let mut chosen = Vec::new();
        for one in ready {
            let target = Target::from(one);
            ensure!(
                target.api.kind == "DIJob",
                "{} {:?} is none of the DIJobs that this command is for",
                target.api.kind,
                target.name
            );
            let namespace = target.namespace.as_deref().unwrap_or(&namespace.name);
            chosen.push(Chosen::new(cluster.within(namespace), &target.name));
        }
        Ok(chosen)
    }
}
