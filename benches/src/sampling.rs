//! B15: double-buffered sampling in a slow environment, beside what it replaces.

use std::{
    hint::spin_loop,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use di_runtime::{
    game::{Ending, Game},
    policy::Policy,
    sampler::{Maker, Pipeline, Play, Sampler, gymnasium},
    sampling::Sampling,
};
use rand::{SeedableRng, rngs::StdRng};

use crate::{
    scale::Scale,
    stats::{At, Findings, Limit},
};

const STEP: Duration = Duration::from_micros(100);
const TWO: &str = "two splits";
const ONE: &str = "one split";

/// Runs it.
pub fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let at = At {
        benchmark: "B15",
        what: "frames played in a second",
        unit: "1/s",
        case: "two environments, 100 µs a step".to_owned(),
        x: 2,
    };
    let threads = |splits| Sampling {
        worker_num_splits: splits,
        serial_mode: Some(false),
        ..Sampling::default()
    };
    let policy = Policy::random(Game::CartPole, &mut StdRng::seed_from_u64(0));
    let subjects = [
        (TWO, threads(2)),
        (ONE, threads(1)),
        ("one thread", Sampling::default()),
    ];
    for repetition in 0..=scale.repetitions {
        for (subject, sampling) in &subjects {
            let mut sampler = Pipeline::with(sampling.clone(), slow())?;
            let began = Instant::now();
            sampler.collect(&policy, scale.slow_frames, 0)?;
            let took = began.elapsed().as_secs_f64();
            if repetition > 0 {
                #[allow(clippy::cast_precision_loss)]
                found.add(&at, subject, scale.slow_frames as f64 / took);
            }
        }
    }
    found.compare(&at, TWO, ONE, Limit::AtLeast(1.2));
    Ok(())
}

/// An environment of Gymnasium whose steps take their time.
struct Slow(Box<dyn Play>);

fn slow() -> Maker {
    let quick = gymnasium();
    Arc::new(move |game, rng| Box::new(Slow(quick(game, rng))))
}

impl Play for Slow {
    fn reset(&mut self, rng: &mut StdRng) {
        self.0.reset(rng);
    }

    fn observe(&self, seen: &mut [f32]) {
        self.0.observe(seen);
    }

    fn step(&mut self, action: u8) -> (f64, Option<Ending>) {
        let end = Instant::now() + STEP;
        let stepped = self.0.step(action);
        while Instant::now() < end {
            spin_loop();
        }
        stepped
    }

    fn total(&self) -> f64 {
        self.0.total()
    }
}
