use di_api::{Ddp, names, quantity};
use k8s_openapi::api::core::v1::Pod;

use super::env::env_value;

/// The place of a ddp learner in its learner group, read from its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdpView {
    /// Place in the learner group.
    pub place: Ddp,
    /// Number of GPUs; each process uses one.
    pub gpus: i32,
}

impl DdpView {
    pub(super) fn new(pod: &Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let env = |name| env_value(pod, name);
        // The bound protects the listing: a user can create a pod with any number.
        let number = |name| {
            quantity::parse_count(env(name)?).filter(|number| *number <= names::MAX_LEARNER_GPUS)
        };
        Some(Self {
            place: Ddp {
                aggregator: labels.get(names::labels::AGGREGATOR)?.clone(),
                world_size: number(names::env::WORLD_SIZE)?,
                start_rank: number(names::env::START_RANK)?,
                master: env(names::env::MASTER_ADDR)
                    .filter(|address| *address != names::LOCAL_MASTER_ADDR)
                    .map(str::to_owned),
            },
            gpus: number(names::env::LOCAL_WORLD_SIZE)?,
        })
    }
}
