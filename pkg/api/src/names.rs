//! The names that other programs depend on: API group, labels, environment variables, ports and
//! object names.

pub mod env;
pub mod ports;

use crate::role::Role;

/// API group of both kinds.
pub const GROUP: &str = "diengine.opendilab.org";
/// The stored version.
pub const VERSION: &str = "v1alpha2";
/// The other served version, for existing manifests.
pub const LEGACY_VERSION: &str = "v1alpha1";

/// Name of the main container in every template. Its exit code decides how the pod counts.
pub const MAIN_CONTAINER: &str = "di-container";
/// Name of the replica's port on pods and services. A port of this name in a template overrides the
/// default port.
pub const PORT_NAME: &str = "di-port";

/// Namespace of the orchestrator and of the default `AggregatorConfig`.
pub const SYSTEM_NAMESPACE: &str = "di-system";
/// Name that an `AggregatorConfig` must have to be used.
pub const AGGREGATOR_CONFIG: &str = "aggregator-config";
/// Deployment and Service of the webhooks; DI-engine's launcher waits for this name.
pub const WEBHOOK_SERVICE: &str = "di-webhook";
/// Service of the replica endpoint; DI-engine's configurations contain this name.
pub const SERVER_SERVICE: &str = "di-server";
/// Default address of the replica endpoint, without a scheme.
pub const DEFAULT_SERVER_URL: &str = "di-server.di-system:8080";
/// Prefix of the endpoint's paths, which pods get in [`env::SERVER_API_VERSION`].
pub const SERVER_API_VERSION: &str = "/v1alpha1";

/// Annotation of a job: recent requests to the replica endpoint that lowered its declared counts,
/// and the replicas that each removed. A repeated request removes no more.
// See docs/decisions/0009.
pub const SCALE_DOWNS_ANNOTATION: &str = "diengine.opendilab.org/lowered";

/// Annotation of a job: UID of the coordinator pod to restart. A coordinator with another UID is
/// not restarted, so the annotation works once.
// See docs/decisions/0014.
pub const RESTART_ANNOTATION: &str = "diengine.opendilab.org/restart-coordinator";

/// Annotation of a job: comma-separated names of the declared replicas to delete first when the
/// declared count decreases. Clients write it together with the count.
// See docs/decisions/0014.
pub const PODS_TO_DELETE_ANNOTATION: &str = "diengine.opendilab.org/let-go-first";

/// All annotations of a job that the orchestrator reads.
pub const JOB_ANNOTATIONS: [&str; 3] = [
    SCALE_DOWNS_ANNOTATION,
    RESTART_ANNOTATION,
    PODS_TO_DELETE_ANNOTATION,
];

/// Label of the pods of a gang that start together, if they must run in one topology domain: the
/// name of their group, by which they select each other.
pub const GANG_LABEL: &str = "diengine.opendilab.org/gang";

/// Annotation of a pod: its replica group. Adoption reads it if the plan entry is lost.
pub const GROUP_ANNOTATION: &str = "diengine.opendilab.org/group";

/// Label keys and fixed values.
pub mod labels {
    /// Key of [`GROUP_VALUE`].
    pub const GROUP: &str = "group-name";
    /// Value of `group-name`.
    pub const GROUP_VALUE: &str = crate::names::GROUP;
    /// Key of the job's name.
    pub const JOB: &str = "dijob-name";
    /// Key of [`CONTROLLER_VALUE`].
    pub const CONTROLLER: &str = "controller-name";
    /// Value of `controller-name`.
    pub const CONTROLLER_VALUE: &str = "di-operator";
    /// Key of the role, see [`Role::label`](crate::Role::label).
    pub const ROLE: &str = "replica-type";
    /// Key of the pod's own name, by which its service selects it.
    pub const POD: &str = "pod-name";
    /// Key of the rank role of a ddp learner: master or worker.
    pub const DDP_LEARNER_TYPE: &str = "ddp-learner-type";
    /// Value of `ddp-learner-type` for the pod with rank 0, the rendezvous host.
    pub const DDP_LEARNER_MASTER: &str = "ddp-learner-master";
    /// Value of `ddp-learner-type` for the others.
    pub const DDP_LEARNER_WORKER: &str = "ddp-learner-worker";
    /// Key of the aggregator that a ddp learner belongs to.
    pub const AGGREGATOR: &str = "aggregator-name";
    /// Key of the leader's name; on all pods of a unit.
    pub const UNIT: &str = "unit-name";
    /// Key of the position in the unit.
    pub const UNIT_INDEX: &str = "unit-index";
    /// Selects every pod and service of the orchestrator's jobs.
    pub const SELECTOR: &str = "group-name=diengine.opendilab.org,controller-name=di-operator";
}

