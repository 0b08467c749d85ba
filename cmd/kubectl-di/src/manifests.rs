use anyhow::{Result, ensure};
use clap::Args;
use di_client::{
    CheckLevel, Cluster, Document, ObjectRef, convert_nervex, manifest, prepare_objects,
};

use crate::selection::SelectedJob;

/// The error if jobs are selected both by manifests and by names or selectors.
pub const SOURCE_CONFLICT: &str =
    "-f cannot be combined with names, -l, --field-selector, --all or -A";

/// The flags that name manifests.
#[derive(Debug, Args)]
pub struct Manifests {
    /// Filename, directory, or URL to files identifying the resource, in YAML or JSON. Use - for
    /// standard input. Can be repeated or given as a comma separated list
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    pub filename: Vec<String>,
    /// Process the directory used in -f, --filename recursively
    #[arg(short = 'R', long, requires = "filename")]
    pub recursive: bool,
}

impl Manifests {
    pub fn are_given(&self) -> bool {
        !self.filename.is_empty()
    }

    /// Reads the documents; prints a note for each converted NerveXJob.
    pub fn read_documents(&self) -> Result<Vec<Document>> {
        let mut documents = Vec::new();
        for name in &self.filename {
            documents.extend(manifest::read_manifests(name, self.recursive)?);
        }
        ensure!(
            !documents.is_empty(),
            "no objects in {}",
            self.filename.join(", ")
        );
        for document in &mut documents {
            if let Some(note) = convert_nervex(document) {
                eprintln!("Note: {note}");
            }
        }
        Ok(documents)
    }

    /// Reads the manifests and returns the jobs that they name.
    pub async fn read_jobs(&self, cluster: &Cluster) -> Result<Vec<SelectedJob>> {
        let namespace = cluster.namespace();
        let ready = prepare_objects(
            Some(cluster),
            namespace,
            self.read_documents()?,
            CheckLevel::Identity,
        )
        .await?;
        let mut selected = Vec::new();
        for one in ready {
            let target = ObjectRef::from(one);
            ensure!(
                target.api.kind == "DIJob",
                "{} {:?} is not a DIJob; this command supports only DIJobs",
                target.api.kind,
                target.name
            );
            let namespace = target.namespace.as_deref().unwrap_or(&namespace.name);
            selected.push(SelectedJob::new(
                cluster.with_namespace(namespace),
                &target.name,
            ));
        }
        Ok(selected)
    }
}
