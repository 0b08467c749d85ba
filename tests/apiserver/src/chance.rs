//! Faults by chance, in all that managers and endpoints ask of the API server: `DI_FAULTS=25` has a quarter of it fail.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{Came, Fate};

/// So many percent of all requests fail.
const PERCENT: &str = "DI_FAULTS";
/// What the faults are drawn from; a test that failed is run again with the seed that it printed.
const SEED: &str = "DI_SEED";
/// One in so many faults, of what is waited for a few seconds only, is that there is no answer.
const HUNG: u32 = 50;
/// A healthy server is reached sooner or later.
const MOST_IN_A_ROW: u32 = 10;

/// Who draws which requests fail.
pub(crate) struct Chance {
    percent: u32,
    random: Mutex<StdRng>,
    in_a_row: AtomicU32,
}

/// How many percent of all requests are to fail.
pub(crate) fn percent() -> u32 {
    static READ: OnceLock<u32> = OnceLock::new();
    *READ.get_or_init(|| number(PERCENT).map_or(0, |percent| u32::try_from(percent).unwrap()))
}

fn seed() -> u64 {
    static READ: OnceLock<u64> = OnceLock::new();
    *READ.get_or_init(|| number(SEED).unwrap_or_else(rand::random))
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(error) => panic!("{variable}={text}: {error}"),
    }
}

impl Chance {
    /// What the environment asks for. Each test draws for itself, so that it draws the same when it is run alone.
    pub(crate) fn of(agent: &str) -> Option<Self> {
        let (percent, seed) = (percent(), seed());
        if percent == 0 {
            return None;
        }
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default();
        // Shown of tests that fail.
        println!("{PERCENT}={percent} {SEED}={seed}: {agent} of {test}");
        let mut own = DefaultHasher::new();
        (seed, test, agent).hash(&mut own);
        Some(Self {
            percent,
            random: Mutex::new(StdRng::seed_from_u64(own.finish())),
            in_a_row: AtomicU32::new(0),
        })
    }

    /// What becomes of a request.
    pub(crate) fn fate(&self, came: &Came) -> Fate {
        const OF_ALL: [Fate; 5] = [
            Fate::Refused(429),
            Fate::Refused(500),
            Fate::Refused(504),
            Fate::Reset,
            Fate::Lost,
        ];
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let (fails, which, hangs) = (
            random.random_range(0..100) < self.percent,
            random.random_range(0..=OF_ALL.len()),
            random.random_range(0..HUNG) == 0,
        );
        if !fails || self.in_a_row.fetch_add(1, Relaxed) >= MOST_IN_A_ROW {
            self.in_a_row.store(0, Relaxed);
            return Fate::Served;
        }
        if hangs && !came.is_list() && !came.is_watch() {
            return Fate::Hung;
        }
        match OF_ALL.get(which) {
            Some(fate) => *fate,
            None if came.write > 0 => Fate::Refused(409),
            // What reads has no conflicts.
            None => Fate::Refused(500),
        }
    }
}
