use k8s_openapi::{
    api::core::v1::{Container, PodSpec, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Deserialize;
use serde_json::Value;

use super::{quantities, strict_decode::Decoded};
use crate::{
    aggregator_config::AggregatorConfig,
    dijob::{CleanPodPolicy, DIJob},
    failure_rules::FailureRule,
    names::{AGGREGATOR_CONFIG, env, kueue, labels},
    role::Role,
};

/// Labels that the orchestrator sets on every pod.
const RESERVED_LABELS: [&str; 5] = [
    labels::GROUP,
    labels::JOB,
    labels::CONTROLLER,
    labels::ROLE,
    labels::POD,
];

/// Returns warnings for the author of a job about valid fields that are rarely intended.
pub fn job_warnings(job: &DIJob) -> Vec<String> {
    let mut warnings = Vec::new();
    if job.spec.ttl_seconds_after_finished == Some(0) {
        warnings.push(
            "spec.ttlSecondsAfterFinished: 0 deletes the job, its pods and their logs as soon as it ends"
                .to_owned(),
        );
    }
    warn_about_queue(job, &mut warnings);
    warn_about_scheduling(job, &mut warnings);
    for role in Role::DECLARED {
        let Some(declared) = job.spec.declared(role) else {
            continue;
        };
        let part = format!("spec.{role}");
        let unit = job.spec.unit(role);
        let leader = unit.and_then(|unit| unit.leader_template.as_ref());
        let leader = leader.map(|template| (template, "unit.leaderTemplate"));
        for (written, name) in [(declared.template, "template")].into_iter().chain(leader) {
            let Ok(template) = written.decode() else {
                continue;
            };
            let field = format!("{part}.{name}");
            let pods = Pods {
                role,
                are_units: unit.is_some(),
            };
            warn_about_template(pods, &template, &field, &mut warnings);
            if let Some(pod) = &template.spec {
                let field = format!("{field}.spec");
                warn_about_restarts(job, role, pod, &field, &mut warnings);
                warn_about_exit_codes(job, role, pod, &field, &mut warnings);
                warn_about_preemption(job, pod, &field, &mut warnings);
            }
        }
    }
    warnings
}

/// The pods of a template.
#[derive(Clone, Copy)]
struct Pods {
    role: Role,
    /// Whether they belong to units.
    are_units: bool,
}

/// Returns the warnings of a rejected job, none if the job is undecodable.
///
/// Decodes the job again, and in this crate, because each instance of the decoder is much code.
pub fn rejected_job_warnings(rejected: &Value) -> Vec<String> {
    let job = Decoded::<DIJob>::deserialize(rejected);
    job.map(|job| job_warnings(job.object()))
        .unwrap_or_default()
}

/// Returns warnings for the author of an `AggregatorConfig`.
pub fn config_warnings(config: &AggregatorConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    if config.metadata.name.as_deref() != Some(AGGREGATOR_CONFIG) {
        warnings.push(format!(
            "metadata.name: only an AggregatorConfig named {AGGREGATOR_CONFIG} is used"
        ));
    }
    let field = "spec.aggregator.template";
    if let Ok(template) = config.spec.aggregator.template.decode() {
        let pods = Pods {
            role: Role::Aggregator,
            are_units: false,
        };
        warn_about_template(pods, &template, field, &mut warnings);
    }
    warnings
}

fn warn_about_queue(job: &DIJob, warnings: &mut Vec<String>) {
    if job.queue_name().is_none() {
        if job.spec.queueing.is_some() {
            let label = kueue::QUEUE_LABEL;
            warnings.push(format!(
                "spec.queueing has no effect without the label {label}"
            ));
        }
        return;
    }
    for (i, rule) in job.spec.failure_rules.iter().enumerate() {
        if rule.grow_memory.is_some() {
            warnings.push(format!(
                "spec.failureRules[{i}].growMemory has no effect in a queue: the quota of an admitted pod is fixed"
            ));
        }
    }
}

fn warn_about_scheduling(job: &DIJob, warnings: &mut Vec<String>) {
    let Some(scheduling) = &job.spec.scheduling else {
        return;
    };
    if scheduling.gang.is_some() {
        return;
    }
    for (field, value) in [
        ("queue", &scheduling.queue),
        ("topologyKey", &scheduling.topology_key),
    ] {
        if !value.is_empty() {
            warnings.push(format!(
                "spec.scheduling.{field} has no effect without spec.scheduling.gang"
            ));
        }
    }
}

fn warn_about_template(
    pods: Pods,
    template: &PodTemplateSpec,
    field: &str,
    warnings: &mut Vec<String>,
) {
    if let Some(metadata) = &template.metadata {
        warn_about_labels(pods, metadata, field, warnings);
    }
    if let Some(pod) = &template.spec {
        let field = format!("{field}.spec");
        let inits = pod.init_containers.as_deref().unwrap_or_default();
        for (list, kind) in [(inits, "initContainers"), (&pod.containers, "containers")] {
            for (i, container) in list.iter().enumerate() {
                let field = format!("{field}.{kind}[{i}]");
                warn_about_env(pods, container, &field, warnings);
                warn_about_memory(container, &field, warnings);
            }
        }
        if pod.host_network == Some(true) {
            warnings.push(format!(
                "{field}.hostNetwork: all replicas of a role use the same port, so no two of them can run on the same node"
            ));
        }
    }
}

fn warn_about_labels(pods: Pods, metadata: &ObjectMeta, field: &str, warnings: &mut Vec<String>) {
    let is_reserved = |key: &&String| {
        let of_unit = [labels::UNIT, labels::UNIT_INDEX].contains(&key.as_str());
        RESERVED_LABELS.contains(&key.as_str()) || pods.are_units && of_unit
    };
    let set = metadata.labels.iter().flatten().map(|(key, _)| key);
    for key in set.filter(is_reserved) {
        warnings.push(format!(
            "{field}.metadata.labels: {key} is set by the orchestrator, this value is ignored"
        ));
    }
}

fn warn_about_env(pods: Pods, container: &Container, field: &str, warnings: &mut Vec<String>) {
    for (i, variable) in container.env.iter().flatten().enumerate() {
        if is_set_by_orchestrator(&variable.name, pods) {
            let name = &variable.name;
            warnings.push(format!(
                "{field}.env[{i}]: {name} is set by the orchestrator, this value overrides it"
            ));
        }
    }
}

/// Whether the orchestrator sets this variable in these pods. Without units, a learner template also
/// serves ddp learners: the coordinator may request learners with several GPUs later.
fn is_set_by_orchestrator(name: &str, pods: Pods) -> bool {
    if pods.are_units && env::UNIT.contains(&name) {
        return true;
    }
    let ddp = pods.role == Role::Learner && !pods.are_units;
    let mut roles = [pods.role]
        .into_iter()
        .chain(ddp.then_some(Role::DdpLearner));
    roles.any(|role| role.env_names().any(|known| known == name))
}

fn warn_about_memory(container: &Container, field: &str, warnings: &mut Vec<String>) {
    let Some(resources) = &container.resources else {
        return;
    };
    for (list, name) in [
        (&resources.limits, "limits"),
        (&resources.requests, "requests"),
    ] {
        let memory = list.as_ref().and_then(|list| list.get("memory"));
        if let Some(warning) = memory.and_then(quantities::memory_warning) {
            warnings.push(format!("{field}.resources.{name}[memory]: {warning}"));
        }
    }
}

fn warn_about_restarts(
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
            "{field}.restartPolicy: with Always, the kubelet restarts the coordinator after every exit, so the job never ends"
        ));
    }
    if job.spec.clean_pod_policy == CleanPodPolicy::None {
        warnings.push(format!(
            "{field}.restartPolicy: with Always and spec.cleanPodPolicy None, the pods keep running after the end of the job"
        ));
    }
}

