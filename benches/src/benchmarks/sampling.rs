//! B15: double-buffered sampling in a slow environment, compared with one split.

use std::{
    hint::spin_loop,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use di_worker_lib::{
    environment::{Ending, EnvFactory, EnvInstance, cartpole_factory},
    model::policy::Policy,
    sampler::{Pipeline, sampling::Sampling},
};
use rand::{SeedableRng, rngs::StdRng};

use crate::harness::{
    scale::Scale,
    stats::{At, Findings, Limit},
};

const STEP: Duration = Duration::from_micros(100);
const TWO: &str = "two splits";
const ONE: &str = "one split";
const SERIAL: &str = "one thread";

/// Runs it.
pub fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    // The width of di-worker's own layers, and of Sample Factory's where nothing else is said.
    for (hidden, target) in [(32, None), (512, Some(Limit::AtLeast(1.2)))] {
        let at = At {
            benchmark: "B15",
            what: "frames played in a second",
            unit: "1/s",
            case: format!("100 µs a step, two layers of {hidden}"),
            x: 0,
        };
        let policy = Policy::with_hidden_width(hidden, &mut StdRng::seed_from_u64(0));
        for repetition in 0..=scale.repetitions {
            for (subject, sampling) in [
                (TWO, threads(2)),
                (ONE, threads(1)),
                (SERIAL, Sampling::default()),
            ] {
                let mut sampler = Pipeline::with_factory(sampling, slow())?;
                let began = Instant::now();
                sampler.collect(&policy, scale.slow_frames, 0)?;
                let took = began.elapsed().as_secs_f64();
                if repetition > 0 {
                    #[allow(clippy::cast_precision_loss)]
                    found.add(&at, subject, scale.slow_frames as f64 / took);
                }
            }
        }
        if let Some(limit) = target {
            found.compare(&at, TWO, ONE, limit);
        }
    }
    Ok(())
}

/// Two environments in this number of splits.
fn threads(splits: usize) -> Sampling {
    Sampling {
        worker_num_splits: splits,
        serial_mode: Some(false),
        ..Sampling::default()
    }
}

/// An environment of Gymnasium whose steps take their time.
struct Slow(Box<dyn EnvInstance>);

fn slow() -> EnvFactory {
    let quick = cartpole_factory();
    Arc::new(move |rng| Box::new(Slow(quick(rng))))
}

impl EnvInstance for Slow {
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

    fn total_reward(&self) -> f64 {
        self.0.total_reward()
    }
}
