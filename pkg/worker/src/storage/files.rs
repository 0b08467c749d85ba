//! The interface of a folder and a bucket.

use std::{
    fmt::Debug,
    io,
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// Maximum size of a file.
pub(super) const MAX_FILE: u64 = 256 << 20;

/// The file operations of a storage. The implementations check that paths are below the root.
pub(super) trait Files: Debug + Send + Sync {
    fn create_folder(&self, folder: &Path) -> Result<()>;
    fn write(&self, path: &Path, bytes: &[u8], durably: bool) -> Result<()>;
    fn list_entries(&self, folder: &Path) -> Result<Vec<PathBuf>>;
    fn read(&self, path: &Path) -> Result<Vec<u8>>;
    fn remove(&self, path: &Path) -> Result<()>;
    fn remove_folder(&self, folder: &Path) -> Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
}

/// The error of a file operation.
pub(super) fn file_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File {
        action,
        path: path.to_owned(),
        source,
    }
}

/// The error of a path outside the storage.
pub(super) fn outside_storage(path: &Path, root: &Path) -> Error {
    Error::OutsideStorage {
        path: path.to_owned(),
        storage: root.to_owned(),
    }
}
