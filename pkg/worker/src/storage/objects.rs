//! A storage in a prefix of a bucket.
//!
//! A bucket has no folders. A created folder is an empty object, so that writes into a removed
//! folder are rejected here, too.

use std::{
    fmt,
    future::Future,
    io::{self, ErrorKind},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use futures::{StreamExt as _, TryStreamExt as _};
use object_store::{
    Error as Failure, ObjectStore, ObjectStoreExt as _,
    path::{Path as Key, PathPart},
};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{
    Error, Result,
    storage::files::{Files, MAX_FILE, file_error, outside_storage},
};

/// Name of the object that marks a folder.
const FOLDER: &str = ".folder";

/// The objects below a prefix in a bucket.
pub(super) struct Objects {
    root: PathBuf,
    prefix: Key,
    store: Arc<dyn ObjectStore>,
    loops: BackgroundRuntime,
}

impl fmt::Debug for Objects {
    /// Omits the store: its debug output may contain credentials.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Objects");
        debug.field("root", &self.root).finish_non_exhaustive()
    }
}

impl Objects {
    /// The objects below `prefix` in a store, with paths below `root`.
    pub(super) fn new(root: PathBuf, prefix: Key, store: Arc<dyn ObjectStore>) -> Result<Self> {
        Ok(Self {
            root,
            prefix,
            store,
            loops: BackgroundRuntime::start()?,
        })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Checks that the prefix is writable.
    pub(super) fn check_writable(&self) -> Result<(), Failure> {
        let name = format!(".writable-{:016x}", rand::random::<u64>());
        let key = self.prefix.clone().join(name);
        self.loops.block_on(async {
            self.store.put(&key, "di-worker".into()).await?;
            self.store.delete(&key).await
        })
    }

    /// The object of a path; a path outside the root is rejected.
    fn object_key(&self, path: &Path) -> Result<Key> {
        let below = path.strip_prefix(&self.root).ok();
        let names: Option<Vec<_>> = below.and_then(|below| {
            let names = below.components().map(|part| match part {
                Component::Normal(name) => name.to_str().map(PathPart::from),
                _ => None,
            });
            names.collect()
        });
        let names = names.filter(|names| !names.is_empty());
        let names = names.ok_or_else(|| outside_storage(path, &self.root))?;
        Ok(self.prefix.parts().chain(names).collect())
    }

    /// The marker of the parent folder; none for the root, which always exists.
    fn folder_marker_of(&self, path: &Path) -> Result<Option<Key>> {
        let folder = path.parent().filter(|folder| **folder != *self.root);
        folder
            .map(|folder| Ok(folder_marker(&self.object_key(folder)?)))
            .transpose()
    }
}

impl Files for Objects {
    fn create_folder(&self, folder: &Path) -> Result<()> {
        let mark = folder_marker(&self.object_key(folder)?);
        let made = self
            .loops
            .block_on(self.store.put(&mark, Vec::new().into()));
        made.map(drop)
            .map_err(storage_error("create folder", folder))
    }

    /// A removal deletes the marker of the folder first. Checking the marker after the write shows
    /// whether the file was written too late.
    fn write(&self, path: &Path, bytes: &[u8], _: bool) -> Result<()> {
        let (key, folder) = (self.object_key(path)?, self.folder_marker_of(path)?);
        let written = self.loops.block_on(async {
            self.store.put(&key, bytes.to_vec().into()).await?;
            let Some(folder) = folder else {
                return Ok(());
            };
            let there = self.store.head(&folder).await;
            if let Err(Failure::NotFound { .. }) = there {
                self.store.delete(&key).await?;
            }
            there.map(drop)
        });
        written.map_err(storage_error("write", path))
    }

    fn list_entries(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let key = self.object_key(folder)?;
        let listed = self
            .loops
            .block_on(self.store.list_with_delimiter(Some(&key)));
        let listed = listed.map_err(storage_error("list", folder))?;
        let objects = listed.objects.into_iter().map(|object| object.location);
        let (mut there, mut found) = (false, Vec::new());
        for entry in objects.chain(listed.common_prefixes) {
            match entry.filename() {
                Some(FOLDER) => there = true,
                Some(name) => found.push(folder.join(name)),
                None => {}
            }
        }
        if there || !found.is_empty() {
            return Ok(found);
        }
        let source = io::Error::from(ErrorKind::NotFound);
        Err(file_error("list", folder, source))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let key = self.object_key(path)?;
        let read = self.loops.block_on(async {
            let object = self.store.get(&key).await?;
            if object.meta.size > MAX_FILE {
                return Ok(None);
            }
            object.bytes().await.map(Some)
        });
        let bytes = read.map_err(storage_error("read", path))?;
        let bytes = bytes.ok_or_else(|| {
            let size = io::Error::new(ErrorKind::InvalidInput, "too large");
            file_error("read", path, size)
        })?;
        Ok(bytes.into())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let key = self.object_key(path)?;
        let removed = self.loops.block_on(self.store.delete(&key));
        ignore_missing(removed).map_err(storage_error("remove", path))
    }

    fn remove_folder(&self, folder: &Path) -> Result<()> {
        let key = self.object_key(folder)?;
        let removed = self.loops.block_on(async {
            ignore_missing(self.store.delete(&folder_marker(&key)).await)?;
            let found = self.store.list(Some(&key));
            let found = found.map_ok(|object| object.location).boxed();
            let mut removed = self.store.delete_stream(found);
            while let Some(one) = removed.next().await {
                ignore_missing(one.map(drop))?;
            }
            Ok(())
        });
        removed.map_err(storage_error("remove", folder))
    }

    /// Not atomic: both names may exist for a while.
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (source, target) = (self.object_key(from)?, self.object_key(to)?);
        let renamed = self.loops.block_on(self.store.rename(&source, &target));
        renamed.map_err(storage_error("rename", from))
    }
}

fn folder_marker(folder: &Key) -> Key {
    folder.clone().join(FOLDER)
}

fn ignore_missing(removed: Result<(), Failure>) -> Result<(), Failure> {
    match removed {
        Err(Failure::NotFound { .. }) => Ok(()),
        removed => removed,
    }
}

fn storage_error(action: &'static str, path: &Path) -> impl FnOnce(Failure) -> Error {
    move |source| file_error(action, path, source.into())
}

/// The runtime that keeps connections alive between requests.
struct BackgroundRuntime {
    handle: Handle,
    /// None only during the drop.
    runtime: Option<Runtime>,
}

impl BackgroundRuntime {
    fn start() -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(Error::Thread)?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Blocks on a request; must not be called on an event loop.
    fn block_on<T>(&self, answer: impl Future<Output = T>) -> T {
        self.handle.block_on(answer)
    }
}

impl Drop for BackgroundRuntime {
    /// Shuts down in the background: waiting would block an event loop.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
