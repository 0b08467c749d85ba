use std::fs;

use super::*;

const SEED: u64 = 4;
const ALWAYS: CheckpointPolicy = CheckpointPolicy {
    every: Duration::ZERO,
    latest: 2,
    fresh: false,
};

/// A training that is advanced step by step.
struct Job {
    storage: Storage,
    at: Checkpoint,
    folder: tempfile::TempDir,
}

impl Job {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            storage: Storage::open(folder.path()).unwrap(),
            at: Checkpoint::new_initial(SEED),
            folder,
        }
    }

    fn open_store(&self, seed: u64, keep: CheckpointPolicy) -> CheckpointStore {
        let folder = self.storage.root().join("rl/pole");
        CheckpointStore::open(self.storage.clone(), &folder, seed, keep).unwrap()
    }

    fn step(&mut self, store: &mut CheckpointStore) {
        self.at.model.version += 1;
        self.at.frames += 100;
        store.record_progress(self.at.frames, None, || Ok(self.at.model.clone()));
    }

    fn save(&self, store: &mut CheckpointStore) {
        store.save(|| Ok(self.at.model.clone())).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        let own = self.folder.path().join("rl/pole/checkpoints-4");
        own.join(name)
    }

    fn checkpoints(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn spoil(&self, name: &str) {
        let path = self.path(name);
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    }
}

fn load_newest(store: &CheckpointStore) -> Option<(u64, u64)> {
    let found = store.load_newest().unwrap();
    found.map(|checkpoint| (checkpoint.model.version, checkpoint.frames))
}

#[test]
fn newest_checkpoint_is_loaded_and_old_ones_removed() {
    let mut job = Job::new();
    let mut store = job.open_store(SEED, ALWAYS);
    assert_eq!(load_newest(&store), None);
    // Version 10 is newer than 9, although it sorts before it as text.
    (0..10).for_each(|_| job.step(&mut store));
    assert_eq!(
        job.checkpoints(),
        ["checkpoint-10.safetensors", "checkpoint-9.safetensors"]
    );
    assert_eq!(load_newest(&job.open_store(SEED, ALWAYS)), Some((10, 1000)));
    store.remove_all().unwrap();
    assert_eq!(load_newest(&job.open_store(SEED, ALWAYS)), None);
}

#[test]
fn unsaved_progress_is_saved_at_the_end() {
    let mut job = Job::new();
    let mut store = job.open_store(SEED, CheckpointPolicy::default());
    job.save(&mut store);
    assert!(
        job.checkpoints().is_empty(),
        "the first model is no progress"
    );
    (0..2).for_each(|_| job.step(&mut store));
    assert!(job.checkpoints().is_empty(), "no checkpoint is due");
    // Progress of the interrupted iteration is not counted.
    job.at.frames += 50;
    job.save(&mut store);
    assert_eq!(load_newest(&store), Some((2, 200)));
    fs::remove_file(job.path("checkpoint-2.safetensors")).unwrap();
    job.save(&mut store);
    assert!(job.checkpoints().is_empty(), "it was saved already");
}

#[test]
fn damaged_checkpoint_is_renamed_and_previous_loaded() {
    let mut job = Job::new();
    let mut store = job.open_store(SEED, ALWAYS);
    (0..3).for_each(|_| job.step(&mut store));
    job.spoil("checkpoint-3.safetensors");
    let unfinished = job.path("checkpoint-4.0.tmp");
    fs::write(&unfinished, b"half of").unwrap();
    assert_eq!(load_newest(&store), Some((2, 200)));
    assert!(!unfinished.exists());
    assert_eq!(
        job.checkpoints(),
        ["checkpoint-2.safetensors", "checkpoint-3.unusable"]
    );
    job.spoil("checkpoint-2.safetensors");
    assert_eq!(load_newest(&store), None);
    job.step(&mut store);
    assert_eq!(load_newest(&store), Some((4, 400)));
}

#[test]
fn unreadable_checkpoint_is_kept() {
    let mut job = Job::new();
    let mut store = job.open_store(SEED, ALWAYS);
    job.step(&mut store);
    // Simulates a temporary read error.
    fs::create_dir(job.path("checkpoint-2.safetensors")).unwrap();
    let error = store.load_newest().unwrap_err();
    assert!(matches!(error, crate::Error::File { .. }), "{error}");
    assert_eq!(
        job.checkpoints(),
        ["checkpoint-1.safetensors", "checkpoint-2.safetensors"]
    );
}

#[test]
fn trainings_in_one_folder_are_independent() {
    let mut job = Job::new();
    let mut own = job.open_store(SEED, ALWAYS);
    job.step(&mut own);
    let unfinished = job.path("checkpoint-2.0.tmp");
    fs::write(&unfinished, b"half of").unwrap();
    let fresh = CheckpointPolicy {
        fresh: true,
        ..ALWAYS
    };
    for keep in [ALWAYS, fresh] {
        let mut other = job.open_store(5, keep);
        assert_eq!(load_newest(&other), None);
        (0..3).for_each(|_| job.step(&mut other));
        other.remove_all().unwrap();
    }
    assert_eq!(
        job.checkpoints(),
        ["checkpoint-1.safetensors", "checkpoint-2.0.tmp"]
    );
    assert_eq!(load_newest(&own), Some((1, 100)));
}

#[test]
fn fresh_start_removes_checkpoints() {
    let mut job = Job::new();
    let mut store = job.open_store(SEED, ALWAYS);
    job.step(&mut store);
    let fresh = CheckpointPolicy {
        fresh: true,
        ..ALWAYS
    };
    let mut store = job.open_store(SEED, fresh);
    assert_eq!(load_newest(&store), None);
    assert!(job.checkpoints().is_empty());
    job.step(&mut store);
    assert_eq!(job.checkpoints(), ["checkpoint-2.safetensors"]);
}
