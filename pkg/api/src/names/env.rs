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
/// Rendezvous host of the learner group, or of the unit.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// Rendezvous port of the learner group, or of the unit.
pub const MASTER_PORT: &str = "MASTER_PORT";
/// Number of pods of the unit.
pub const UNIT_SIZE: &str = "DI_UNIT_SIZE";
/// Position of the pod in its unit; that of the leader is 0.
pub const UNIT_INDEX: &str = "DI_UNIT_INDEX";
/// Host name of the leader.
pub const UNIT_LEADER_ADDRESS: &str = "DI_UNIT_LEADER_ADDRESS";
/// [`UNIT_SIZE`], as in a LeaderWorkerSet.
pub const LWS_GROUP_SIZE: &str = "LWS_GROUP_SIZE";
/// [`UNIT_INDEX`], as in a LeaderWorkerSet.
pub const LWS_WORKER_INDEX: &str = "LWS_WORKER_INDEX";
/// [`UNIT_LEADER_ADDRESS`], as in a LeaderWorkerSet.
pub const LWS_LEADER_ADDRESS: &str = "LWS_LEADER_ADDRESS";
/// [`UNIT_SIZE`], for torchrun.
pub const NNODES: &str = "NNODES";
/// [`UNIT_INDEX`], for torchrun.
pub const NODE_RANK: &str = "NODE_RANK";
/// Host names of all pods of the unit, separated by commas, for `ditask --platform k8s`.
pub const DI_NODES: &str = "DI_NODES";
/// [`UNIT_INDEX`], for `ditask --platform k8s`.
pub const DI_RANK: &str = "DI_RANK";

/// All variables that pods of units have in addition to those of their role, in this order.
pub const UNIT: [&str; 12] = [
    UNIT_SIZE,
    UNIT_INDEX,
    UNIT_LEADER_ADDRESS,
    LWS_GROUP_SIZE,
    LWS_WORKER_INDEX,
    LWS_LEADER_ADDRESS,
    NNODES,
    NODE_RANK,
    MASTER_ADDR,
    MASTER_PORT,
    DI_NODES,
    DI_RANK,
];
