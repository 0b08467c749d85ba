use anyhow::{Result, ensure};
use clap::Args;
use di_client::{Document, convert, manifest};

/// The flags that name manifests, where there may be others instead.
#[derive(Debug, Args)]
pub struct Manifests {
    /// File, directory or address of manifests, YAML or JSON; - reads standard input; may be repeated
    #[arg(short, long, value_name = "FILE")]
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
}
