//! Every name that other programs see: group, labels, environment, ports, and how objects are called.

use crate::Role;

/// API group of both kinds.
pub const GROUP: &str = "diengine.opendilab.org";
/// The stored version.
pub const VERSION: &str = "v1alpha2";
/// The other served version, which manifests in the wild use.
pub const LEGACY_VERSION: &str = "v1alpha1";

/// Main container of every template: its exit decides the job's phase.
pub const MAIN_CONTAINER: &str = "di-container";
/// Name of the replica's port on pods and services; a port of this name in a template wins over the default.
pub const PORT_NAME: &str = "di-port";

/// Namespace of the orchestrator and of the default `AggregatorConfig`.
pub const SYSTEM_NAMESPACE: &str = "di-system";
/// Name of the `AggregatorConfig` that is used.
pub const AGGREGATOR_CONFIG: &str = "aggregator-config";
/// Deployment and Service of the webhooks; DI-engine's launcher waits for this name.
pub const WEBHOOK_SERVICE: &str = "di-webhook";
/// Service of the replica endpoint; DI-engine's configurations spell it out.
pub const SERVER_SERVICE: &str = "di-server";
/// Address of the replica endpoint when no other is configured, without a scheme.
pub const DEFAULT_SERVER_URL: &str = "di-server.di-system:8080";
/// Prefix of the endpoint's paths that pods are told.
pub const SERVER_API_VERSION: &str = "/v1alpha1";

/// Annotation of a job: which requests to the replica endpoint lowered its declared counts lately, and who goes for that.
pub const LOWERED_ANNOTATION: &str = "diengine.opendilab.org/lowered";

/// Annotation of a job: UID of the coordinator pod that is to be replaced by another. A pod of another UID is left alone, so it holds once.
pub const RESTART_ANNOTATION: &str = "diengine.opendilab.org/restart-coordinator";

/// Annotation of a job: names of declared replicas that go first when fewer are declared, with commas between; written together with the count.
pub const LET_GO_ANNOTATION: &str = "diengine.opendilab.org/let-go-first";

/// The annotations of a job that are notes to the orchestrator.
pub const NOTES: [&str; 3] = [LOWERED_ANNOTATION, RESTART_ANNOTATION, LET_GO_ANNOTATION];

/// Annotation of a pod: the declared group that it was made for, should the plan be lost.
pub const GROUP_ANNOTATION: &str = "diengine.opendilab.org/group";

/// Ports of replicas whose template names none.
pub mod ports {
    /// Of a collector.
    pub const COLLECTOR: i32 = 22270;
    /// Of a learner, and of a ddp learner's first process.
    pub const LEARNER: i32 = 22271;
    /// Of an aggregator.
    pub const AGGREGATOR: i32 = 22272;
    /// Of a coordinator.
    pub const COORDINATOR: i32 = 22273;
    /// Where the processes of a logic learner meet, see [`master`](self::master).
    pub const MASTER: i32 = 10314;
    /// Name of that port.
    pub const MASTER_NAME: &str = "master-port";
    /// Name of the port of a ddp learner's further processes, before their number.
    pub const GPU_NAME_PREFIX: &str = "gpu-port-";

    /// Where so many processes meet, the first of which has this port: the port after theirs, where the usual one is among them.
    pub fn master(first: i32, processes: i32) -> i32 {
        let next = first.saturating_add(processes);
        if (first..next).contains(&MASTER) {
            next
        } else {
            MASTER
        }
    }
}

/// Label keys and fixed values.
pub mod labels {
    /// Key of [`GROUP_VALUE`](self::GROUP_VALUE).
    pub const GROUP: &str = "group-name";
    /// Value of `group-name`.
    pub const GROUP_VALUE: &str = super::GROUP;
    /// Key of the job's name.
    pub const JOB: &str = "dijob-name";
    /// Key of [`CONTROLLER_VALUE`](self::CONTROLLER_VALUE).
    pub const CONTROLLER: &str = "controller-name";
    /// Value of `controller-name`.
    pub const CONTROLLER_VALUE: &str = "di-operator";
    /// Key of the role, see [`Role::label`](crate::Role::label).
    pub const ROLE: &str = "replica-type";
    /// Key of the pod's own name, by which its service selects it.
    pub const POD: &str = "pod-name";
    /// Key of what a ddp learner is among its like.
    pub const DDP_LEARNER_TYPE: &str = "ddp-learner-type";
    /// Value of `ddp-learner-type` for the one that the others meet at.
    pub const DDP_LEARNER_MASTER: &str = "ddp-learner-master";
    /// Value of `ddp-learner-type` for the others.
    pub const DDP_LEARNER_WORKER: &str = "ddp-learner-worker";
    /// Key of the aggregator that a ddp learner belongs to.
    pub const AGGREGATOR: &str = "aggregator-name";
    /// Selects every pod and service of the orchestrator's jobs.
    pub const SELECTOR: &str = "group-name=diengine.opendilab.org,controller-name=di-operator";
}

