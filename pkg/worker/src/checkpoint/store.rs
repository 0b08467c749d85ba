use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    Result, chain, checkpoint::checkpoint_file::Checkpoint, model::Model, storage::Storage,
};

/// When checkpoints are saved, and how many are kept.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointPolicy {
    /// Minimum time between two checkpoints.
    pub every: Duration,
    /// Number of checkpoints to keep, at least 1.
    pub latest: usize,
    /// Ignore and remove existing checkpoints.
    pub fresh: bool,
}

impl Default for CheckpointPolicy {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(30),
            latest: 3,
            fresh: false,
        }
    }
}

/// Stores the checkpoints of a training in its own folder. Other trainings in the same storage are
/// not touched.
#[derive(Debug)]
pub struct CheckpointStore {
    storage: Storage,
    folder: PathBuf,
    keep: CheckpointPolicy,
    /// Frames and mean return that are not in a checkpoint.
    unsaved: Option<(u64, Option<f64>)>,
    saved_at: Instant,
}

impl CheckpointStore {
    /// Opens the store of a seed: `checkpoints-SEED` in `folder`.
    pub fn open(
        storage: Storage,
        folder: &Path,
        seed: u64,
        keep: CheckpointPolicy,
    ) -> Result<Self> {
        let folder = folder.join(format!("checkpoints-{seed}"));
        storage.create_folder(&folder)?;
        Ok(Self {
            storage,
            folder,
            keep,
            unsaved: None,
            saved_at: Instant::now(),
        })
    }

    /// Loads the newest valid checkpoint. An invalid one is renamed, so that later saves are not
    /// taken for older ones.
    pub fn load_newest(&self) -> Result<Option<Checkpoint>> {
        if self.keep.fresh {
            self.remove_all()?;
            self.storage.create_folder(&self.folder)?;
            return Ok(None);
        }
        // Remove temporary files of a killed process.
        for path in self.storage.list_entries(&self.folder)? {
            if path.extension().is_some_and(|extension| extension == "tmp") {
                self.storage.remove(&path)?;
            }
        }
        for (version, path) in self.list_versions()?.into_iter().rev() {
            let file = self.storage.read(&path)?;
            match Checkpoint::decode(&file) {
                Ok(checkpoint) => {
                    tracing::info!(
                        "resuming from {}: iteration {version}, {} frames",
                        path.display(),
                        checkpoint.frames
                    );
                    return Ok(Some(checkpoint));
                }
                Err(error) => {
                    let aside = path.with_extension("unusable");
                    tracing::warn!(
                        "checkpoint {} is invalid and was renamed to {}: {}",
                        path.display(),
                        aside.display(),
                        chain(&error)
                    );
                    self.storage.rename(&path, &aside)?;
                }
            }
        }
        Ok(None)
    }

    /// Records the progress, and saves a checkpoint if one is due. A failure is logged; the next
    /// iteration retries.
    pub fn record_progress(
        &mut self,
        frames: u64,
        mean_return: Option<f64>,
        model: impl FnOnce() -> Result<Model>,
    ) {
        self.unsaved = Some((frames, mean_return));
        if self.saved_at.elapsed() < self.keep.every {
            return;
        }
        if let Err(error) = self.save(model) {
            tracing::warn!(
                "cannot save a checkpoint, retrying after the next iteration: {}",
                chain(&error)
            );
        }
    }

    /// Saves the recorded progress unless it is saved.
    pub fn save(&mut self, model: impl FnOnce() -> Result<Model>) -> Result<()> {
        let Some((frames, mean_return)) = self.unsaved else {
            return Ok(());
        };
        let checkpoint = Checkpoint {
            frames,
            mean_return,
            model: model()?,
        };
        let path = self.folder.join(file_name(checkpoint.model.version));
        self.storage.write(&path, &checkpoint.encode())?;
        (self.unsaved, self.saved_at) = (None, Instant::now());
        tracing::info!("saved {}", path.display());
        let found = self.list_versions()?;
        let surplus = found.len().saturating_sub(self.keep.latest.max(1));
        for (_, old) in &found[..surplus] {
            self.storage.remove(old)?;
        }
        Ok(())
    }

    /// Removes all checkpoints of a finished training. A failure is only logged.
    pub fn remove_finished(&self) {
        if let Err(error) = self.remove_all() {
            tracing::warn!(
                "cannot remove the checkpoints of the finished training: {}",
                chain(&error)
            );
        }
    }

    fn remove_all(&self) -> Result<()> {
        self.storage.remove_folder(&self.folder)
    }

    /// All checkpoints, oldest first.
    fn list_versions(&self) -> Result<Vec<(u64, PathBuf)>> {
        let entries = self.storage.list_entries(&self.folder)?.into_iter();
        let mut found: Vec<_> = entries
            .filter_map(|path| Some((parse_version(&path)?, path)))
            .collect();
        found.sort_unstable();
        Ok(found)
    }
}

fn file_name(version: u64) -> String {
    format!("checkpoint-{version}.safetensors")
}

/// The version in the file name of a checkpoint.
fn parse_version(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("checkpoint-")?
        .strip_suffix(".safetensors")?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;
