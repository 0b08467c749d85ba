//! What there is of replicas, as far as the list, which is behind, and the last answers tell. Pure: time comes from outside.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use super::Counts;
use crate::wire::Replicas;

/// The list knows after so long what was granted: a new replica is listed 2 s after it was planned.
pub(super) const LAG: Duration = Duration::from_secs(5);

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
    pub(super) fn between(there: Counts, wanted: Counts) -> Option<Self> {
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
pub(super) struct Ledger {
    collectors: Answers,
    learners: Answers,
}

/// By URL, whether it was granted or let go of, and when.
type Answers = HashMap<String, (bool, Instant)>;

impl Ledger {
    /// These were granted.
    pub(super) fn granted(&mut self, replicas: &Replicas, now: Instant) {
        self.answered(replicas, true, now);
    }

    /// These were let go of.
    pub(super) fn gone(&mut self, replicas: &Replicas, now: Instant) {
        self.answered(replicas, false, now);
    }

    fn answered(&mut self, replicas: &Replicas, granted: bool, now: Instant) {
        for (answers, urls) in [
            (&mut self.collectors, &replicas.collectors),
            (&mut self.learners, &replicas.learners),
        ] {
            answers.extend(urls.iter().map(|url| (url.clone(), (granted, now))));
        }
    }

    /// How many there are.
    pub(super) fn there(&mut self, listed: &Replicas, now: Instant) -> Counts {
        Counts {
            collectors: number(&listed.collectors, &mut self.collectors, now),
            learners: number(&listed.learners, &mut self.learners, now),
        }
    }
}

fn number(listed: &[String], answers: &mut Answers, now: Instant) -> u32 {
    answers.retain(|_, (_, since)| now.saturating_duration_since(*since) < LAG);
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

    fn counts(collectors: u32, learners: u32) -> Counts {
        Counts {
            collectors,
            learners,
        }
    }

    fn replicas(collectors: &[&str]) -> Replicas {
        Replicas {
            collectors: collectors.iter().map(ToString::to_string).collect(),
            ..Replicas::default()
        }
    }

    #[test]
    fn a_step_leads_to_what_is_wanted() {
        let step = |there, wanted| Step::between(there, wanted);
        assert_eq!(step(counts(2, 1), counts(2, 1)), None);
        assert_eq!(
            step(counts(2, 1), counts(4, 1)),
            Some(Step::More(counts(2, 0)))
        );
        assert_eq!(
            step(counts(4, 2), counts(1, 1)),
            Some(Step::Fewer(counts(3, 1)))
        );
        assert_eq!(
            step(counts(4, 1), counts(1, 2)),
            Some(Step::More(counts(0, 1)))
        );
    }

    #[test]
    fn what_was_answered_counts_until_the_list_must_know() {
        let (mut ledger, now) = (Ledger::default(), Instant::now());
        ledger.granted(&replicas(&["b", "c"]), now);
        let mut there = |listed: &[&str], now| ledger.there(&replicas(listed), now).collectors;
        assert_eq!(there(&["a"], now), 3);
        assert_eq!(there(&["a", "b"], now), 3, "none twice");
        assert_eq!(there(&["a"], now + LAG), 1, "they came to nothing");
        ledger.gone(&replicas(&["a"]), now);
        let mut there = |listed: &[&str], now| ledger.there(&replicas(listed), now).collectors;
        assert_eq!(there(&["a", "b"], now), 1);
        assert_eq!(there(&["a", "b"], now + LAG), 2, "it did not go");
    }
}
