//! B16: frames a second of one collector, compared with Sample Factory's sampler.

use std::{
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use di_python_tests::try_installed;
use di_worker_lib::{
    model::policy::Policy,
    sampler::{Pipeline, sampling::Sampling},
};
use rand::{SeedableRng, rngs::StdRng};

use crate::harness::{
    machine::{CLIENT_CORE, SERVER_CORE, pin_to},
    scale::Scale,
    stats::{At, Findings, Limit},
};

const OURS: &str = "di-worker";
const THEIRS: &str = "sample-factory";
const REQUIREMENTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/src/benchmarks/rate/requirements.txt"
);
const SCRIPT: &str = include_str!("rate/sample_factory.py");
/// As many rollout workers as there are cores, with both.
const WORKERS: usize = 2;
/// Environments of each, with both: with fewer Sample Factory is much slower.
const ENVIRONMENTS: usize = 256;
/// Frames of a task.
const FRAMES: usize = 32_768;
/// Seconds; far more than it takes.
const PATIENCE: &str = "300";

/// Runs it.
pub fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let python = try_installed(THEIRS, REQUIREMENTS)?.join("bin/python");
    // All threads and processes of both keep to as many cores.
    let measured = thread::scope(|threads| {
        let all = threads.spawn(|| {
            pin_to([SERVER_CORE, CLIENT_CORE])?;
            measure(&python, scale, found)
        });
        all.join()
    });
    measured.map_err(|_| anyhow!("the thread panicked"))?
}

fn measure(python: &Path, scale: &Scale, found: &mut Findings) -> Result<()> {
    // The width of di-worker's own layers, and of Sample Factory's where nothing else is said.
    for (hidden, target) in [(32, Some(Limit::AtLeast(5.0))), (512, None)] {
        let environments = WORKERS * ENVIRONMENTS;
        let at = At {
            benchmark: "B16",
            what: "frames played in a second, on two cores",
            unit: "1/s",
            case: format!("{environments} of CartPole-v1, two layers of {hidden}"),
            x: 0,
        };
        for _ in 0..scale.repetitions {
            found.add(&at, OURS, ours(hidden, scale)?);
            found.add(&at, THEIRS, theirs(python, hidden, scale)?);
        }
        if let Some(limit) = target {
            found.compare(&at, OURS, THEIRS, limit);
        }
    }
    Ok(())
}

/// The sampler of a collector, which does one task after the other.
fn ours(hidden: usize, scale: &Scale) -> Result<f64> {
    let sampling = Sampling {
        num_workers: WORKERS,
        num_envs_per_worker: ENVIRONMENTS,
        policy_workers_per_policy: WORKERS,
        batched_sampling: true,
        ..Sampling::default()
    };
    let policy = Policy::with_hidden_width(hidden, &mut StdRng::seed_from_u64(0));
    let mut sampler = Pipeline::new(sampling)?;
    let mut seed = 0;
    let mut rate = |time: Duration| -> Result<f64> {
        let (began, mut frames) = (Instant::now(), 0.0);
        while began.elapsed() < time {
            seed += 1;
            let rollout = sampler.collect(&policy, FRAMES, seed)?;
            let played = rollout
                .trajectories
                .iter()
                .map(|played| played.actions.len());
            #[allow(clippy::cast_precision_loss)]
            let played = played.sum::<usize>() as f64;
            frames += played;
        }
        Ok(frames / began.elapsed().as_secs_f64())
    };
    rate(scale.warm)?;
    rate(scale.sampled)
}

/// The same number of environments and the same network, with the flags that were the fastest.
fn theirs(python: &Path, hidden: usize, scale: &Scale) -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let times = [scale.warm, scale.sampled].map(|time| time.as_secs_f64().to_string());
    let sizes = [
        format!("--num_workers={WORKERS}"),
        format!("--num_envs_per_worker={ENVIRONMENTS}"),
    ];
    let width = hidden.to_string();
    let flags = [
        "--env=CartPole-v1",
        "--device=cpu",
        "--serial_mode=False",
        "--batched_sampling=True",
        "--use_rnn=False",
        "--nonlinearity=tanh",
        "--normalize_input=False",
        "--benchmark=True",
        "--log_to_file=False",
        "--encoder_mlp_layers",
        &width,
        &width,
    ];
    let output = Command::new("timeout")
        .arg(PATIENCE)
        .arg(python)
        .args(["-c", SCRIPT])
        .args(times)
        .args(sizes)
        .args(flags)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()?;
    ensure!(
        output.status.success(),
        "Sample Factory's sampler: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let output = String::from_utf8_lossy(&output.stdout);
    let rate = output.trim().parse();
    rate.with_context(|| format!("Sample Factory's sampler printed {output:?}"))
}
