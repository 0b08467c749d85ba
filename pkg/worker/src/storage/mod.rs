//! The storage that all pods of a job share: a folder or a prefix of a bucket. See
//! docs/decisions/0023.

pub mod blocking;
mod files;
mod folder;
pub mod frames;
mod objects;
mod s3;
pub(crate) mod tensor_file;
mod variables;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::Result;
use files::Files;
use folder::Folder;

/// The shared storage. Its methods block, so an event loop calls them through
/// [`BlockingCell`](crate::storage::blocking::BlockingCell).
#[derive(Clone, Debug)]
pub struct Storage {
    root: PathBuf,
    files: Arc<dyn Files>,
}

impl Storage {
    /// Opens a folder, created if needed, or the bucket of `s3://BUCKET/PREFIX`, and checks that it
    /// is writable. The access to a bucket is configured by the usual variables `AWS_ENDPOINT_URL`,
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and so on.
    pub fn open(location: &Path) -> Result<Self> {
        let variables = std::env::vars_os();
        // Other variables are text, so skip those that are not.
        Self::open_with(
            location,
            variables.filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.into_string().ok()?))
            }),
        )
    }

    /// The same with other variables.
    pub fn open_with(
        location: &Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        // s3:/ and s3: without slashes are also meant as a bucket.
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

    /// The folder, or the URL of the prefix.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Creates a folder below the root and its parents.
    pub fn create_folder(&self, folder: &Path) -> Result<()> {
        self.files.create_folder(folder)
    }

    /// Writes a file atomically. The folder must exist. Returns the size.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> Result<u64> {
        self.files.write(path, bytes, false)?;
        Ok(bytes.len() as u64)
    }

    /// Writes a file atomically and durably.
    pub fn write_durably(&self, path: &Path, bytes: &[u8]) -> Result<u64> {
        self.files.write(path, bytes, true)?;
        Ok(bytes.len() as u64)
    }

    /// Lists a folder.
    pub fn list_entries(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        self.files.list_entries(folder)
    }

    /// Reads a file.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.files.read(path)
    }

    /// Removes a file; a missing one is no error.
    pub fn remove(&self, path: &Path) -> Result<()> {
        self.files.remove(path)
    }

    /// Removes a folder with its content; a missing one is no error.
    pub fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.files.remove_folder(folder)
    }

    /// Renames a file.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.files.rename(from, to)
    }
}

#[cfg(test)]
mod tests;
