use std::fs;

use super::*;

const OF: (Game, u64) = (Game::CartPole, 4);
const ALWAYS: Keep = Keep {
    every: Duration::ZERO,
    latest: 2,
    fresh: false,
};

/// A job whose training goes on step by step.
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
            at: Checkpoint::first(OF.0, OF.1),
            folder,
        }
    }

    fn keeper(&self, of: (Game, u64), keep: Keep) -> Keeper {
        let folder = self.storage.root().join("rl/pole");
        Keeper::open(self.storage.clone(), &folder, of, keep).unwrap()
    }

    fn step(&mut self, keeper: &mut Keeper) {
        self.at.model.version += 1;
        self.at.frames += 100;
        keeper.reached(self.at.frames, None, || Ok(self.at.model.clone()));
    }

    fn save(&self, keeper: &mut Keeper) {
        keeper.save(|| Ok(self.at.model.clone())).unwrap();
    }

    fn checkpoints(&self) -> Vec<String> {
        let folder = self.folder.path().join("rl/pole/checkpoints");
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn spoil(&self, name: &str) {
        let path = self.folder.path().join("rl/pole/checkpoints").join(name);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    }
}

fn newest(keeper: &Keeper) -> Option<(u64, u64)> {
    let found = keeper.newest().unwrap();
    found.map(|checkpoint| (checkpoint.model.version, checkpoint.frames))
}

#[test]
fn the_latest_few_stay_and_the_newest_is_gone_on_from() {
    let mut job = Job::new();
    let mut keeper = job.keeper(OF, ALWAYS);
    assert_eq!(newest(&keeper), None);
    // 10 comes after 9, whatever their letters say.
    (0..10).for_each(|_| job.step(&mut keeper));
    assert_eq!(job.checkpoints(), ["checkpoint-10.bin", "checkpoint-9.bin"]);
    assert_eq!(newest(&job.keeper(OF, ALWAYS)), Some((10, 1000)));
    keeper.clear().unwrap();
    assert_eq!(newest(&job.keeper(OF, ALWAYS)), None);
}

#[test]
fn what_was_not_saved_is_saved_at_the_end() {
    let mut job = Job::new();
    let mut keeper = job.keeper(OF, Keep::default());
    job.save(&mut keeper);
    assert!(
        job.checkpoints().is_empty(),
        "the first model is no progress"
    );
    (0..2).for_each(|_| job.step(&mut keeper));
    assert!(job.checkpoints().is_empty(), "it is not time yet");
    // Of the iteration that is interrupted, nothing counts.
    job.at.frames += 50;
    job.save(&mut keeper);
    assert_eq!(newest(&keeper), Some((2, 200)));
    let path = job
        .folder
        .path()
        .join("rl/pole/checkpoints/checkpoint-2.bin");
    fs::remove_file(path).unwrap();
    job.save(&mut keeper);
    assert!(job.checkpoints().is_empty(), "it was saved already");
}

#[test]
fn a_damaged_one_is_put_aside_for_the_one_before() {
    let mut job = Job::new();
    let mut keeper = job.keeper(OF, ALWAYS);
    (0..3).for_each(|_| job.step(&mut keeper));
    job.spoil("checkpoint-3.bin");
    let unfinished = job
        .folder
        .path()
        .join("rl/pole/checkpoints/checkpoint-4.0.tmp");
    fs::write(&unfinished, b"half of").unwrap();
    assert_eq!(newest(&keeper), Some((2, 200)));
    assert!(!unfinished.exists());
    assert_eq!(
        job.checkpoints(),
        ["checkpoint-2.bin", "checkpoint-3.unusable"]
    );
    job.spoil("checkpoint-2.bin");
    assert_eq!(newest(&keeper), None);
    job.step(&mut keeper);
    assert_eq!(newest(&keeper), Some((4, 400)));
}

#[test]
fn one_of_another_training_is_not_gone_on_from() {
    for (of, name) in [
        ((Game::Acrobot, OF.1), "checkpoint-1.bin"),
        ((OF.0, 5), "checkpoint-1.bin"),
        (OF, "checkpoint-7.bin"),
    ] {
        let mut job = Job::new();
        let mut keeper = job.keeper(OF, ALWAYS);
        job.step(&mut keeper);
        let folder = job.folder.path().join("rl/pole/checkpoints");
        fs::rename(folder.join("checkpoint-1.bin"), folder.join(name)).unwrap();
        assert_eq!(newest(&job.keeper(of, ALWAYS)), None, "{of:?} {name}");
    }
}

#[test]
fn a_fresh_start_goes_on_from_none() {
    let mut job = Job::new();
    let mut keeper = job.keeper(OF, ALWAYS);
    job.step(&mut keeper);
    let fresh = Keep {
        fresh: true,
        ..ALWAYS
    };
    let mut keeper = job.keeper(OF, fresh);
    assert_eq!(newest(&keeper), None);
    assert!(job.checkpoints().is_empty());
    job.step(&mut keeper);
    assert_eq!(job.checkpoints(), ["checkpoint-2.bin"]);
}
