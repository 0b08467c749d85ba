use k8s_openapi::{
    api::core::v1::{PodSpec, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Deserialize;
use serde_json::Value;

use super::{Read, doubts, spec::DECLARED};
use crate::{
    AggregatorConfig, CleanPodPolicy, DIJob, Role,
    names::{AGGREGATOR_CONFIG, labels},
};

/// Labels of every pod.
const RESERVED_LABELS: [&str; 5] = [
    labels::GROUP,
    labels::JOB,
    labels::CONTROLLER,
    labels::ROLE,
    labels::POD,
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
    doubts::of_volumes(&job.spec.volumes, "spec", &mut warnings);
    for role in DECLARED {
        let Some(declared) = job.spec.declared(role) else {
            continue;
        };
        let field = format!("spec.{role}.template");
        warn_of_template(role, declared.template, &field, &mut warnings);
        if let Some(pod) = &declared.template.spec {
            let field = format!("{field}.spec");
            warn_of_restarts(job, role, pod, &field, &mut warnings);
            warn_of_preemption(job, pod, &field, &mut warnings);
        }
    }
    warnings
}

/// The same of a job that is refused, and nothing where it cannot be read. It is decoded once more, and that here, for a decoder is large.
pub fn warnings_besides(refused: &Value) -> Vec<String> {
    let job = Read::<DIJob>::deserialize(refused);
    job.map(|job| warnings(job.object())).unwrap_or_default()
}

/// The same of a configuration.
pub fn config_warnings(config: &AggregatorConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.metadata.name.as_deref() != Some(AGGREGATOR_CONFIG) {
        warnings.push(format!(
            "metadata.name: only an AggregatorConfig that is called {AGGREGATOR_CONFIG} is used"
        ));
    }
    let template = &config.spec.aggregator.template;
    let field = "spec.aggregator.template";
    warn_of_template(Role::Aggregator, template, field, &mut warnings);
    warnings
}

fn warn_of_template(
    role: Role,
    template: &PodTemplateSpec,
    field: &str,
    warnings: &mut Vec<String>,
) {
    if let Some(metadata) = &template.metadata {
        warn_of_labels(metadata, field, warnings);
    }
    if let Some(pod) = &template.spec {
        let field = format!("{field}.spec");
        warn_of_env(role, pod, &field, warnings);
        doubts::of_pod(pod, &field, warnings);
        if pod.host_network == Some(true) {
            warnings.push(format!(
                "{field}.hostNetwork: two replicas on one node would want the same port"
            ));
        }
    }
}

fn warn_of_labels(metadata: &ObjectMeta, field: &str, warnings: &mut Vec<String>) {
    let set = metadata.labels.iter().flatten().map(|(key, _)| key);
    for key in set.filter(|key| RESERVED_LABELS.contains(&key.as_str())) {
        warnings.push(format!(
            "{field}.metadata.labels: {key} is set by the orchestrator, this value is ignored"
        ));
    }
}

/// Whether a variable is set by the orchestrator in pods that a role's template makes. That of learners makes ddp learners too: whether one
/// has several GPUs may be asked for later.
pub(super) fn is_ours(name: &str, role: Role) -> bool {
    let ddp = (role == Role::Learner).then_some(Role::DdpLearner);
    let mut roles = [role].into_iter().chain(ddp);
    roles.any(|role| role.variables().any(|ours| ours == name))
}

fn warn_of_env(role: Role, pod: &PodSpec, field: &str, warnings: &mut Vec<String>) {
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    for (list, kind) in [(inits, "initContainers"), (&pod.containers, "containers")] {
        for (i, container) in list.iter().enumerate() {
            for (j, variable) in container.env.iter().flatten().enumerate() {
                if is_ours(&variable.name, role) {
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

/// It is the class's. The builder leaves it out where the job's comes in; without any, the cluster may have a default one that says so.
fn warn_of_preemption(job: &DIJob, pod: &PodSpec, field: &str, warnings: &mut Vec<String>) {
    let class = &job.spec.priority_class_name;
    let own_class = pod.priority_class_name.as_deref().unwrap_or_default();
    let is_never = pod.preemption_policy.as_deref() == Some("Never");
    if !is_never || !own_class.is_empty() {
        return;
    }
    let what = if class.is_empty() {
        "the API server refuses pods with Never, unless that of the default class is so: use a PriorityClass with preemptionPolicy Never".to_owned()
    } else {
        format!("Never is ignored, the pod has that of the class {class}")
    };
    warnings.push(format!("{field}.preemptionPolicy: {what}"));
}
