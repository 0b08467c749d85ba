//! Environment variables of every replica.

/// Namespace of the pod.
pub const POD_NAMESPACE: &str = "KUBERNETES_POD_NAMESPACE";
/// Name of the pod.
pub const POD_NAME: &str = "KUBERNETES_POD_NAME";
/// Address of the replica endpoint, `host:port`.
pub const SERVER_URL: &str = "KUBERNETES_SERVER_URL";
/// Prefix of the endpoint's paths.
pub const SERVER_API_VERSION: &str = "KUBERNETES_SERVER_API_VERSION";
/// Address of the job's coordinator, `pod.namespace:port`.
pub const COORDINATOR_URL: &str = "KUBERNETES_COORDINATOR_URL";
/// Index of the replica within its role; a replacement keeps it.
pub const REPLICA_INDEX: &str = "DI_REPLICA_INDEX";
/// The coordinator's own port.
pub const COORDINATOR_PORT: &str = "COORDINATOR_PORT";
/// The collector's own port.
pub const COLLECTOR_PORT: &str = "COLLECTOR_PORT";
/// The own port of a learner or ddp learner.
pub const LEARNER_PORT: &str = "LEARNER_PORT";
/// The aggregator's own port.
pub const AGGREGATOR_PORT: &str = "AGGREGATOR_PORT";
/// Address of a ddp learner's aggregator.
pub const AGGREGATOR_URL: &str = "KUBERNETES_AGGREGATOR_URL";
/// Number of processes of the learner group.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// Number of processes of this ddp learner pod.
pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
/// Rank of a ddp learner pod's first process.
pub const START_RANK: &str = "START_RANK";
/// Rendezvous host of the learner group.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// Rendezvous port of the learner group.
pub const MASTER_PORT: &str = "MASTER_PORT";
