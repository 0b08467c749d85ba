use k8s_openapi::{api::core::v1::PodSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::spec::DECLARED;
use crate::{
    CleanPodPolicy, DIJob, Role,
    names::{env, labels},
};

/// Set in every replica.
const RESERVED: [&str; 6] = [
    env::POD_NAMESPACE,
    env::POD_NAME,
    env::SERVER_URL,
    env::SERVER_API_VERSION,
    env::COORDINATOR_URL,
    env::REPLICA_INDEX,
];

/// Labels of every pod.
const RESERVED_LABELS: [&str; 5] = [
    labels::GROUP,
    labels::JOB,
    labels::CONTROLLER,
    labels::ROLE,
    labels::POD,
];

/// Set in ddp learners, whose template is the learner's.
const RESERVED_DDP: [&str; 6] = [
    "KUBERNETES_AGGREGATOR_URL",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "START_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
];

/// What is allowed but seldom meant, in words for the job's author.
pub fn warnings(job: &DIJob) -> Vec<String> {
    let mut warnings = Vec::new();
    if job.spec.ttl_seconds_after_finished == Some(0) {
        warnings.push(
            "spec.ttlSecondsAfterFinished: 0 deletes the job, its pods and their logs as soon as it ends"
                .to_owned(),
        );
    }
    for role in DECLARED {
        let declared = job.spec.declared(role);
        if let Some(metadata) = declared.and_then(|declared| declared.template.metadata.as_ref()) {
            warn_of_labels(metadata, &format!("spec.{role}.template"), &mut warnings);
        }
        if let Some(pod) = declared.and_then(|declared| declared.template.spec.as_ref()) {
            let field = format!("spec.{role}.template.spec");
            warn_of_env(role, pod, &field, &mut warnings);
            warn_of_restarts(job, role, pod, &field, &mut warnings);
            if pod.host_network == Some(true) {
                warnings.push(format!(
                    "{field}.hostNetwork: two replicas on one node would want the same port"
                ));
            }
        }
    }
    warnings
}

fn warn_of_labels(metadata: &ObjectMeta, field: &str, warnings: &mut Vec<String>) {
    let set = metadata.labels.iter().flatten().map(|(key, _)| key);
    for key in set.filter(|key| RESERVED_LABELS.contains(&key.as_str())) {
        warnings.push(format!(
            "{field}.metadata.labels: {key} is set by the orchestrator, this value is ignored"
        ));
    }
}

fn warn_of_env(role: Role, pod: &PodSpec, field: &str, warnings: &mut Vec<String>) {
    let is_reserved = |name: &str| {
        RESERVED.contains(&name)
            || Role::ALL.iter().any(|role| role.port_env() == name)
            || (role == Role::Learner && RESERVED_DDP.contains(&name))
    };
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    for (list, kind) in [(inits, "initContainers"), (&pod.containers, "containers")] {
        for (i, container) in list.iter().enumerate() {
            for (j, variable) in container.env.iter().flatten().enumerate() {
                if is_reserved(&variable.name) {
                    let name = &variable.name;
                    warnings.push(format!(
                        "{field}.{kind}[{i}].env[{j}]: {name} is set by the orchestrator, this value overrides it"
                    ));
                }
            }
        }
    }
}

fn warn_of_restarts(
    job: &DIJob,
    role: Role,
    pod: &PodSpec,
    field: &str,
    warnings: &mut Vec<String>,
) {
    if pod.restart_policy.as_deref() != Some("Always") {
        return;
    }
    if role == Role::Coordinator {
        warnings.push(format!(
            "{field}.restartPolicy: Always starts the coordinator again whenever it ends: the job never ends"
        ));
    }
    if job.spec.clean_pod_policy == CleanPodPolicy::None {
        warnings.push(format!(
            "{field}.restartPolicy: Always with spec.cleanPodPolicy None: its pods go on after the job's end"
        ));
    }
}
