//! One log that is read on, also where its stream breaks off while the container goes on.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
    mem,
    time::{Duration, Instant},
};

/// One run of a container: UID of its pod, its name and restart count.
pub(super) type Run = (String, String, i32);

/// A log that is read, or was until its stream ended.
pub(super) struct Reading {
    pub run: Run,
    pub pod: String,
    pub container: String,
    /// When its stream was opened.
    pub opened: Instant,
    /// Until when everything was read, as far as that is known.
    pub until: Instant,
    /// How often in a row a stream brought nothing and soon ended.
    pub fruitless: u32,
    said: Said,
}

/// A stream that lasted as long was well.
const LASTED: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A stream has brought what was written before it was opened within this time.
const CATCHES_UP: Duration = Duration::from_secs(2);
/// Another stream is to begin so long before the end of what was read: the clocks of both sides, and what is on its way.
pub(super) const MARGIN: Duration = Duration::from_secs(2);
/// It begins as much earlier, as whole seconds are asked for.
const ROUNDED: Duration = Duration::from_secs(1);

impl Reading {
    pub fn new(run: Run, pod: String, container: String) -> Self {
        let now = Instant::now();
        Self {
            run,
            pod,
            container,
            opened: now,
            until: now,
            fruitless: 0,
            said: Said::default(),
        }
    }

    /// Whether a line was not read before.
    pub fn is_new(&mut self, line: &[u8]) -> bool {
        let now = Instant::now();
        let new = self.said.is_new(line, now);
        if new {
            self.fruitless = 0;
            if now > self.opened + CATCHES_UP {
                self.until = now;
            }
        }
        new
    }

    /// Makes ready for another stream, and returns how long to wait for it.
    pub fn again(&mut self) -> Duration {
        if self.opened.elapsed() > LASTED {
            self.fruitless = 0;
            self.until = Instant::now();
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.fruitless.min(8));
        self.fruitless += 1;
        self.said.again(self.until);
        pause.min(LONGEST_PAUSE)
    }
}

/// How many lines are remembered.
const MOST: usize = 10_000;

/// The last lines and when they came, by which those are known that another stream brings again.
#[derive(Default)]
struct Said {
    last: VecDeque<(u64, Instant)>,
    replay: Replay,
}

#[derive(Default)]
enum Replay {
    /// All that comes is new.
    #[default]
    Over,
    /// Nothing came yet.
    Begins,
    /// These are what comes next, if it came before.
    Goes(VecDeque<u64>),
}

impl Said {
    /// Another stream begins shortly before this time. What came earlier does not come again: a line like it is a new one.
    fn again(&mut self, until: Instant) {
        let comes_again = |came: Instant| came + MARGIN + ROUNDED >= until;
        self.last.retain(|(_, came)| comes_again(*came));
        self.replay = Replay::Begins;
    }

    fn is_new(&mut self, line: &[u8], now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        let line = hasher.finish();
        match mem::take(&mut self.replay) {
            Replay::Begins => {
                if let Some(at) = self.last.iter().position(|(said, _)| *said == line) {
                    let next = self.last.range(at + 1..).map(|(said, _)| *said).collect();
                    self.replay = Replay::Goes(next);
                    return false;
                }
            }
            Replay::Goes(mut next) => {
                if next.pop_front() == Some(line) {
                    self.replay = Replay::Goes(next);
                    return false;
                }
            }
            Replay::Over => {}
        }
        if self.last.len() == MOST {
            self.last.pop_front();
        }
        self.last.push_back((line, now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new<'a>(said: &mut Said, lines: &[&'a str], now: Instant) -> Vec<&'a str> {
        let lines = lines.iter().copied();
        lines
            .filter(|line| said.is_new(line.as_bytes(), now))
            .collect()
    }

    #[test]
    fn no_line_comes_twice_and_none_is_lost() {
        let mut said = Said::default();
        let now = Instant::now();
        let mut new = |lines| {
            let new = new(&mut said, lines, now);
            said.again(now);
            new
        };
        assert_eq!(new(&["a", "b", "b", "c"]), ["a", "b", "b", "c"]);
        assert_eq!(new(&["b", "b", "c", "d", "b"]), ["d", "b"]);
        assert_eq!(new(&["e", "a"]), ["e", "a"], "nothing again");
        assert_eq!(new(&["a"]), [""; 0]);
        assert_eq!(new(&["d", "f"]), ["f"], "another way on");
    }

    #[test]
    fn what_is_said_again_and_again_is_new_where_the_old_cannot_come() {
        let mut said = Said::default();
        let mut now = Instant::now();
        for _ in 0..1_000 {
            assert_eq!(new(&mut said, &["alive"], now), ["alive"]);
            now += Duration::from_secs(1);
        }
        said.again(now);
        let alive = ["alive"; 100];
        let swallowed = 100 - new(&mut said, &alive, now).len();
        assert!((2..=4).contains(&swallowed), "{swallowed} come again");
    }

    #[test]
    fn tries_that_fail_leave_until_when_all_was_read() {
        let run = ("u".to_owned(), "c".to_owned(), 0);
        let mut reading = Reading::new(run, "p".to_owned(), "c".to_owned());
        let until = reading.until;
        reading.again();
        assert!(reading.is_new(b"a"));
        reading.again();
        assert_eq!(reading.until, until);
    }

    #[test]
    fn pauses_grow_while_nothing_comes() {
        let run = ("u".to_owned(), "c".to_owned(), 0);
        let mut reading = Reading::new(run, "p".to_owned(), "c".to_owned());
        let pauses: Vec<_> = (0..6).map(|_| reading.again().as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 5000, 5000]);
        assert!(reading.is_new(b"a"));
        assert_eq!(reading.again(), FIRST_PAUSE);
    }
}
