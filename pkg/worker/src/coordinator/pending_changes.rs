//! The number of present replicas, from the endpoint's list and from its last responses, which the
//! list may not show yet. Pure: time is an argument.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use crate::{coordinator::counts::Counts, protocol::wire::Replicas};

/// Maximum delay of the list: it shows a new replica 2 s after it was planned.
pub(super) const LIST_DELAY: Duration = Duration::from_secs(5);

/// The next request to the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Add replicas.
    More(Counts),
    /// Remove replicas.
    Fewer(Counts),
}

impl Step {
    /// The step from the present to the wanted counts; additions come first.
    pub(super) fn next_step(present: Counts, wanted: Counts) -> Option<Self> {
        let above = |of: Counts, than: Counts| {
            let counts = Counts {
                collectors: of.collectors.saturating_sub(than.collectors),
                learners: of.learners.saturating_sub(than.learners),
            };
            (counts != Counts::default()).then_some(counts)
        };
        let more = above(wanted, present).map(Self::More);
        more.or_else(|| above(present, wanted).map(Self::Fewer))
    }
}

/// Responses that the list may not show yet.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    collectors: Answers,
    learners: Answers,
}

/// By URL: whether it was granted or removed, and when.
type Answers = HashMap<String, (bool, Instant)>;

impl PendingChanges {
    /// Records granted replicas.
    pub(super) fn record_granted(&mut self, replicas: &Replicas, now: Instant) {
        self.record_answer(replicas, true, now);
    }

    /// Records removed replicas.
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

    /// Counts the present replicas.
    pub(super) fn count_replicas(&mut self, listed: &Replicas, now: Instant) -> Counts {
        Counts {
            collectors: count_role(&listed.collectors, &mut self.collectors, now),
            learners: count_role(&listed.learners, &mut self.learners, now),
        }
    }
}

fn count_role(listed: &[String], answers: &mut Answers, now: Instant) -> u32 {
    answers.retain(|_, (_, since)| now.saturating_duration_since(*since) < LIST_DELAY);
    let mut present: HashSet<_> = listed.iter().collect();
    for (url, (granted, _)) in answers.iter() {
        if *granted {
            present.insert(url);
        } else {
            present.remove(url);
        }
    }
    u32::try_from(present.len()).unwrap_or(u32::MAX)
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
        let step = |present, wanted| Step::next_step(present, wanted);
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
        let mut present =
            |listed: &[&str], now| ledger.count_replicas(&replicas_of(listed), now).collectors;
        assert_eq!(present(&["a"], now), 3);
        assert_eq!(present(&["a", "b"], now), 3, "no replica is counted twice");
        assert_eq!(
            present(&["a"], now + LIST_DELAY),
            1,
            "the granted replicas are not listed"
        );
        ledger.record_removed(&replicas_of(&["a"]), now);
        let mut present =
            |listed: &[&str], now| ledger.count_replicas(&replicas_of(listed), now).collectors;
        assert_eq!(present(&["a", "b"], now), 1);
        assert_eq!(
            present(&["a", "b"], now + LIST_DELAY),
            2,
            "the removed replica is still listed"
        );
    }
}
