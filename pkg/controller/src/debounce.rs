//! The debounce of status writes: when a status that differs from the stored one is written.

use std::time::{Duration, Instant};

use crate::status_change::StatusChange;

/// A status write that is not urgent waits until nothing has changed for this long. Pods come and
/// change in bursts.
pub(crate) const DEBOUNCE: Duration = Duration::from_millis(400);
/// Maximum delay of a debounced write after the first change.
const MAX_DELAY: Duration = Duration::from_millis(800);
/// Minimum interval of writes of a large plan that are not urgent: its status has up to a megabyte,
/// and etcd keeps every version for minutes. See docs/decisions/0003.
const LARGE_PLAN_INTERVAL: Duration = Duration::from_secs(1);

/// The status writes of one job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteSchedule {
    pending: Option<PendingWrite>,
    last_write: Option<Instant>,
}

/// A delayed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PendingWrite {
    /// Time of the first change.
    since: Instant,
    /// Time of the write if nothing else changes.
    due: Instant,
}

impl WriteSchedule {
    /// Returns true if a write is delayed.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Drops the delayed write: the status does not differ any more.
    pub fn clear(&mut self) {
        self.pending = None;
    }

    /// Records a write.
    pub fn record_write(&mut self, now: Instant) {
        *self = Self {
            pending: None,
            last_write: Some(now),
        };
    }

    /// Returns how long the write of a change waits, so that a burst of pod changes becomes one
    /// write. `None` if the status is written now.
    ///
    /// A reconcile before the time of a pending write means that something else has changed, so
    /// it extends the wait.
    pub fn delay(
        &mut self,
        change: StatusChange,
        is_large_plan: bool,
        now: Instant,
    ) -> Option<Duration> {
        let since = self.pending.map_or(now, |pending| pending.since);
        let due = match (change, self.pending) {
            (StatusChange::Minor, Some(pending)) if pending.due <= now => pending.due,
            (StatusChange::Minor, _) => {
                let due = (now + DEBOUNCE).min(since + MAX_DELAY);
                let interval = LARGE_PLAN_INTERVAL * u32::from(is_large_plan);
                due.max(since + interval)
            }
            (StatusChange::Plan, _) if is_large_plan => self.last_write? + LARGE_PLAN_INTERVAL,
            _ => return None,
        };
        self.pending = Some(PendingWrite { since, due });
        let delay = due.checked_duration_since(now);
        delay.filter(|delay| !delay.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_of_changes_is_written_after_quiet_or_max_delay() {
        let start = Instant::now();
        // Reconciles, in milliseconds. Each waits for quiet; one at or after `due` finds it due.
        for (reconciles, is_large_plan, due) in [
            (&[0][..], false, 400),
            (&[0, 400], false, 400),
            (&[0, 410, 420], false, 400),
            (&[0, 399], false, 799),
            (&[0, 300, 600, 790], false, 800),
            (&[0, 300, 600, 800, 801], false, 800),
            (&[0], true, 1000),
            (&[0, 300, 900], true, 1000),
        ] {
            let after = |ms| start + Duration::from_millis(ms);
            let mut schedule = WriteSchedule::default();
            for at in reconciles {
                let delay = schedule.delay(StatusChange::Minor, is_large_plan, after(*at));
                assert_eq!(delay.is_none(), *at >= due, "{reconciles:?} at {at}");
            }
            let expected = PendingWrite {
                since: start,
                due: after(due),
            };
            assert_eq!(schedule.pending, Some(expected), "{reconciles:?}");
            schedule.record_write(after(due));
            assert!(!schedule.is_pending());
        }
    }

    #[test]
    fn changes_of_large_plan_are_written_once_a_second() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut schedule = WriteSchedule::default();
        let plan = StatusChange::Plan;
        assert_eq!(schedule.delay(plan, true, start), None, "the first");
        schedule.record_write(start);
        let rest = Some(Duration::from_millis(700));
        assert_eq!(schedule.delay(plan, true, after(300)), rest);
        assert!(schedule.is_pending());
        assert_eq!(schedule.delay(plan, false, after(300)), None);
        assert_eq!(schedule.delay(StatusChange::Urgent, true, after(300)), None);
        assert_eq!(schedule.delay(plan, true, after(1000)), None);
    }
}
