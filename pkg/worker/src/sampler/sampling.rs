//! The shape of the sampling: number of environments and threads.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Maximum threads of a kind.
const MAX_THREADS: usize = 1024;
/// Maximum environments of a sampler.
const MAX_ENVIRONMENTS: usize = 1 << 16;
/// Maximum steps of a trajectory buffer.
const MAX_ROLLOUT: usize = 1 << 16;

/// The shape of the sampling; the names are Sample Factory's.
///
/// The samples depend only on the seed and the number of environments. See docs/decisions/0020.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Rollout workers.
    pub num_workers: usize,
    /// Environments per rollout worker.
    pub num_envs_per_worker: usize,
    /// Splits of a worker's environments. With 2, one half waits for actions while the other is
    /// stepped.
    pub worker_num_splits: usize,
    /// Inference workers.
    pub policy_workers_per_policy: usize,
    /// Steps of a trajectory buffer.
    pub rollout: usize,
    /// Whether the environments of a split share a trajectory buffer that the batcher forwards.
    /// Otherwise each has its own, and the batcher joins them.
    pub batched_sampling: bool,
    /// Whether all components run on one thread. Default: true with one rollout worker and one
    /// inference worker.
    pub serial_mode: Option<bool>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            num_workers: 1,
            num_envs_per_worker: 2,
            worker_num_splits: 2,
            policy_workers_per_policy: 1,
            rollout: 32,
            batched_sampling: false,
            serial_mode: None,
        }
    }
}

impl Sampling {
    /// Checks the ranges of all fields.
    pub fn check(&self) -> Result<()> {
        let Self {
            num_workers,
            num_envs_per_worker: environments,
            worker_num_splits: splits,
            policy_workers_per_policy,
            rollout,
            ..
        } = self;
        let ranges = [
            ("num_workers", num_workers, MAX_THREADS),
            ("num_envs_per_worker", environments, MAX_ENVIRONMENTS),
            ("worker_num_splits", splits, MAX_ENVIRONMENTS),
            (
                "policy_workers_per_policy",
                policy_workers_per_policy,
                MAX_THREADS,
            ),
            ("rollout", rollout, MAX_ROLLOUT),
        ];
        for (name, value, most) in ranges {
            if !(1..=most).contains(value) {
                return Err(Error::BadConfig(format!(
                    "--{name} must be in 1..={most}, but is {value}"
                )));
            }
        }
        if self.environment_count() > MAX_ENVIRONMENTS {
            return Err(Error::BadConfig(format!(
                "--num_workers {num_workers} with --num_envs_per_worker {environments} are more than {MAX_ENVIRONMENTS} environments"
            )));
        }
        if !environments.is_multiple_of(*splits) {
            let more = environments.next_multiple_of(*splits);
            return Err(Error::BadConfig(format!(
                "--num_envs_per_worker {environments} cannot be divided by --worker_num_splits {splits}, and all splits need the same \
                 number of environments: use --num_envs_per_worker {more}, or --worker_num_splits 1 (no double buffering)"
            )));
        }
        Ok(())
    }

    /// Environments of all workers.
    pub const fn environment_count(&self) -> usize {
        self.num_workers * self.num_envs_per_worker
    }

    /// Splits of all workers.
    pub(crate) const fn split_count(&self) -> usize {
        self.num_workers * self.worker_num_splits
    }

    /// Environments of each split.
    pub(crate) const fn split_size(&self) -> usize {
        self.num_envs_per_worker / self.worker_num_splits
    }

    /// Whether all components run on one thread.
    pub(crate) fn is_serial(&self) -> bool {
        let alone = self.num_workers == 1 && self.policy_workers_per_policy == 1;
        self.serial_mode.unwrap_or(alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_error(json: &str) -> String {
        let sampling: Sampling = serde_json::from_str(json).unwrap();
        sampling.check().unwrap_err().to_string()
    }

    #[test]
    fn uneven_splits_are_rejected_with_advice() {
        let message = check_error(r#"{"num_envs_per_worker": 3}"#);
        for part in [
            "--num_envs_per_worker 3 cannot be divided by --worker_num_splits 2",
            "use --num_envs_per_worker 4, or --worker_num_splits 1",
        ] {
            assert!(message.contains(part), "{message}");
        }
        let even = Sampling {
            num_envs_per_worker: 3,
            worker_num_splits: 3,
            ..Sampling::default()
        };
        assert!(even.check().is_ok());
        assert_eq!((even.split_count(), even.split_size()), (3, 1));
    }

    #[test]
    fn out_of_range_values_are_rejected() {
        assert!(Sampling::default().check().is_ok());
        for field in [
            "num_workers",
            "num_envs_per_worker",
            "worker_num_splits",
            "policy_workers_per_policy",
            "rollout",
        ] {
            let message = check_error(&format!(r#"{{"{field}": 0}}"#));
            assert!(
                message.contains(&format!("--{field} must be in 1..=")),
                "{message}"
            );
        }
        let message = check_error(r#"{"num_workers": 1000, "num_envs_per_worker": 1000}"#);
        assert!(
            message.contains("more than 65536 environments"),
            "{message}"
        );
        assert!(serde_json::from_str::<Sampling>(r#"{"workers": 1}"#).is_err());
    }

    #[test]
    fn serial_mode_defaults_to_single_workers() {
        let serial = |json| serde_json::from_str::<Sampling>(json).unwrap().is_serial();
        assert!(serial("{}") && serial(r#"{"num_workers": 4, "serial_mode": true}"#));
        assert!(!serial(r#"{"num_workers": 2}"#) && !serial(r#"{"policy_workers_per_policy": 2}"#));
        assert!(!serial(r#"{"serial_mode": false}"#));
    }
}
