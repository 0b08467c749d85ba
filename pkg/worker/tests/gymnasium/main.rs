//! Compares the environments with Gymnasium's, step by step.

#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

use std::{process::Command, str::SplitWhitespace};

use di_python_tests::{installed, run};
use di_worker_lib::environment::{
    ACTIONS, CartPole, Ending, EnvInstance, MAX_STEPS, OBSERVATION_SIZE, THRESHOLD,
};

const REQUIREMENTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/gymnasium/requirements.txt"
);
const PLAY: &str = include_str!("play.py");

/// The words of a line of `play.py`.
struct Words<'a>(SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn text(&mut self) -> &'a str {
        self.0.next().unwrap()
    }

    fn number(&mut self) -> usize {
        self.text().parse().unwrap()
    }

    fn doubles(&mut self) -> Vec<f64> {
        let bits = self.text().split(',');
        bits.map(|bits| f64::from_bits(u64::from_str_radix(bits, 16).unwrap()))
            .collect()
    }

    /// `-` means no observation.
    fn observation(&mut self) -> Option<Vec<f32>> {
        let bits = Some(self.text()).filter(|text| *text != "-")?.split(',');
        Some(
            bits.map(|bits| f32::from_bits(u32::from_str_radix(bits, 16).unwrap()))
                .collect(),
        )
    }
}

/// The observation of an environment.
fn observation(of: &CartPole) -> [f32; OBSERVATION_SIZE] {
    let mut seen = [0.0; OBSERVATION_SIZE];
    of.observe(&mut seen);
    seen
}

/// Replays Gymnasium's episodes from their first state. All operations are the same, in the same
/// order, so the states are equal.
#[test]
fn environment_matches_gymnasium_step_by_step() {
    let python = installed("gymnasium", REQUIREMENTS).join("bin/python");
    let output = run(Command::new(python).args(["-c", PLAY]));
    let played = String::from_utf8(output.stdout).unwrap();
    let (head, episodes) = played.split_once('\n').unwrap();
    let mut words = Words(head.split_whitespace());
    assert_eq!((words.text(), words.text()), ("game", "CartPole-v1"));
    assert_eq!(words.number(), ACTIONS);
    assert_eq!(words.number(), MAX_STEPS as usize);
    assert_eq!(words.doubles(), [THRESHOLD]);

    let (mut terminations, mut truncations) = (0, 0);
    for (number, lines) in episodes.split("start ").skip(1).enumerate() {
        let mut lines = lines.lines();
        let mut words = Words(lines.next().unwrap().split_whitespace());
        let mut episode = CartPole::new(words.doubles().try_into().unwrap());
        if let Some(seen) = words.observation() {
            assert_eq!(observation(&episode).as_slice(), seen, "episode {number}");
        }
        let mut ended = None;
        for (step, line) in lines.enumerate() {
            let place = format!("episode {number}, step {step}");
            assert_eq!(ended, None, "{place}");
            let mut words = Words(line.strip_prefix("step").unwrap().split_whitespace());
            let action = u8::try_from(words.number()).unwrap();
            let (reward, ending) = episode.step(action);
            assert_eq!(episode.state.as_slice(), words.doubles(), "{place}");
            let seen = words.observation().unwrap();
            assert_eq!(observation(&episode).as_slice(), seen, "{place}");
            assert_eq!(words.doubles(), [reward], "{place}");
            ended = match [words.number(), words.number()] {
                [0, 0] => None,
                [0, _] => Some(Ending::Truncated),
                _ => Some(Ending::Terminated),
            };
            assert_eq!(ending, ended, "{place}");
        }
        match ended {
            Some(Ending::Terminated) => terminations += 1,
            Some(Ending::Truncated) => truncations += 1,
            None => panic!("episode {number}: no end"),
        }
    }
    assert!(terminations > 0 && truncations > 0);
}
