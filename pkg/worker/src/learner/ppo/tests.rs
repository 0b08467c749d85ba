use rand::{SeedableRng, rngs::StdRng};

use super::*;
use crate::{
    learner::{advantage::Sample, ppo::process_group::SingleProcess},
    sampler::{pipeline::Pipeline, sampling::Sampling},
};

fn sample(action: u8, log_probability: f64, advantage: f64) -> Sample {
    Sample {
        observation: [0.3, -0.4, 0.05, 0.6].into(),
        action,
        log_probability,
        advantage,
        target: 0.8,
    }
}

const OBJECTIVE: Objective = Objective {
    clip: 0.2,
    entropy: 0.3,
};

#[test]
fn gradient_matches_finite_differences() {
    let mut policy = Policy::random(&mut StdRng::seed_from_u64(3));
    let parameters = policy.parameters().len();
    // Inside the clip range, outside with zero gradient, and outside with a gradient.
    let samples = [
        sample(0, -0.7, 1.4),
        sample(1, -0.7, -0.9),
        sample(1, -1.5, 0.7),
        sample(0, -1.5, -0.7),
    ];
    let samples: Vec<_> = samples.iter().collect();
    let all = batch_gradient(&policy, &samples, OBJECTIVE).unwrap();
    for index in (0..parameters).step_by(37) {
        let mut shifted = |by: f64| {
            let old = policy.parameters()[index];
            policy.parameters_mut()[index] = old + by;
            let all = batch_gradient(&policy, &samples, OBJECTIVE).unwrap();
            policy.parameters_mut()[index] = old;
            let [policy, value, entropy] = all[parameters..] else {
                panic!("other losses");
            };
            policy + value - OBJECTIVE.entropy * entropy
        };
        let numeric = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
        assert!(
            (numeric - all[index]).abs() < 1e-8,
            "{index}: {numeric} is not {}",
            all[index]
        );
    }
}

#[test]
fn shard_gradients_sum_to_batch_gradient() {
    let policy = Policy::random(&mut StdRng::seed_from_u64(3));
    let samples = [sample(0, -0.7, 1.4), sample(1, -0.7, -0.9)];
    let of = |part: &[&Sample]| batch_gradient(&policy, part, OBJECTIVE).unwrap();
    let [one, other] = &samples;
    let whole = of(&[one, other]);
    let parts = [of(&[one]), of(&[other]), of(&[])];
    for (index, number) in whole.iter().enumerate() {
        let sum: f64 = parts.iter().map(|part| part[index]).sum();
        assert!(
            (sum - number).abs() < 1e-12,
            "{index}: {sum} is not {number}"
        );
    }
}

#[test]
fn long_gradients_are_clipped() {
    let mut long = [6.0, 8.0];
    rescale_gradient(&mut long, 2, 0.5);
    assert!((long[0] - 0.3).abs() < 1e-12 && (long[1] - 0.4).abs() < 1e-12);
    let mut short = [0.06, 0.08];
    rescale_gradient(&mut short, 2, 0.5);
    assert!((short[0] - 0.03).abs() < 1e-12 && (short[1] - 0.04).abs() < 1e-12);
}

#[test]
fn non_finite_gradient_is_reported_as_diverged() {
    let mut rng = StdRng::seed_from_u64(3);
    let mut policy = Policy::random(&mut rng);
    let mut pipeline = Pipeline::new(Sampling::default()).unwrap();
    let played = pipeline.collect(&policy, 64, 1).unwrap();
    let settings = Settings {
        learning_rate: 1e300,
        ..Settings::default()
    };
    let step = Step {
        trajectories: &played.trajectories,
        settings: &settings,
        progress: 0.0,
    };
    let mut adam = Adam::new(policy.parameters().len());
    let learned = update_policy(&mut policy, &mut adam, step, &mut rng, &mut SingleProcess);
    assert!(matches!(learned, Err(Error::Diverged)), "{learned:?}");
}

#[test]
fn settings_are_parsed_and_validated() {
    let read = |json: &str| serde_json::from_str::<Settings>(json);
    assert_eq!(read("{}").unwrap(), Settings::default());
    assert_eq!(read(r#"{"num_epochs": 3}"#).unwrap().num_epochs, 3);
    assert!(read(r#"{"epochs": 3}"#).is_err(), "no such field");
    assert!(Settings::default().check().is_ok());
    for wrong in [
        r#"{"batch_size": 0}"#,
        r#"{"num_batches_per_epoch": 0}"#,
        r#"{"num_epochs": 0}"#,
        r#"{"clip": 0}"#,
        r#"{"discount": 1.5}"#,
        r#"{"learning_rate": -1}"#,
    ] {
        let settings = read(wrong).unwrap();
        assert!(
            matches!(settings.check(), Err(Error::BadConfig(_))),
            "{wrong}"
        );
    }
}
