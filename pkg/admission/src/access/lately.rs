use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Entries; a cluster has fewer users who submit jobs within some seconds.
const MOST: usize = 1024;
/// What is larger, in bytes, is not kept: so all of it takes 4 MiB at most.
const LARGEST: usize = 4096;

/// What was found true, and is believed for a while.
pub(super) struct Lately<T> {
    lasting: Duration,
    until: Mutex<HashMap<T, Instant>>,
}

impl<T: Clone + Eq + Hash> Lately<T> {
    /// Believes for as long; not at all if that is zero.
    pub(super) fn new(lasting: Duration) -> Self {
        Self {
            lasting,
            until: Mutex::default(),
        }
    }

    /// Whether this was found true lately.
    pub(super) fn holds(&self, what: &T) -> bool {
        let until = self.until();
        until.get(what).is_some_and(|until| Instant::now() < *until)
    }

    /// This was true `at` some time; it takes `size` bytes.
    pub(super) fn note(&self, what: &T, size: usize, at: Instant) {
        if self.lasting.is_zero() || size > LARGEST {
            return;
        }
        let mut until = self.until();
        if until.len() >= MOST {
            let now = Instant::now();
            until.retain(|_, until| now < *until);
        }
        // One too many is asked about again.
        if until.len() < MOST {
            until.insert(what.clone(), at + self.lasting);
        }
    }

    /// A map is whole whatever happened to who held it.
    fn until(&self) -> MutexGuard<'_, HashMap<T, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTING: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn it_is_believed_for_a_while_since_it_was_asked() {
        let lately = Lately::new(LASTING);
        let asked = Instant::now();
        tokio::time::advance(LASTING / 2).await;
        lately.note(&"ann", 3, asked);
        assert!(lately.holds(&"ann") && !lately.holds(&"bob"));
        tokio::time::advance(LASTING / 2).await;
        assert!(!lately.holds(&"ann"));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_is_kept_than_there_is_room_for() {
        let lately = Lately::new(LASTING);
        for i in 0..=MOST {
            lately.note(&i, 8, Instant::now());
        }
        assert_eq!(lately.until().len(), MOST);
        assert!(lately.holds(&0) && !lately.holds(&MOST));
        tokio::time::advance(LASTING).await;
        lately.note(&MOST, 8, Instant::now());
        lately.note(&0, LARGEST + 1, Instant::now());
        assert_eq!(lately.until().len(), 1, "what is over makes room");
        let none = Lately::new(Duration::ZERO);
        none.note(&0, 8, Instant::now());
        assert!(!none.holds(&0));
    }
}
