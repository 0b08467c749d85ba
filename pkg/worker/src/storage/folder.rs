//! A storage in a folder that all pods mount.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::{Component, Path, PathBuf},
};

use crate::{
    Error, Result,
    storage::files::{Files, MAX_FILE, file_error, outside_storage},
};

/// A shared folder.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    /// Opens the folder, created if needed, and checks that it is writable.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let refused = |source| Error::StorageNotWritable {
            folder: folder.to_owned(),
            source,
        };
        fs::create_dir_all(folder).map_err(refused)?;
        let root = folder.canonicalize().map_err(refused)?;
        let probe = root.join(format!(
            ".writable-{}-{:016x}",
            std::process::id(),
            rand::random::<u64>()
        ));
        fs::write(&probe, b"di-worker")
            .and_then(|()| fs::remove_file(&probe))
            .map_err(refused)?;
        Ok(Self { root })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Rejects paths that lead outside the root, also by `..` or by a link.
    fn check_inside(&self, path: &Path) -> Result<()> {
        let plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        // For a new path, check the nearest existing folder.
        let existing = path
            .ancestors()
            .find_map(|ancestor| ancestor.canonicalize().ok());
        let inside = existing.is_some_and(|real| real.starts_with(&self.root)) && path != self.root;
        if plain && path.is_absolute() && inside {
            return Ok(());
        }
        Err(outside_storage(path, &self.root))
    }
}

impl Files for Folder {
    fn create_folder(&self, folder: &Path) -> Result<()> {
        self.check_inside(folder)?;
        fs::create_dir_all(folder).map_err(|source| file_error("create folder", folder, source))
    }

    /// Writes a temporary file and renames it.
    fn write(&self, path: &Path, bytes: &[u8], durably: bool) -> Result<()> {
        self.check_inside(path)?;
        // Each writer needs its own temporary file.
        let temporary = path.with_extension(format!("{:016x}.tmp", rand::random::<u64>()));
        File::create(&temporary)
            .and_then(|mut file| {
                file.write_all(bytes)?;
                if durably { file.sync_all() } else { Ok(()) }
            })
            .and_then(|()| fs::rename(&temporary, path))
            .map_err(|source| {
                let _ = fs::remove_file(&temporary);
                file_error("write", path, source)
            })?;
        if !durably {
            return Ok(());
        }
        // The file name is durable when its folder is synced.
        let folder = path.parent().unwrap_or(&self.root);
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            Err(source) if !has_no_sync(&source) => Err(file_error("sync folder", folder, source)),
            _ => Ok(()),
        }
    }

    fn list_entries(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        self.check_inside(folder)?;
        let entries = fs::read_dir(folder)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        entries.map_err(|source| file_error("list", folder, source))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.check_inside(path)?;
        let failed = |source| file_error("read", path, source);
        let metadata = fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() || metadata.len() > MAX_FILE {
            return Err(failed(io::Error::new(
                ErrorKind::InvalidInput,
                "not a file, or too large",
            )));
        }
        fs::read(path).map_err(failed)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.check_inside(path)?;
        ignore_missing(path, fs::remove_file(path))
    }

    fn remove_folder(&self, folder: &Path) -> Result<()> {
        self.check_inside(folder)?;
        ignore_missing(folder, fs::remove_dir_all(folder))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.check_inside(from)?;
        self.check_inside(to)?;
        fs::rename(from, to).map_err(|source| file_error("rename", from, source))
    }
}

fn ignore_missing(path: &Path, removed: io::Result<()>) -> Result<()> {
    match removed {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(file_error("remove", path, source))
        }
        _ => Ok(()),
    }
}

/// Some network file systems cannot sync a folder, and need not.
fn has_no_sync(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidInput | ErrorKind::Unsupported
    )
}
