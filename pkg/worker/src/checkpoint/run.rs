//! The folder of one training run in the storage.

use std::path::{Path, PathBuf};

use crate::{
    Result, chain,
    model::{Model, model_file::model_file},
    sampler::collector::frames_folder,
    storage::Storage,
};

/// File name of the final model.
pub const FINAL_MODEL: &str = "model-final.safetensors";

/// Prefix of the folder names of runs.
pub(crate) const RUN: &str = "run-";

/// The folder `<storage>/<namespace>/<job>/<run id>` with the newest model, and with frames while
/// they are needed.
#[derive(Clone, Debug)]
pub struct Run {
    storage: Storage,
    folder: PathBuf,
    model_path: PathBuf,
    model_version: u64,
}

impl Run {
    /// Creates the folder of a new run with its first model.
    pub fn create(storage: Storage, job: &Path, id: &str, model: &Model) -> Result<Self> {
        log_removal_error(remove_killed_runs(&storage, job));
        let folder = job.join(id);
        storage.create_folder(&folder)?;
        let model_path = folder.join(model_file(model.version));
        storage.write(&model_path, &model.encode())?;
        Ok(Self {
            storage,
            folder,
            model_path,
            model_version: model.version,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// File of the newest model.
    pub fn model_path(&self) -> &Path {
        &self.model_path
    }

    /// The newest model.
    pub fn model(&self) -> Result<Model> {
        Model::decode(&self.storage.read(&self.model_path)?)
    }

    /// Version of the newest model.
    pub const fn model_version(&self) -> u64 {
        self.model_version
    }

    /// Creates the folder for the frames of the newest model.
    pub fn begin_frames(&self) -> Result<()> {
        self.storage
            .create_folder(&self.frames_path(self.model_version))
    }

    /// Records a new model. Removes the previous model and the frames that the new one was trained
    /// on; with `ahead`, these are the frames of the model before the previous one.
    pub fn set_model(&mut self, model_path: PathBuf, model_version: u64, ahead: bool) {
        if let Some(version) = self.model_version.checked_sub(u64::from(ahead)) {
            log_removal_error(self.storage.remove_folder(&self.frames_path(version)));
        }
        let old = std::mem::replace(&mut self.model_path, model_path);
        self.model_version = model_version;
        self.remove_model(&old);
    }

    /// Removes a model that is not used.
    pub fn remove_model(&self, model_path: &Path) {
        log_removal_error(self.storage.remove(model_path));
    }

    /// Ends the run: only the newest model is left, with its final name. Returns its path.
    pub fn finish_run(&mut self) -> Result<&Path> {
        for version in self.model_version.saturating_sub(1)..=self.model_version {
            log_removal_error(self.storage.remove_folder(&self.frames_path(version)));
        }
        let path = self.folder.join(FINAL_MODEL);
        if self.model_path != path {
            self.storage.rename(&self.model_path, &path)?;
            self.model_path = path;
        }
        Ok(&self.model_path)
    }

    fn frames_path(&self, version: u64) -> PathBuf {
        self.folder.join(frames_folder(version))
    }
}

/// Removes the folders of killed runs. A job has one coordinator, so nothing else uses them.
fn remove_killed_runs(storage: &Storage, job: &Path) -> Result<()> {
    for folder in storage.list_entries(job)? {
        let name = folder.file_name().and_then(|name| name.to_str());
        let is_run = name.is_some_and(|name| name.starts_with(RUN));
        if is_run
            && !storage
                .list_entries(&folder)?
                .contains(&folder.join(FINAL_MODEL))
        {
            storage.remove_folder(&folder)?;
        }
    }
    Ok(())
}

/// Logs a failed removal. It does not end the training: a slow replica may still write files.
fn log_removal_error(removed: Result<()>) {
    if let Err(error) = removed {
        tracing::warn!(
            "cannot remove files that are no longer needed: {}",
            chain(&error)
        );
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    fn file_names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn new_run(storage: &Storage, id: &str, model: &Model) -> Run {
        let job = storage.root().join("rl/pole");
        storage.create_folder(&job).unwrap();
        Run::create(storage.clone(), &job, id, model).unwrap()
    }

    #[test]
    fn finished_run_keeps_only_final_model() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let model = Model::random(&mut StdRng::seed_from_u64(1));
        let mut run = new_run(&storage, "first", &model);
        assert!(run.folder().ends_with("rl/pole/first"));
        run.begin_frames().unwrap();
        storage
            .write(&run.folder().join("frames-0/a.safetensors"), b"frames")
            .unwrap();
        let next = run.folder().join("model-1.safetensors");
        storage.write(&next, &model.encode()).unwrap();
        run.set_model(next.clone(), 1, false);
        assert_eq!(file_names(run.folder()), ["model-1.safetensors"]);
        run.begin_frames().unwrap();
        run.finish_run().unwrap();
        assert_eq!(file_names(run.folder()), ["model-final.safetensors"]);
        assert_eq!(
            Model::decode(&fs::read(run.finish_run().unwrap()).unwrap()).unwrap(),
            model
        );
    }

    #[test]
    fn new_run_removes_killed_runs() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let model = Model::random(&mut StdRng::seed_from_u64(1));
        let mut finished = new_run(&storage, "run-1", &model);
        finished.finish_run().unwrap();
        let killed = new_run(&storage, "run-2", &model);
        killed.begin_frames().unwrap();
        let job = killed.folder().parent().unwrap();
        fs::create_dir(job.join("checkpoints-of")).unwrap();
        new_run(&storage, "run-3", &model);
        assert_eq!(file_names(job), ["checkpoints-of", "run-1", "run-3"]);
        assert_eq!(file_names(finished.folder()), ["model-final.safetensors"]);
    }

    #[test]
    fn run_continues_when_old_frames_cannot_be_removed() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let model = Model::random(&mut StdRng::seed_from_u64(1));
        let mut run = new_run(&storage, "first", &model);
        // A file is not a removable folder.
        fs::write(run.folder().join("frames-0"), b"in the way").unwrap();
        let next = run.folder().join("model-1.safetensors");
        storage.write(&next, &model.encode()).unwrap();
        run.set_model(next.clone(), 1, false);
        assert_eq!((run.model_path(), run.model_version()), (&*next, 1));
        assert!(run.finish_run().is_ok());
        assert_eq!(
            file_names(run.folder()),
            ["frames-0", "model-final.safetensors"]
        );
    }

    #[test]
    fn frames_collected_ahead_are_kept_for_next_model() {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let model = Model::random(&mut StdRng::seed_from_u64(1));
        let mut run = new_run(&storage, "first", &model);
        for version in 1..=3 {
            run.begin_frames().unwrap();
            let next = run.folder().join(model_file(version));
            storage.write(&next, &model.encode()).unwrap();
            run.set_model(next, version, true);
        }
        assert_eq!(
            file_names(run.folder()),
            ["frames-2", "model-3.safetensors"]
        );
        let next = run.folder().join("model-4.safetensors");
        storage.write(&next, &model.encode()).unwrap();
        run.remove_model(&next);
        run.begin_frames().unwrap();
        run.finish_run().unwrap();
        assert_eq!(file_names(run.folder()), ["model-final.safetensors"]);
    }
}
