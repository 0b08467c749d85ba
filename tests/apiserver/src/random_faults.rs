//! Random faults in the requests of managers and endpoints: `DI_FAULTS=25` fails a quarter of them.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{ProxyAction, RecordedRequest};

/// Percentage of requests that fail.
const PERCENT: &str = "DI_FAULTS";
/// Seed of the random faults; a failed test prints it so that it can be repeated.
const SEED: &str = "DI_SEED";
/// One in this number of faults is a request without a response.
const ONE_HANGS_IN: u32 = 50;
/// Limit of consecutive faults, so that a retry succeeds eventually.
const MAX_CONSECUTIVE: u32 = 10;

/// Draws which requests fail.
pub(crate) struct RandomFaults {
    percent: u32,
    random: Mutex<StdRng>,
    consecutive: AtomicU32,
}

/// Percentage of requests that fail, from the environment.
pub(crate) fn fault_percent() -> u32 {
    static READ: OnceLock<u32> = OnceLock::new();
    *READ.get_or_init(|| env_number(PERCENT).map_or(0, |percent| u32::try_from(percent).unwrap()))
}

fn seed() -> u64 {
    static READ: OnceLock<u64> = OnceLock::new();
    *READ.get_or_init(|| env_number(SEED).unwrap_or_else(rand::random))
}

fn env_number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(error) => panic!("{variable}={text}: {error}"),
    }
}

impl RandomFaults {
    /// Reads the configuration from the environment. Each test has its own random numbers, so that
    /// it behaves the same when it runs alone.
    pub(crate) fn from_env(agent: &str) -> Option<Self> {
        let (percent, seed) = (fault_percent(), seed());
        if percent == 0 {
            return None;
        }
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default();
        // The test harness prints this for failed tests.
        println!("{PERCENT}={percent} {SEED}={seed}: {agent} of {test}");
        let mut own = DefaultHasher::new();
        (seed, test, agent).hash(&mut own);
        Some(Self {
            percent,
            random: Mutex::new(StdRng::seed_from_u64(own.finish())),
            consecutive: AtomicU32::new(0),
        })
    }

    /// Draws how a request is handled.
    pub(crate) fn draw(&self, request: &RecordedRequest) -> ProxyAction {
        const OF_ALL: [ProxyAction; 5] = [
            ProxyAction::Rejected(429),
            ProxyAction::Rejected(500),
            ProxyAction::Rejected(504),
            ProxyAction::Reset,
            ProxyAction::Lost,
        ];
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let (fails, which, hangs) = (
            random.random_range(0..100) < self.percent,
            random.random_range(0..=OF_ALL.len()),
            random.random_range(0..ONE_HANGS_IN) == 0,
        );
        if !fails || self.consecutive.fetch_add(1, Relaxed) >= MAX_CONSECUTIVE {
            self.consecutive.store(0, Relaxed);
            return ProxyAction::Served;
        }
        if hangs && !request.is_list() && !request.is_watch() {
            return ProxyAction::Hung;
        }
        match OF_ALL.get(which) {
            Some(fate) => *fate,
            None if request.write > 0 => ProxyAction::Rejected(409),
            // Reads have no conflicts.
            None => ProxyAction::Rejected(500),
        }
    }
}