fn warn_about_exit_codes(
    job: &DIJob,
    role: Role,
    pod: &PodSpec,
    field: &str,
    warnings: &mut Vec<String>,
) {
    let policy = pod.restart_policy.as_deref().unwrap_or("Never");
    let has_exit_codes = |rule: &FailureRule| rule.on_exit_codes.is_some() && rule.applies_to(role);
    let first = job.spec.failure_rules.iter().position(has_exit_codes);
    if let Some(i) = first.filter(|_| policy != "Never") {
        warnings.push(format!(
            "{field}.restartPolicy: with {policy}, the kubelet restarts failed containers, so spec.failureRules[{i}].onExitCodes does not match; set it to Never"
        ));
    }
}

/// The PriorityClass decides the preemption policy, so the pod builder drops the field if the pod
/// gets the job's class.
fn warn_about_preemption(job: &DIJob, pod: &PodSpec, field: &str, warnings: &mut Vec<String>) {
    let class = &job.spec.priority_class_name;
    let own_class = pod.priority_class_name.as_deref().unwrap_or_default();
    let is_never = pod.preemption_policy.as_deref() == Some("Never");
    if is_never && own_class.is_empty() && !class.is_empty() {
        warnings.push(format!(
            "{field}.preemptionPolicy: Never is ignored, the pod gets the policy of the PriorityClass {class}"
        ));
    }
}
