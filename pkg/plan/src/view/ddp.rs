use di_api::{Ddp, names, quantity};
use k8s_openapi::api::core::v1::Pod;

use super::told;

/// What a ddp learner's pod tells of its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DdpView {
    /// Its place in its logic learner.
    pub place: Ddp,
    /// GPUs that it has, one for each process.
    pub gpus: i32,
}

impl DdpView {
    pub(super) fn new(pod: &Pod) -> Option<Self> {
        let labels = pod.metadata.labels.as_ref()?;
        let env = |name| told(pod, name);
        // Nobody makes larger ones; a pod that says otherwise must not make us list as many.
        let number =
            |name| quantity::whole(env(name)?).filter(|number| *number <= names::MAX_LEARNER_GPUS);
        Some(Self {
            place: Ddp {
                aggregator: labels.get(names::labels::AGGREGATOR)?.clone(),
                world_size: number(names::env::WORLD_SIZE)?,
                start_rank: number(names::env::START_RANK)?,
                master: env(names::env::MASTER_ADDR)
                    .filter(|address| *address != names::MASTER_ITSELF)
                    .map(str::to_owned),
            },
            gpus: number(names::env::LOCAL_WORLD_SIZE)?,
        })
    }
}
