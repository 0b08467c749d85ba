//! The position in a followed log, which continues after its stream breaks.
//!
//! Kubernetes cannot resume a log at a line, so a new stream overlaps the old one. The cursor drops
//! the repeated lines.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
    mem,
    time::{Duration, Instant},
};

/// One run of a container: UID of its pod, its name and restart count.
pub(super) type Run = (String, String, i32);

/// The read position in the log of one run.
pub(super) struct LogCursor {
    pub run: Run,
    pub pod: String,
    pub container: String,
    /// Time at which the stream was opened.
    pub opened: Instant,
    /// Time until which all lines are known to be read.
    pub read_until: Instant,
    /// Consecutive streams that soon ended without a new line.
    pub failed_attempts: u32,
    seen_lines: SeenLines,
}

/// A stream that lasted this long was healthy.
const STABLE_AFTER: Duration = Duration::from_secs(10);
const MIN_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Time within which a new stream has delivered the older lines.
const CATCH_UP_TIME: Duration = Duration::from_secs(2);
/// Overlap of two streams, for clock differences and lines in flight.
pub(super) const OVERLAP: Duration = Duration::from_secs(2);
/// Additional overlap, because the API takes whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);

impl LogCursor {
    pub fn new(run: Run, pod: String, container: String) -> Self {
        let now = Instant::now();
        Self {
            run,
            pod,
            container,
            opened: now,
            read_until: now,
            failed_attempts: 0,
            seen_lines: SeenLines::default(),
        }
    }

    /// Whether a line is new.
    pub fn is_new(&mut self, line: &[u8]) -> bool {
        let now = Instant::now();
        let new = self.seen_lines.is_new(line, now);
        if new {
            self.failed_attempts = 0;
            if now > self.opened + CATCH_UP_TIME {
                self.read_until = now;
            }
        }
        new
    }

    /// Prepares for a new stream and returns the pause before it is opened.
    pub fn prepare_reopen(&mut self) -> Duration {
        if self.opened.elapsed() > STABLE_AFTER {
            self.failed_attempts = 0;
            self.read_until = Instant::now();
        }
        let pause = MIN_PAUSE.saturating_mul(1 << self.failed_attempts.min(8));
        self.failed_attempts += 1;
        self.seen_lines.prepare_replay(self.read_until);
        pause.min(MAX_PAUSE)
    }
}

/// Number of remembered lines.
const MAX_REMEMBERED_LINES: usize = 10_000;

/// Hashes and times of the last lines, used to recognize repeated lines.
#[derive(Default)]
struct SeenLines {
    last: VecDeque<(u64, Instant)>,
    replay: Replay,
}

#[derive(Default)]
enum Replay {
    /// All lines are new.
    #[default]
    None,
    /// The new stream has no line yet.
    Starting,
    /// The lines that a repetition would continue with.
    Active(VecDeque<u64>),
}

impl SeenLines {
    /// Prepares for a stream that starts shortly before `read_until`. Older lines are forgotten:
    /// the
    /// stream cannot repeat them, so an equal line is new.
    fn prepare_replay(&mut self, read_until: Instant) {
        let may_repeat = |came: Instant| came + OVERLAP + ROUNDING >= read_until;
        self.last.retain(|(_, came)| may_repeat(*came));
        self.replay = Replay::Starting;
    }

    fn is_new(&mut self, line: &[u8], now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        let line = hasher.finish();
        match mem::take(&mut self.replay) {
            Replay::Starting => {
                if let Some(at) = self
                    .last
                    .iter()
                    .position(|(lines_seen, _)| *lines_seen == line)
                {
                    let next = self
                        .last
                        .range(at + 1..)
                        .map(|(lines_seen, _)| *lines_seen)
                        .collect();
                    self.replay = Replay::Active(next);
                    return false;
                }
            }
            Replay::Active(mut next) => {
                if next.pop_front() == Some(line) {
                    self.replay = Replay::Active(next);
                    return false;
                }
            }
            Replay::None => {}
        }
        if self.last.len() == MAX_REMEMBERED_LINES {
            self.last.pop_front();
        }
        self.last.push_back((line, now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_lines<'a>(lines_seen: &mut SeenLines, lines: &[&'a str], now: Instant) -> Vec<&'a str> {
        let lines = lines.iter().copied();
        lines
            .filter(|line| lines_seen.is_new(line.as_bytes(), now))
            .collect()
    }

    #[test]
    fn overlapping_streams_yield_each_line_once() {
        let mut lines_seen = SeenLines::default();
        let now = Instant::now();
        let mut new = |lines| {
            let new = new_lines(&mut lines_seen, lines, now);
            lines_seen.prepare_replay(now);
            new
        };
        assert_eq!(new(&["a", "b", "b", "c"]), ["a", "b", "b", "c"]);
        assert_eq!(new(&["b", "b", "c", "d", "b"]), ["d", "b"]);
        assert_eq!(new(&["e", "a"]), ["e", "a"], "no repeated line");
        assert_eq!(new(&["a"]), [""; 0]);
        assert_eq!(new(&["d", "f"]), ["f"], "different continuation");
    }

    #[test]
    fn equal_lines_outside_overlap_are_new() {
        let mut lines_seen = SeenLines::default();
        let mut now = Instant::now();
        for _ in 0..1_000 {
            assert_eq!(new_lines(&mut lines_seen, &["alive"], now), ["alive"]);
            now += Duration::from_secs(1);
        }
        lines_seen.prepare_replay(now);
        let alive = ["alive"; 100];
        let dropped = 100 - new_lines(&mut lines_seen, &alive, now).len();
        assert!((2..=4).contains(&dropped), "{dropped} lines were dropped");
    }

    #[test]
    fn failed_attempts_keep_read_until() {
        let run = ("u".to_owned(), "c".to_owned(), 0);
        let mut cursor = LogCursor::new(run, "p".to_owned(), "c".to_owned());
        let read_until = cursor.read_until;
        cursor.prepare_reopen();
        assert!(cursor.is_new(b"a"));
        cursor.prepare_reopen();
        assert_eq!(cursor.read_until, read_until);
    }

    #[test]
    fn pauses_grow_without_new_lines() {
        let run = ("u".to_owned(), "c".to_owned(), 0);
        let mut cursor = LogCursor::new(run, "p".to_owned(), "c".to_owned());
        let pauses: Vec<_> = (0..6)
            .map(|_| cursor.prepare_reopen().as_millis())
            .collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 5000, 5000]);
        assert!(cursor.is_new(b"a"));
        assert_eq!(cursor.prepare_reopen(), MIN_PAUSE);
    }
}
