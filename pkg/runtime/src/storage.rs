//! The storage middleware: what all pods of a job share, a folder or a part of a bucket.

mod folder;
mod objects;
mod s3;
mod variables;

use std::{
    fmt::Debug,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Error, Result};
use folder::Folder;

/// The largest file that is read; ours are far smaller.
const MAX_FILE: u64 = 256 << 20;

/// Where files are, and what can be done with them. Paths are below a root, and checked by whoever has it.
trait Files: Debug + Send + Sync {
    fn create_folder(&self, folder: &Path) -> Result<()>;
    fn write(&self, path: &Path, bytes: &[u8], durably: bool) -> Result<()>;
    fn list_entries(&self, folder: &Path) -> Result<Vec<PathBuf>>;
    fn read(&self, path: &Path) -> Result<Vec<u8>>;
    fn remove(&self, path: &Path) -> Result<()>;
    fn remove_folder(&self, folder: &Path) -> Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
}

/// What is shared, and all that lies below it. It waits for disks and networks, so it is not for event loops: see
/// [`BlockingCell`](crate::blocking::BlockingCell).
#[derive(Clone, Debug)]
pub struct Storage {
    root: PathBuf,
    files: Arc<dyn Files>,
}

impl Storage {
    /// Opens a folder, making it if needed, or what `s3://BUCKET/PREFIX` names, and proves that it can be written to. How to get at a bucket is
    /// told by the usual variables, `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and so on.
    pub fn open(location: &Path) -> Result<Self> {
        let variables = std::env::vars_os();
        // One that is no text is none of those.
        Self::open_with(
            location,
            variables.filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.into_string().ok()?))
            }),
        )
    }

    /// The same with these variables.
    pub fn open_with(
        location: &Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        // With one slash, or none, a bucket is meant, too.
        let is_url = |text: &str| text.contains("://") || text.starts_with("s3:");
        let url = location.to_str().filter(|text| is_url(text));
        let Some(url) = url else {
            let folder = Folder::open(location)?;
            return Ok(Self {
                root: folder.root().to_owned(),
                files: Arc::new(folder),
            });
        };
        let objects = s3::open_bucket(url, variables)?;
        Ok(Self {
            root: objects.root().to_owned(),
            files: Arc::new(objects),
        })
    }

    /// The folder itself, or the URL of the part of the bucket.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a folder below the root, and its parents.
    pub fn create_folder(&self, folder: &Path) -> Result<()> {
        self.files.create_folder(folder)
    }

    /// Writes a file so that a reader sees all of it or nothing. The folder must be there. Returns the size.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> Result<u64> {
        self.files.write(path, bytes, false)?;
        Ok(bytes.len() as u64)
    }

    /// The same, and once it is written it stays, whatever becomes of the machine.
    pub fn write_durably(&self, path: &Path, bytes: &[u8]) -> Result<u64> {
        self.files.write(path, bytes, true)?;
        Ok(bytes.len() as u64)
    }

    /// What lies in a folder.
    pub fn list_entries(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        self.files.list_entries(folder)
    }

    /// Reads a file.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.files.read(path)
    }

    /// Removes a file. One that is gone already is fine.
    pub fn remove(&self, path: &Path) -> Result<()> {
        self.files.remove(path)
    }

    /// Removes a folder with everything in it. One that is gone already is fine.
    pub fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.files.remove_folder(folder)
    }

    /// Gives a file another name.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.rename(from, to)
    }
}

/// What failed with a file or a folder.
fn file_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File {
        action,
        path: path.to_owned(),
        source,
    }
}

/// What a path that leads out of the storage is refused with.
fn outside_storage(path: &Path, root: &Path) -> Error {
    Error::OutsideStorage {
        path: path.to_owned(),
        storage: root.to_owned(),
    }
}

#[cfg(test)]
mod tests;
