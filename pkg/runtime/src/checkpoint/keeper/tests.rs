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

    fn path(&self, name: &str) -> PathBuf {
        let own = self.folder.path().join("rl/pole/checkpoints-CartPole-v1-4");
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
    fs::remove_file(job.path("checkpoint-2.bin")).unwrap();
    job.save(&mut keeper);
    assert!(job.checkpoints().is_empty(), "it was saved already");
}

#[test]
fn a_damaged_one_is_put_aside_for_the_one_before() {
    let mut job = Job::new();
    let mut keeper = job.keeper(OF, ALWAYS);
    (0..3).for_each(|_| job.step(&mut keeper));
    job.spoil("checkpoint-3.bin");
    let unfinished = job.path("checkpoint-4.0.tmp");
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
fn one_that_cannot_be_got_at_stays_where_it_is() {
    let mut job = Job::new();
    let mut keeper = job.keeper(OF, ALWAYS);
    job.step(&mut keeper);
    // Stands for a storage that fails for a moment.
    fs::create_dir(job.path("checkpoint-2.bin")).unwrap();
    let error = keeper.newest().unwrap_err();
    assert!(matches!(error, Error::File { .. }), "{error}");
    assert_eq!(job.checkpoints(), ["checkpoint-1.bin", "checkpoint-2.bin"]);
}

#[test]
fn trainings_of_other_games_and_seeds_in_one_folder_do_not_touch_each_other() {
    let mut job = Job::new();
    let mut own = job.keeper(OF, ALWAYS);
    job.step(&mut own);
    let unfinished = job.path("checkpoint-2.0.tmp");
    fs::write(&unfinished, b"half of").unwrap();
    for of in [(Game::Acrobot, OF.1), (OF.0, 5)] {
        let fresh = Keep {
            fresh: true,
            ..ALWAYS
        };
        for keep in [ALWAYS, fresh] {
            let mut other = job.keeper(of, keep);
            assert_eq!(newest(&other), None, "{of:?}");
            (0..3).for_each(|_| job.step(&mut other));
            other.clear().unwrap();
        }
    }
    assert_eq!(
        job.checkpoints(),
        ["checkpoint-1.bin", "checkpoint-2.0.tmp"]
    );
    assert_eq!(newest(&own), Some((1, 100)));
}

#[test]
fn one_that_is_not_what_its_name_says_is_not_gone_on_from() {
    let others = [(Game::Acrobot, OF.1), (OF.0, 5)];
    let renamed = [(OF, "checkpoint-7.bin")];
    let moved = others.map(|of| (of, "checkpoint-1.bin"));
    for (of, name) in moved.into_iter().chain(renamed) {
        let mut job = Job::new();
        let mut other = job.keeper(of, ALWAYS);
        job.at = Checkpoint::first(of.0, of.1);
        job.step(&mut other);
        let own = job.keeper(OF, ALWAYS);
        fs::rename(other.folder.join("checkpoint-1.bin"), job.path(name)).unwrap();
        assert_eq!(newest(&own), None, "{of:?} {name}");
        let aside = name.replace(".bin", ".unusable");
        assert_eq!(job.checkpoints(), [aside]);
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
