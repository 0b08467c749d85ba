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
    /// How often in a row a stream brought nothing and soon ended.
    pub fruitless: u32,
    said: Said,
}

/// A stream that lasted as long was well.
const LASTED: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Reading {
    pub fn new(run: Run, pod: String, container: String) -> Self {
        Self {
            run,
            pod,
            container,
            opened: Instant::now(),
            fruitless: 0,
            said: Said::default(),
        }
    }

    /// Whether a line was not read before.
    pub fn is_new(&mut self, line: &[u8]) -> bool {
        let new = self.said.is_new(line);
        if new {
            self.fruitless = 0;
        }
        new
    }

    /// Makes ready for another stream, and returns how long to wait for it.
    pub fn again(&mut self) -> Duration {
        if self.opened.elapsed() > LASTED {
            self.fruitless = 0;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.fruitless.min(8));
        self.fruitless += 1;
        self.said.again();
        pause.min(LONGEST_PAUSE)
    }
}

/// How many lines are remembered.
const MOST: usize = 10_000;

/// The last lines, by which those are known that another stream brings again.
#[derive(Default)]
struct Said {
    last: VecDeque<u64>,
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
    fn again(&mut self) {
        self.replay = Replay::Begins;
    }

    fn is_new(&mut self, line: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        let line = hasher.finish();
        match mem::take(&mut self.replay) {
            Replay::Begins => {
                if let Some(at) = self.last.iter().position(|said| *said == line) {
                    let next = self.last.range(at + 1..).copied().collect();
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
        self.last.push_back(line);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new<'a>(said: &mut Said, lines: &[&'a str]) -> Vec<&'a str> {
        let lines = lines.iter().copied();
        lines.filter(|line| said.is_new(line.as_bytes())).collect()
    }

    #[test]
    fn no_line_comes_twice_and_none_is_lost() {
        let mut said = Said::default();
        assert_eq!(new(&mut said, &["a", "b", "b", "c"]), ["a", "b", "b", "c"]);
        said.again();
        assert_eq!(new(&mut said, &["b", "b", "c", "d", "b"]), ["d", "b"]);
        said.again();
        assert_eq!(new(&mut said, &["e", "a"]), ["e", "a"], "nothing again");
        said.again();
        assert_eq!(new(&mut said, &["a"]), [""; 0]);
        said.again();
        assert_eq!(new(&mut said, &["d", "f"]), ["f"], "another way on");
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