/// Labels of Kueue.
pub mod kueue {
    /// Label of a job: the LocalQueue that it waits in.
    pub const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
    /// Label of a job: its WorkloadPriorityClass.
    pub const PRIORITY_CLASS_LABEL: &str = "kueue.x-k8s.io/priority-class";
    /// Label of a pod: its pod set.
    pub const POD_SET_LABEL: &str = "kueue.x-k8s.io/podset";
    /// Label of a pod: the ClusterQueue that admitted it.
    pub const CLUSTER_QUEUE_LABEL: &str = "kueue.x-k8s.io/cluster-queue-name";
    /// Label of a pod: the LocalQueue of its job.
    pub const LOCAL_QUEUE_LABEL: &str = "kueue.x-k8s.io/local-queue-name";
    /// API group.
    pub const GROUP: &str = "kueue.x-k8s.io";
    /// Maximum number of replicas of a job that wait for quota of their own.
    pub const MAX_WAITING: usize = 64;
}

/// Labels and annotations of pods by which gang schedulers know their group. See docs/decisions/0038.
pub mod gang {
    /// Annotation for Volcano: name of the group.
    pub const VOLCANO_GROUP: &str = "scheduling.k8s.io/group-name";
    /// Annotation for Volcano: role of the pod.
    pub const VOLCANO_TASK: &str = "volcano.sh/task-spec";
    /// Annotation for Volcano: whether the pod may be preempted.
    pub const VOLCANO_PREEMPTABLE: &str = "volcano.sh/preemptable";
    /// Label for coscheduling: name of the group.
    pub const COSCHEDULING_GROUP: &str = "scheduling.x-k8s.io/pod-group";
    /// Label for YuniKorn: the application, which is the UID of the job.
    pub const YUNIKORN_APPLICATION: &str = "applicationId";
    /// Label for YuniKorn: the queue.
    pub const YUNIKORN_QUEUE: &str = "queue";
    /// Annotation for YuniKorn: the task group of the pod.
    pub const YUNIKORN_TASK_GROUP: &str = "yunikorn.apache.org/task-group-name";
    /// Annotation for YuniKorn: all task groups of the gang, as JSON.
    pub const YUNIKORN_TASK_GROUPS: &str = "yunikorn.apache.org/task-groups";
    /// Annotation for KAI: name of the group.
    pub const KAI_GROUP: &str = "pod-group-name";
    /// Annotation for KAI: whether KAI creates no group of its own for the pod.
    pub const KAI_SKIP_GROUPER: &str = "kai.scheduler/skip-podgrouper";
    /// Label for KAI: the queue.
    pub const KAI_QUEUE: &str = "kai.scheduler/queue";
}

/// Maximum number of GPUs of one learner; each of its processes has a port.
pub const MAX_LEARNER_GPUS: i32 = 1024;
/// Value of [`env::MASTER_ADDR`] in the rendezvous host itself.
pub const LOCAL_MASTER_ADDR: &str = "localhost";
/// Maximum number of declared replicas of a job: its status contains the plan, and etcd rejects
/// requests of more than 1.5 MiB.
pub const MAX_REPLICAS: i32 = 2000;
/// Maximum number of pods in a unit.
pub const MAX_UNIT_SIZE: i32 = 64;
/// Length of the random suffix of a replica's name, in characters.
pub const SUFFIX_LEN: usize = 5;
/// Maximum length of a pod name, in characters: it is also a label value and a service name (RFC
/// 1123 label).
pub const MAX_POD_NAME_LEN: usize = 63;

