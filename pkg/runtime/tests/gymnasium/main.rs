//! The environments beside Gymnasium's own, step by step.

#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

use std::{process::Command, str::SplitWhitespace};

use di_python_tests::{installed, run};
use di_runtime::game::{Acrobot, CartPole, Ending, Episode, MountainCar, World};

const REQUIREMENTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/gymnasium/requirements.txt"
);
const PLAY: &str = include_str!("play.py");

/// A world that can be put into any state.
trait Exact: World {
    fn of(state: &[f64]) -> Self;
    fn state(&self) -> &[f64];
}

macro_rules! exact {
    ($($world:ident),*) => {$(
        impl Exact for $world {
            fn of(state: &[f64]) -> Self {
                Self(state.try_into().unwrap())
            }

            fn state(&self) -> &[f64] {
                &self.0
            }
        }
    )*};
}

exact!(CartPole, Acrobot, MountainCar);

/// Words of a line of `play.py`, one after another.
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

    /// Unknown is `-`.
    fn observation(&mut self) -> Option<Vec<f32>> {
        let bits = Some(self.text()).filter(|text| *text != "-")?.split(',');
        Some(
            bits.map(|bits| f32::from_bits(u32::from_str_radix(bits, 16).unwrap()))
                .collect(),
        )
    }
}

#[test]
fn environments_are_gymnasiums_step_by_step() {
    let python = installed("gymnasium", REQUIREMENTS).join("bin/python");
    let output = run(Command::new(python).args(["-c", PLAY]));
    let played = String::from_utf8(output.stdout).unwrap();
    let mut games = played.split("game ").skip(1);
    compare::<CartPole>(games.next().unwrap(), 0.0);
    // Gymnasium squares velocities by the C library's pow, which now and then is off by a bit.
    compare::<Acrobot>(games.next().unwrap(), 4.0 * f64::EPSILON);
    compare::<MountainCar>(games.next().unwrap(), 0.0);
    assert_eq!(games.next(), None);
}

/// Makes each step of what Gymnasium played, from the state that Gymnasium was in. States may differ by so much, in at most one of a
/// hundred steps.
fn compare<W: Exact>(played: &str, tolerance: f64) {
    let (head, episodes) = played.split_once('\n').unwrap();
    let mut words = Words(head.split_whitespace());
    let (name, rules) = (W::RULES.name, W::RULES);
    assert_eq!(words.text(), name);
    assert_eq!(words.number(), rules.actions, "{name}");
    assert_eq!(words.number(), rules.max_steps as usize, "{name}");
    assert_eq!(words.doubles(), [rules.threshold], "{name}");

    let (mut terminations, mut truncations, mut steps, mut inexact) = (0, 0, 0, 0);
    for (number, lines) in episodes.split("start ").skip(1).enumerate() {
        let mut lines = lines.lines();
        let mut words = Words(lines.next().unwrap().split_whitespace());
        let mut episode = Episode::new(W::of(&words.doubles()));
        if let Some(seen) = words.observation() {
            let ours = episode.world.observation();
            // NumPy's sine of a number in single precision is not the best one.
            let close = |(ours, theirs): (&f32, &f32)| (ours - theirs).abs() <= f32::EPSILON;
            assert!(
                ours.as_ref().iter().zip(&seen).all(close),
                "{name} {seen:?}"
            );
        }
        let mut ended = None;
        for (step, line) in lines.enumerate() {
            let place = format!("{name}, episode {number}, step {step}");
            assert_eq!(ended, None, "{place}");
            let mut words = Words(line.strip_prefix("step").unwrap().split_whitespace());
            let (reward, ending) = episode.step(u8::try_from(words.number()).unwrap());
            let theirs = words.doubles();
            let ours = episode.world.state();
            let close = |(ours, theirs): (&f64, &f64)| {
                (ours - theirs).abs() <= tolerance * theirs.abs().max(1.0)
            };
            assert!(
                ours.iter().zip(&theirs).all(close),
                "{place}: {ours:?} is not {theirs:?}"
            );
            inexact += usize::from(ours != theirs);
            episode.world = W::of(&theirs);
            let seen = words.observation().unwrap();
            assert_eq!(episode.world.observation().as_ref(), seen, "{place}");
            assert_eq!(words.doubles(), [reward], "{place}");
            ended = match [words.number(), words.number()] {
                [0, 0] => None,
                [0, _] => Some(Ending::Truncated),
                _ => Some(Ending::Terminated),
            };
            assert_eq!(ending, ended, "{place}");
            steps += 1;
        }
        match ended {
            Some(Ending::Terminated) => terminations += 1,
            Some(Ending::Truncated) => truncations += 1,
            None => panic!("{name}, episode {number}: no end"),
        }
    }
    println!(
        "{name}: {steps} steps, {inexact} inexact, {terminations} terminations, {truncations} truncations"
    );
    assert!(terminations > 0 && truncations > 0, "{name}");
    assert!(100 * inexact <= steps, "{name}: {inexact} of {steps}");
}
