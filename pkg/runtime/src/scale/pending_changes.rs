//! What there is of replicas, as far as the list, which is behind, and the last answers tell. Pure: time comes from outside.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use super::Counts;
use crate::wire::Replicas;

/// The list knows after so long what was granted: a new replica is listed 2 s after it was planned.
pub(super) const LIST_DELAY: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many more.
    More(Counts),
    /// So many fewer.
    Fewer(Counts),
}

impl Step {
    /// What leads from these numbers to those; more come first.
    pub(super) fn next_step(there: Counts, wanted: Counts) -> Option<Self> {
        let above = |of: Counts, than: Counts| {
            let counts = Counts {
                collectors: of.collectors.saturating_sub(than.collectors),
                learners: of.learners.saturating_sub(than.learners),
            };
            (counts != Counts::default()).then_some(counts)
        };
        let more = above(wanted, there).map(Self::More);
        more.or_else(|| above(there, wanted).map(Self::Fewer))
    }
}

/// Answers that the list may not show yet.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    collectors: Answers,
    learners: Answers,
}

/// By URL, whether it was granted or let go of, and when.
type Answers = HashMap<String, (bool, Instant)>;

impl PendingChanges {
    /// These were granted.
    pub(super) fn record_granted(&mut self, replicas: &Replicas, now: Instant) {
        self.record_answer(replicas, true, now);
    }

    /// These were let go of.
    pub(super) fn record_removed(&mut self, replicas: &Replicas, now: Instant) {
        self.record_answer(replicas, false, now);
    }

    fn record_answer(&mut self, replicas: &Replicas, granted: bool, now: Instant) {
        for (answers, urls) in [
            (&mut self.collectors, &replicas.collectors),
            (&mut self.learners, &replicas.learners),
        ] {
            answers.extend(urls.iter().map(|url| (url.clone(), (granted, now))));
        }
    }

    /// How many there are.
    pub(super) fn count_replicas(&mut self, listed: &Replicas, now: Instant) -> Counts {
        Counts {
            collectors: count_role(&listed.collectors, &mut self.collectors, now),
            learners: count_role(&listed.learners, &mut self.learners, now),
        }
    }
}

fn count_role(listed: &[String], answers: &mut Answers, now: Instant) -> u32 {
    answers.retain(|_, (_, since)| now.saturating_duration_since(*since) < LIST_DELAY);
    let mut there: HashSet<_> = listed.iter().collect();
    for (url, (granted, _)) in answers.iter() {
        if *granted {
            there.insert(url);
        } else {
            there.remove(url);
        }
    }
    u32::try_from(there.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts_of(collectors: u32, learners: u32) -> Counts {
        Counts {
            collectors,
            learners,
        }
    }

    fn replicas_of(collectors: &[&str]) -> Replicas {
        Replicas {
            collectors: collectors.iter().map(ToString::to_string).collect(),
            ..Replicas::default()
        }
    }

    #[test]
    fn step_leads_to_wanted_counts() {
        let step = |there, wanted| Step::next_step(there, wanted);
        assert_eq!(step(counts_of(2, 1), counts_of(2, 1)), None);
        assert_eq!(
            step(counts_of(2, 1), counts_of(4, 1)),
            Some(Step::More(counts_of(2, 0)))
        );
        assert_eq!(
            step(counts_of(4, 2), counts_of(1, 1)),
            Some(Step::Fewer(counts_of(3, 1)))
        );
        assert_eq!(
            step(counts_of(4, 1), counts_of(1, 2)),
            Some(Step::More(counts_of(0, 1)))
        );
    }

    #[test]
    fn granted_replicas_count_until_listed() {
        let (mut ledger, now) = (PendingChanges::default(), Instant::now());
        ledger.record_granted(&replicas_of(&["b", "c"]), now);
        let mut there = |listed: &[&str], now| ledger.count_replicas(&replicas_of(listed), now).collectors;
        assert_eq!(there(&["a"], now), 3);
        assert_eq!(there(&["a", "b"], now), 3, "none twice");
        assert_eq!(there(&["a"], now + LIST_DELAY), 1, "they came to nothing");
        ledger.record_removed(&replicas_of(&["a"]), now);
        let mut there = |listed: &[&str], now| ledger.count_replicas(&replicas_of(listed), now).collectors;
        assert_eq!(there(&["a", "b"], now), 1);
        assert_eq!(there(&["a", "b"], now + LIST_DELAY), 2, "it did not go");
    }
}
