use anyhow::{Result, ensure};
use clap::{Args, ValueHint};
use di_client::{Document, convert_document, manifest};

/// The flags that name manifests.
#[derive(Debug, Args)]
pub struct Manifests {
    /// File or directory with objects in YAML or JSON. Use - for standard input. Can be repeated or
    /// given as a comma separated list
    #[arg(short, long, value_name = "FILE", value_delimiter = ',', value_hint = ValueHint::AnyPath)]
    pub filename: Vec<String>,
    /// Process the directory used in -f, --filename recursively
    #[arg(short = 'R', long, requires = "filename")]
    pub recursive: bool,
}

impl Manifests {
    pub fn are_given(&self) -> bool {
        !self.filename.is_empty()
    }

    pub fn use_stdin(&self) -> bool {
        self.filename.iter().any(|name| name == "-")
    }

    /// Reads the documents; prints warnings, and a note for each manifest of an earlier
    /// orchestrator.
    pub fn read_documents(&self) -> Result<Vec<Document>> {
        let mut documents = Vec::new();
        for name in &self.filename {
            let manifest = manifest::read_manifests(name, self.recursive)?;
            for warning in &manifest.warnings {
                eprintln!("Warning: {warning}");
            }
            documents.extend(manifest.documents);
        }
        ensure!(
            !documents.is_empty(),
            "no objects in {}",
            self.filename.join(", ")
        );
        for document in &mut documents {
            if let Some(note) = convert_document(document) {
                eprintln!("Note: {note}");
            }
        }
        Ok(documents)
    }
}
