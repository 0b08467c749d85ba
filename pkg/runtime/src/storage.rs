//! The storage middleware: a folder that all pods of a job share.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::{Component, Path, PathBuf},
};

use crate::{Error, Result};

/// The largest file that is read; ours are far smaller.
const MAX_FILE: u64 = 256 << 20;

/// A shared folder and what lies below it.
#[derive(Clone, Debug)]
pub struct Storage {
    root: PathBuf,
}

impl Storage {
    /// Opens the folder, making it if needed, and proves that it can be written to.
    pub fn open(folder: &Path) -> Result<Self> {
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

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a folder below the root, and its parents.
    pub fn create_folder(&self, folder: &Path) -> Result<()> {
        self.confine(folder)?;
        fs::create_dir_all(folder).map_err(|source| file_error("create folder", folder, source))
    }

    /// Writes a file so that a reader sees all of it or nothing: beside its place, then renamed.
    /// The folder must be there. Returns the size.
    pub fn write(&self, path: &Path, bytes: &[u8]) -> Result<u64> {
        self.put(path, bytes, |_| Ok(()))
    }

    /// The same, and once it is written it stays, whatever becomes of the machine.
    pub fn write_durably(&self, path: &Path, bytes: &[u8]) -> Result<u64> {
        let size = self.put(path, bytes, File::sync_all)?;
        // Its name is the folder's.
        let folder = path.parent().unwrap_or(&self.root);
        match File::open(folder).and_then(|folder| folder.sync_all()) {
            Err(source) if !has_no_sync(&source) => Err(file_error("sync folder", folder, source)),
            _ => Ok(size),
        }
    }

    fn put(
        &self,
        path: &Path,
        bytes: &[u8],
        finish: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<u64> {
        self.confine(path)?;
        // Two writers of one file must not share the temporary one.
        let temporary = path.with_extension(format!("{:016x}.tmp", rand::random::<u64>()));
        File::create(&temporary)
            .and_then(|mut file| file.write_all(bytes).and_then(|()| finish(&file)))
            .and_then(|()| fs::rename(&temporary, path))
            .map_err(|source| {
                let _ = fs::remove_file(&temporary);
                file_error("write", path, source)
            })?;
        Ok(bytes.len() as u64)
    }

    /// What lies in a folder.
    pub fn entries(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        self.confine(folder)?;
        let entries = fs::read_dir(folder)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
        entries.map_err(|source| file_error("list", folder, source))
    }

    /// Reads a file.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.confine(path)?;
        let failed = |source| file_error("read", path, source);
        let metadata = fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() || metadata.len() > MAX_FILE {
            return Err(failed(io::Error::new(
                ErrorKind::InvalidInput,
                "not a file of a sensible size",
            )));
        }
        fs::read(path).map_err(failed)
    }

    /// Removes a file or a folder with everything in it. One that is gone already is fine.
    pub fn remove(&self, path: &Path) -> Result<()> {
        self.confine(path)?;
        let removed = if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        match removed {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(file_error("remove", path, source))
            }
            _ => Ok(()),
        }
    }

    /// Gives a file another name.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.confine(from)?;
        self.confine(to)?;
        fs::rename(from, to).map_err(|source| file_error("rename", from, source))
    }

    /// Refuses paths that do not lead below the root, be it by `..`, by a link, or plainly.
    fn confine(&self, path: &Path) -> Result<()> {
        let plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        // What does not exist yet is judged by the nearest folder that does.
        let existing = path
            .ancestors()
            .find_map(|ancestor| ancestor.canonicalize().ok());
        let inside = existing.is_some_and(|real| real.starts_with(&self.root)) && path != self.root;
        if plain && path.is_absolute() && inside {
            return Ok(());
        }
        Err(Error::OutsideStorage {
            path: path.to_owned(),
            storage: self.root.clone(),
        })
    }
}

/// Some network file systems cannot sync a folder, and do not need to.
fn has_no_sync(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidInput | ErrorKind::Unsupported
    )
}

fn file_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::File {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_whole_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(&folder.path().join("made/here")).unwrap();
        let run = storage.root().join("a/b");
        storage.create_folder(&run).unwrap();
        let file = run.join("model-1.bin");
        assert_eq!(storage.write(&file, b"one").unwrap(), 3);
        storage.write(&file, b"three").unwrap();
        assert_eq!(storage.read(&file).unwrap(), b"three");
        storage.write_durably(&file, b"again").unwrap();
        assert_eq!(storage.read(&file).unwrap(), b"again");
        assert_eq!(storage.entries(&run).unwrap(), [&*file], "temporary files");
        storage.rename(&file, &run.join("model-final.bin")).unwrap();
        storage.remove(&run).unwrap();
        storage.remove(&run).unwrap();
        assert!(!run.exists());
    }

    #[test]
    fn a_file_is_not_written_into_a_folder_that_was_removed() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let path = storage.root().join("gone/frames.bin");
        for refused in [storage.write(&path, b""), storage.write_durably(&path, b"")] {
            assert!(matches!(refused, Err(Error::File { .. })));
        }
    }

    #[test]
    fn paths_outside_of_the_storage_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(&folder.path().join("storage")).unwrap();
        let root = storage.root().to_owned();
        let secret = folder.path().join("secret");
        fs::write(&secret, b"x").unwrap();
        std::os::unix::fs::symlink(folder.path(), root.join("link")).unwrap();
        let outside = [
            "/etc/passwd".into(),
            secret.clone(),
            root.join("../secret"),
            root.join("link/secret"),
        ];
        for path in outside.iter().chain([&PathBuf::from("relative"), &root]) {
            assert!(
                matches!(storage.read(path), Err(Error::OutsideStorage { .. })),
                "{path:?} was read"
            );
            assert!(
                matches!(storage.write(path, b""), Err(Error::OutsideStorage { .. })),
                "{path:?} was written"
            );
            assert!(
                matches!(storage.remove(path), Err(Error::OutsideStorage { .. })),
                "{path:?} was removed"
            );
        }
        assert_eq!(fs::read(secret).unwrap(), b"x");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        let error = Storage::open(&file.join("storage")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let message = error.to_string();
        assert!(
            message.contains("file/storage")
                && message.contains("spec.volumes")
                && message.contains("--storage")
        );
    }
}