/// Returns the name of the job's coordinator pod and service.
pub fn coordinator_name(job: &str) -> String {
    format!("{job}-{}", Role::Coordinator.label())
}

/// Returns the name of a replica's pod and service; `suffix` is the random part.
pub fn replica_name(job: &str, role: Role, suffix: &str) -> String {
    format!("{job}-{}-{suffix}", role.label())
}

/// Returns the first name of a pod and service of a unit, other than the leader.
pub fn unit_member_name(leader: &str, index: i32) -> String {
    format!("{leader}-{index}")
}

/// Returns the name of the job that this coordinator name belongs to.
pub fn job_of_coordinator(coordinator: &str) -> Option<&str> {
    coordinator
        .strip_suffix(Role::Coordinator.label())?
        .strip_suffix('-')
        .filter(|job| !job.is_empty())
}

/// Returns the name of the job that this aggregator name belongs to.
pub fn job_of_aggregator(aggregator: &str) -> Option<&str> {
    let (front, suffix) = aggregator.rsplit_once('-')?;
    let job = front
        .strip_suffix(Role::Aggregator.label())?
        .strip_suffix('-')?;
    (!job.is_empty() && !suffix.is_empty()).then_some(job)
}

/// Returns the address of a replica, `pod.namespace:port`. DI-engine's client splits it, so the
/// form must not change.
pub fn replica_url(pod: &str, namespace: &str, port: i32) -> String {
    format!("{pod}.{namespace}:{port}")
}

/// Maximum length of the name of a job whose role has units of this size, in characters.
pub fn max_job_name_len_with_unit(role: Role, size: i32) -> usize {
    let leader = replica_name("", role, &"x".repeat(SUFFIX_LEN));
    let longest = unit_member_name(&leader, size - 1).len();
    max_job_name_len().min(MAX_POD_NAME_LEN - longest)
}

/// Maximum length of a job name, in characters: the names of its pods must stay valid.
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
    fn f12_longest_job_name_gives_longest_valid_pod_name() {
        let job = "a".repeat(max_job_name_len());
        assert_eq!(
            replica_name(&job, Role::DdpLearner, "12345").len(),
            MAX_POD_NAME_LEN
        );
    }

    #[test]
    fn unit_of_ten_collectors_shortens_job_name() {
        let most = max_job_name_len();
        for (role, size, expected) in [
            (Role::Collector, 1, most),
            (Role::Collector, 10, most),
            (Role::Collector, 11, most - 1),
            (Role::Learner, MAX_UNIT_SIZE, most),
        ] {
            let len = max_job_name_len_with_unit(role, size);
            assert_eq!(len, expected, "{role} {size}");
            let leader = replica_name(&"a".repeat(len), role, "12345");
            assert!(unit_member_name(&leader, size - 1).len() <= MAX_POD_NAME_LEN);
        }
    }

    #[test]
    fn coordinator_name_leads_to_job() {
        assert_eq!(
            job_of_coordinator(&coordinator_name("cartpole")),
            Some("cartpole")
        );
        for other in [
            "coordinator",
            "-coordinator",
            "cartpole-collector-abcde",
            "",
        ] {
            assert_eq!(job_of_coordinator(other), None, "{other}");
        }
    }

    #[test]
    fn aggregator_name_leads_to_job() {
        let name = replica_name("j-aggregator", Role::Aggregator, "abcde");
        assert_eq!(job_of_aggregator(&name), Some("j-aggregator"));
        for other in [
            "aggregator-abcde",
            "-aggregator-abcde",
            "j-aggregator",
            "j-ddp-learner-abcde",
        ] {
            assert_eq!(job_of_aggregator(other), None, "{other}");
        }
    }

    #[test]
    fn replica_url_is_pod_namespace_port() {
        assert_eq!(
            replica_url("j-collector-abcde", "rl", 22270),
            "j-collector-abcde.rl:22270"
        );
    }
}
