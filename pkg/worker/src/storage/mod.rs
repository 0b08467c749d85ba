//! The folder that all pods of a job mount, and its files.

pub mod frames;
pub(crate) mod tensor_file;

use std::{
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use tokio::task::spawn_blocking;

use crate::{Error, Result};

/// Runs `work` on a thread that may block.
pub async fn run_blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R> + Send + 'static,
) -> Result<R> {
    spawn_blocking(work).await.map_err(Error::TaskLost)?
}

/// The shared folder.
#[derive(Clone, Debug)]
pub struct Storage {
    root: PathBuf,
}

impl Storage {
    /// Opens the folder, created if needed, and checks that it is writable.
    pub fn open(folder: &Path) -> Result<Self> {
        let not_writable = |source| Error::StorageNotWritable {
            folder: folder.to_owned(),
            source,
        };
        fs::create_dir_all(folder).map_err(not_writable)?;
        let root = folder.canonicalize().map_err(not_writable)?;
        let probe = root.join(format!(".writable-{:016x}", rand::random::<u64>()));
        fs::write(&probe, b"di-worker")
            .and_then(|()| fs::remove_file(&probe))
            .map_err(not_writable)?;
        Ok(Self { root })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Creates a folder and its parents.
    pub fn create_folder(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(file_error("create folder", folder))
    }

    /// Writes a file atomically: as a temporary file that is renamed. The folder must exist.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        // Each writer needs its own temporary file.
        let temporary = path.with_extension(format!("{:016x}.tmp", rand::random::<u64>()));
        let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
        written.map_err(|source| {
            fs::remove_file(&temporary).ok();
            file_error("write", path)(source)
        })
    }

    /// Lists a folder.
    pub fn list_entries(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(folder)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        entries.map_err(file_error("list", folder))
    }

    /// Reads a file. Other pods name files in their tasks, so it must be in the folder.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        if !path.starts_with(&self.root) {
            return Err(Error::NotInStorage(path.to_owned()));
        }
        fs::read(path).map_err(file_error("read", path))
    }

    /// Removes a file; a missing one is no error.
    pub fn remove(&self, path: &Path) -> Result<()> {
        ignore_missing(fs::remove_file(path)).map_err(file_error("remove", path))
    }

    /// Removes a folder with its content; a missing one is no error.
    pub fn remove_folder(&self, folder: &Path) -> Result<()> {
        ignore_missing(fs::remove_dir_all(folder)).map_err(file_error("remove", folder))
    }

    /// Renames a file.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(file_error("rename", from))
    }
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// The error of a file operation.
fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File {
        action,
        path,
        source,
    }
}

#[cfg(test)]
mod tests;
