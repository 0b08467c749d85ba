use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use proptest::{prelude::*, test_runner::Config};
use rand::{SeedableRng, rngs::StdRng};

use super::*;
use crate::{
    environment::{Ending, EnvFactory, EnvInstance, MAX_STEPS, OBSERVATION_SIZE, cartpole_factory},
    model::policy::Policy,
    sampler::sampling::Sampling,
};

fn new_policy() -> Policy {
    Policy::random(&mut StdRng::seed_from_u64(5))
}

fn new_pipeline(sampling: Sampling) -> Pipeline {
    Pipeline::new(sampling).unwrap()
}

/// One thread, one split and one trajectory buffer.
fn single_thread_sampling(environments: usize) -> Sampling {
    Sampling {
        num_envs_per_worker: environments,
        worker_num_splits: 1,
        rollout: 1 << 16,
        ..Sampling::default()
    }
}

fn threaded_sampling() -> Sampling {
    Sampling {
        num_workers: 2,
        num_envs_per_worker: 4,
        policy_workers_per_policy: 2,
        ..Sampling::default()
    }
}

#[test]
fn collect_returns_exactly_requested_frames() {
    let mut sampler = new_pipeline(Sampling::default());
    let rollout = sampler.collect(&new_policy(), 1301, 5).unwrap();
    let mut steps = 0;
    for trajectory in &rollout.trajectories {
        let length = trajectory.actions.len();
        let seen = (length + 1) * OBSERVATION_SIZE;
        assert_eq!(trajectory.observations.len(), seen);
        assert_eq!(trajectory.rewards.len(), length);
        assert_eq!(trajectory.log_probabilities.len(), length);
        steps += length;
    }
    assert_eq!(steps, 1301);
    assert!(!rollout.returns.is_empty());
}

#[test]
fn returns_are_sums_of_terminated_episodes() {
    let mut sampler = new_pipeline(threaded_sampling());
    let rollout = sampler.collect(&new_policy(), 900, 5).unwrap();
    let ended = rollout
        .trajectories
        .iter()
        .filter(|trajectory| trajectory.terminated);
    let sums = ended.map(|trajectory| f64::from(trajectory.rewards.iter().sum::<f32>()));
    assert_eq!(sums.collect::<Vec<_>>(), rollout.returns);
}

#[test]
fn same_seed_samples_same_frames() {
    for sampling in [Sampling::default(), threaded_sampling()] {
        let mut sampler = new_pipeline(sampling);
        let mut play = |seed| sampler.collect(&new_policy(), 100, seed).unwrap();
        assert_eq!(play(1), play(1));
        assert_ne!(play(1), play(2));
    }
}

#[test]
fn evaluate_plays_whole_episodes() {
    let mut sampler = new_pipeline(threaded_sampling());
    let evaluation = sampler.evaluate(&new_policy(), 10, 5).unwrap();
    assert_eq!(evaluation.returns.len(), 10);
    let mut all = evaluation.returns.iter();
    assert!(all.all(|value| (1.0..=500.0).contains(value)));
    assert!((10..=10 * u64::from(MAX_STEPS)).contains(&evaluation.frames));
    let alone = new_pipeline(single_thread_sampling(1)).evaluate(&new_policy(), 10, 5);
    assert_eq!(
        alone.unwrap(),
        evaluation,
        "with any number of environments"
    );
}

fn any_sampling() -> impl Strategy<Value = Sampling> {
    let numbers = (1..4_usize, 1..4_usize, 1..4_usize, 1..3_usize, 1..40_usize);
    let modes = (any::<bool>(), any::<Option<bool>>());
    (numbers, modes).prop_map(
        |((workers, splits, size, inference, rollout), (batched, serial))| Sampling {
            num_workers: workers,
            num_envs_per_worker: splits * size,
            worker_num_splits: splits,
            policy_workers_per_policy: inference,
            rollout,
            batched_sampling: batched,
            serial_mode: serial,
        },
    )
}

proptest! {
    #![proptest_config(Config { cases: 48, failure_persistence: None, ..Config::default() })]

    #[test]
    fn samples_depend_only_on_seed_and_environment_count(
        sampling in any_sampling(),
        frames in 0..400_usize,
        episodes in 0..12_usize,
        seed in any::<u64>(),
    ) {
        let policy = new_policy();
        let mut plain = new_pipeline(single_thread_sampling(sampling.environment_count()));
        let mut sampler = new_pipeline(sampling);
        for seed in [seed, seed ^ 1] {
            let collected = sampler.collect(&policy, frames, seed).unwrap();
            prop_assert_eq!(collected, plain.collect(&policy, frames, seed).unwrap());
            let evaluated = sampler.evaluate(&policy, episodes, seed).unwrap();
            prop_assert_eq!(evaluated, plain.evaluate(&policy, episodes, seed).unwrap());
        }
    }
}

/// Panics at the first step while the flag is set.
struct Faulty(Arc<AtomicBool>);

impl EnvInstance for Faulty {
    fn reset(&mut self, _: &mut StdRng) {}

    fn observe(&self, seen: &mut [f32]) {
        seen.fill(0.0);
    }

    fn step(&mut self, _: u8) -> (f64, Option<Ending>) {
        assert!(!self.0.load(Relaxed), "the flag is set");
        (1.0, Some(Ending::Terminated))
    }

    fn total_reward(&self) -> f64 {
        1.0
    }
}

#[test]
fn panicked_thread_fails_only_its_order() {
    let faulty = Arc::new(AtomicBool::new(true));
    let flag = faulty.clone();
    let maker: EnvFactory = Arc::new(move |_| Box::new(Faulty(flag.clone())));
    let mut sampler = Pipeline::with_factory(threaded_sampling(), maker).unwrap();
    let policy = new_policy();
    let error = sampler.collect(&policy, 100, 1).unwrap_err();
    assert_eq!(error.to_string(), "the thread rollout panicked");
    faulty.store(false, Relaxed);
    let rollout = sampler.collect(&policy, 100, 1).unwrap();
    assert_eq!(rollout.returns, [1.0; 100]);
}

#[test]
fn threads_end_on_stop_and_on_drop() {
    // Each rollout worker and the sampler hold the factory.
    let maker = cartpole_factory();
    let mut sampler = Pipeline::with_factory(threaded_sampling(), maker.clone()).unwrap();
    let policy = new_policy();
    assert_eq!(Arc::strong_count(&maker), 2, "no thread without an order");
    for _ in 0..2 {
        sampler.collect(&policy, 100, 1).unwrap();
        assert_eq!(Arc::strong_count(&maker), 4);
        sampler.stop_workers();
        assert_eq!(Arc::strong_count(&maker), 2);
    }
    sampler.evaluate(&policy, 1, 1).unwrap();
    drop(sampler);
    assert_eq!(Arc::strong_count(&maker), 1);
}

#[test]
fn uneven_splits_are_rejected() {
    let odd = Sampling {
        num_envs_per_worker: 3,
        ..Sampling::default()
    };
    assert!(Pipeline::new(odd).is_err());
}