/// Environment variables of every replica.
pub mod env {
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
    /// Number of the replica within its role, kept by replacements.
    pub const REPLICA_INDEX: &str = "DI_REPLICA_INDEX";
    /// Own port of a coordinator.
    pub const COORDINATOR_PORT: &str = "COORDINATOR_PORT";
    /// Own port of a collector.
    pub const COLLECTOR_PORT: &str = "COLLECTOR_PORT";
    /// Own port of a learner or ddp learner.
    pub const LEARNER_PORT: &str = "LEARNER_PORT";
    /// Own port of an aggregator.
    pub const AGGREGATOR_PORT: &str = "AGGREGATOR_PORT";
    /// Address of a ddp learner's aggregator.
    pub const AGGREGATOR_URL: &str = "KUBERNETES_AGGREGATOR_URL";
    /// Processes of a logic learner.
    pub const WORLD_SIZE: &str = "WORLD_SIZE";
    /// Processes of one ddp learner pod.
    pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
    /// Rank of a ddp learner pod's first process.
    pub const START_RANK: &str = "START_RANK";
    /// Where the processes of a logic learner meet.
    pub const MASTER_ADDR: &str = "MASTER_ADDR";
    /// Port where they meet.
    pub const MASTER_PORT: &str = "MASTER_PORT";
}

/// The most GPUs of one learner: each of their processes has a port.
pub const MAX_LEARNER_GPUS: i32 = 1024;
/// What the ddp learner that the others meet at is told as their meeting place.
pub const MASTER_ITSELF: &str = "localhost";
/// The most replicas that a job may declare: its plan stands in its status, and an object of more than 1.5 MB cannot be stored.
pub const MAX_REPLICAS: i32 = 2000;
/// Length of the random part of a replica's name.
pub const SUFFIX_LEN: usize = 5;
/// A pod's name is also a label value and a service's name, each 63 characters at most (RFC 1123 label).
pub const MAX_POD_NAME_LEN: usize = 63;

/// Name of the job's coordinator pod and service.
pub fn coordinator(job: &str) -> String {
    format!("{job}-{}", Role::Coordinator.label())
}

/// Name of another replica; `suffix` is its random part.
pub fn replica(job: &str, role: Role, suffix: &str) -> String {
    format!("{job}-{}-{suffix}", role.label())
}

/// The job whose coordinator has this name.
pub fn job_of_coordinator(coordinator: &str) -> Option<&str> {
    coordinator
        .strip_suffix(Role::Coordinator.label())?
        .strip_suffix('-')
        .filter(|job| !job.is_empty())
}

/// The job whose aggregator has this name.
pub fn job_of_aggregator(aggregator: &str) -> Option<&str> {
    let (front, suffix) = aggregator.rsplit_once('-')?;
    let job = front
        .strip_suffix(Role::Aggregator.label())?
        .strip_suffix('-')?;
    (!job.is_empty() && !suffix.is_empty()).then_some(job)
}

/// Address of a replica, `pod.namespace:port`: exactly so, because the client splits it.
pub fn url(pod: &str, namespace: &str, port: i32) -> String {
    format!("{pod}.{namespace}:{port}")
}

/// The longest name a job may have so that the names derived from it stay valid.
pub fn max_job_name_len() -> usize {
    let longest = Role::ALL
        .iter()
        .filter(|role| **role != Role::Coordinator)
        .map(|role| role.label().len() + 2 + SUFFIX_LEN)
        .chain([Role::Coordinator.label().len() + 1])
        .max()
        .unwrap_or(0);
    MAX_POD_NAME_LEN - longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f12_the_longest_job_name_makes_the_longest_valid_pod_name() {
        let job = "a".repeat(max_job_name_len());
        assert_eq!(
            replica(&job, Role::DdpLearner, "12345").len(),
            MAX_POD_NAME_LEN
        );
    }

    #[test]
    fn a_coordinator_names_its_job() {
        assert_eq!(
            job_of_coordinator(&coordinator("cartpole")),
            Some("cartpole")
        );
        for not_one in [
            "coordinator",
            "-coordinator",
            "cartpole-collector-abcde",
            "",
        ] {
            assert_eq!(job_of_coordinator(not_one), None, "{not_one}");
        }
    }

    #[test]
    fn an_aggregator_names_its_job() {
        let name = replica("j-aggregator", Role::Aggregator, "abcde");
        assert_eq!(job_of_aggregator(&name), Some("j-aggregator"));
        for not_one in [
            "aggregator-abcde",
            "-aggregator-abcde",
            "j-aggregator",
            "j-ddp-learner-abcde",
        ] {
            assert_eq!(job_of_aggregator(not_one), None, "{not_one}");
        }
    }

    #[test]
    fn urls_are_pod_dot_namespace_colon_port() {
        assert_eq!(
            url("j-collector-abcde", "rl", 22270),
            "j-collector-abcde.rl:22270"
        );
    }
}
