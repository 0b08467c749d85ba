//! Compares the environments with Gymnasium's, step by step.

#![allow(clippy::unwrap_used, reason = "a test may end by a panic")]

use std::{process::Command, str::SplitWhitespace};

use di_python_tests::{installed, run};
use di_worker_lib::environment::{Acrobot, CartPole, Ending, Episode, World};

const REQUIREMENTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/gymnasium/requirements.txt"
);
const PLAY: &str = include_str!("play.py");

/// A world that can be set to any state.
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

exact!(CartPole, Acrobot);

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

/// Tolerated difference of states, relative to states above 1.
#[derive(Clone, Copy)]
struct Tolerance {
    /// After one step from the same state; in at most 1 % of the steps.
    step: f64,
    /// Anywhere in an episode with the same first state.
    episode: f64,
}

/// All operations are the same, in the same order.
const EXACT: Tolerance = Tolerance {
    step: 0.0,
    episode: 0.0,
};

/// Gymnasium squares velocities with the C library's pow, which may differ in the last bit. Acrobot
/// is chaotic: one bit grows to about 1e-12 in an episode. A constant with a wrong tenth digit
/// gives more than 1e-9.
const SQUARED: Tolerance = Tolerance {
    step: 4.0 * f64::EPSILON,
    episode: 1e-9,
};

#[test]
fn environments_match_gymnasium_step_by_step() {
    let python = installed("gymnasium", REQUIREMENTS).join("bin/python");
    let output = run(Command::new(python).args(["-c", PLAY]));
    let played = String::from_utf8(output.stdout).unwrap();
    let mut games = played.split("game ").skip(1);
    compare::<CartPole>(games.next().unwrap(), EXACT);
    compare::<Acrobot>(games.next().unwrap(), SQUARED);
    assert_eq!(games.next(), None);
}

fn close(ours: &[f64], theirs: &[f64], tolerance: f64) -> bool {
    let close =
        |(ours, theirs): (&f64, &f64)| (ours - theirs).abs() <= tolerance * theirs.abs().max(1.0);
    ours.iter().zip(theirs).all(close)
}

/// Replays Gymnasium's episodes twice: each step from Gymnasium's state, and whole episodes from
/// the first state.
fn compare<W: Exact + Clone>(played: &str, tolerance: Tolerance) {
    let (head, episodes) = played.split_once('\n').unwrap();
    let mut words = Words(head.split_whitespace());
    let (name, rules) = (W::RULES.name, W::RULES);
    assert_eq!(words.text(), name);
    assert_eq!(words.number(), rules.actions, "{name}");
    assert_eq!(words.number(), rules.max_steps as usize, "{name}");
    assert_eq!(words.doubles(), [rules.threshold], "{name}");

    let (mut steps, mut inexact, mut farthest) = (0, 0, 0.0_f64);
    // Index 1: the episode began as Gymnasium's do.
    let (mut terminations, mut truncations) = ([0, 0], [0, 0]);
    for (number, lines) in episodes.split("start ").skip(1).enumerate() {
        let mut lines = lines.lines();
        let mut words = Words(lines.next().unwrap().split_whitespace());
        let mut episode = Episode::new(W::of(&words.doubles()));
        let mut free = episode.clone();
        let seen = words.observation();
        let usual = usize::from(seen.is_some());
        if let Some(seen) = seen {
            let ours = episode.world.current_observation();
            // NumPy's sine in single precision is not correctly rounded.
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
            let action = u8::try_from(words.number()).unwrap();
            let (reward, ending) = episode.step(action);
            assert_eq!(free.step(action), (reward, ending), "{place}");
            let theirs = words.doubles();
            let ours = episode.world.state();
            assert!(
                close(ours, &theirs, tolerance.step),
                "{place}: {ours:?} is not {theirs:?}"
            );
            inexact += usize::from(ours != theirs);
            let ours = free.world.state();
            assert!(
                close(ours, &theirs, tolerance.episode),
                "{place}: {ours:?} differs from {theirs:?}"
            );
            let apart = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs());
            farthest = apart.fold(farthest, f64::max);
            episode.world = W::of(&theirs);
            let seen = words.observation().unwrap();
            assert_eq!(
                episode.world.current_observation().as_ref(),
                seen,
                "{place}"
            );
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
            Some(Ending::Terminated) => terminations[usual] += 1,
            Some(Ending::Truncated) => truncations[usual] += 1,
            None => panic!("{name}, episode {number}: no end"),
        }
    }
    println!(
        "{name}: {steps} steps, {inexact} inexact, {farthest:e} apart, {terminations:?} terminations, {truncations:?} truncations"
    );
    assert!(terminations[1] > 0 && truncations[1] > 0, "{name}");
    assert!(100 * inexact <= steps, "{name}: {inexact} of {steps}");
}
