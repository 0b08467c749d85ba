use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::Checkpoint;
use crate::{
    Error, Result, chain, game::Game, lifecycle::Stats, model::Model, storage::Storage, summary::Summary,
};

/// What a coordinator was told.
const ORDERS: &str = "orders.json";

/// When checkpoints are saved, and how many stay.
#[derive(Clone, Copy, Debug)]
pub struct CheckpointPolicy {
    /// Least time between two.
    pub every: Duration,
    /// How many stay, the newest; at least one does.
    pub latest: usize,
    /// Go on from none, and remove those that there are.
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

/// Keeps the checkpoints of a training, in a folder that is its own, and its summary beside that: others in the same storage are not touched.
#[derive(Debug)]
pub struct CheckpointStore {
    storage: Storage,
    folder: PathBuf,
    of: (Game, u64),
    keep: CheckpointPolicy,
    /// Frames and mean return of where the training is, unless a checkpoint has it.
    unsaved: Option<(u64, Option<f64>)>,
    saved_at: Instant,
    summary: Option<Summary>,
}

impl CheckpointStore {
    /// The keeper of who trains in a game with a seed, in `checkpoints-GAME-SEED` and `summaries/GAME-SEED.jsonl` of a folder.
    pub fn open(storage: Storage, folder: &Path, of: (Game, u64), keep: CheckpointPolicy) -> Result<Self> {
        let (game, seed) = of;
        let folder = folder.join(format!("checkpoints-{game}-{seed}"));
        storage.create_folder(&folder)?;
        Ok(Self {
            storage,
            folder,
            of,
            keep,
            unsaved: None,
            saved_at: Instant::now(),
            summary: None,
        })
    }

    /// The newest checkpoint that can be gone on from. One that cannot is put aside, so that no later one is taken for older than it.
    pub fn load_newest(&self) -> Result<Option<Checkpoint>> {
        if self.keep.fresh {
            self.remove_all()?;
            self.storage.create_folder(&self.folder)?;
            return Ok(None);
        }
        // What was being written when the process was killed.
        for path in self.storage.list_entries(&self.folder)? {
            if path.extension().is_some_and(|extension| extension == "tmp") {
                self.storage.remove(&path)?;
            }
        }
        for (version, path) in self.list_versions()?.into_iter().rev() {
            match self.load_version(version, &path) {
                Ok(checkpoint) => {
                    tracing::info!(
                        "going on from {}: iteration {version}, {} frames",
                        path.display(),
                        checkpoint.frames
                    );
                    return Ok(Some(checkpoint));
                }
                // What was not got at may be sound.
                Err(error) if !matches!(error, Error::BadFile { .. }) => return Err(error),
                Err(error) => {
                    let aside = path.with_extension("unusable");
                    tracing::warn!(
                        "not going on from {}, which is put aside as {}: {}",
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

    /// Notes where the training is, and saves that if it is time to. A failure is told, and tried again at the next step.
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
            tracing::warn!("going on without a checkpoint: {}", chain(&error));
        }
    }

    /// Saves where the training is, unless that was done.
    pub fn save(&mut self, model: impl FnOnce() -> Result<Model>) -> Result<()> {
        let Some((frames, mean_return)) = self.unsaved else {
            return Ok(());
        };
        let checkpoint = Checkpoint {
            seed: self.of.1,
            frames,
            mean_return,
            model: model()?,
        };
        let path = self.folder.join(file_name(checkpoint.model.version));
        self.storage.write_durably(&path, &checkpoint.encode())?;
        (self.unsaved, self.saved_at) = (None, Instant::now());
        tracing::info!("saved {}", path.display());
        let found = self.list_versions()?;
        let surplus = found.len().saturating_sub(self.keep.latest.max(1));
        for (_, old) in &found[..surplus] {
            self.storage.remove(old)?;
        }
        Ok(())
    }

    /// Notes the numbers of an iteration, for the summary. No training ends because that fails: it is told, and tried again at the next one.
    pub fn record_iteration(&mut self, iteration: u64, stats: &Stats) {
        if self.summary.is_none() {
            let (game, seed) = self.of;
            let summaries = self.folder.with_file_name("summaries");
            let path = summaries.join(format!("{game}-{seed}.jsonl"));
            match Summary::open(self.storage.clone(), path, iteration, self.keep.every) {
                Ok(summary) => self.summary = Some(summary),
                Err(error) => tracing::warn!("going on without a summary: {}", chain(&error)),
            }
        }
        if let Some(summary) = &mut self.summary {
            summary.record_stats(stats);
        }
    }

    /// Writes the summary, as nothing more is noted.
    pub fn write_summary(&mut self) {
        if let Some(summary) = &mut self.summary {
            summary.write_file();
        }
    }

    /// Keeps what a coordinator was told, for whoever goes on from the checkpoints.
    pub fn save_settings(&self, file: &[u8]) -> Result<()> {
        let written = self.storage.write_durably(&self.folder.join(ORDERS), file);
        written.map(drop)
    }

    /// What was kept of that.
    pub fn load_settings(&self) -> Result<Option<Vec<u8>>> {
        let path = self.folder.join(ORDERS);
        let is_there = self.storage.list_entries(&self.folder)?.contains(&path);
        is_there.then(|| self.storage.read(&path)).transpose()
    }

    /// Removes all checkpoints, as the training has come to its end. It has done so even if they stay: that is told.
    pub fn remove_finished(&self) {
        if let Err(error) = self.remove_all() {
            tracing::warn!("checkpoints stay: {}", chain(&error));
        }
    }

    fn remove_all(&self) -> Result<()> {
        self.storage.remove_folder(&self.folder)
    }

    fn load_version(&self, version: u64, path: &Path) -> Result<Checkpoint> {
        let checkpoint = Checkpoint::decode(&self.storage.read(path)?)?;
        let (game, seed) = self.of;
        match checkpoint.check_matches(version, game, seed) {
            Ok(()) => Ok(checkpoint),
            Err(reason) => Err(Error::BadFile {
                what: "checkpoint",
                reason,
            }),
        }
    }

    /// All, oldest first.
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
    format!("checkpoint-{version}.bin")
}

/// The version in the name of a checkpoint.
fn parse_version(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("checkpoint-")?
        .strip_suffix(".bin")?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests;
