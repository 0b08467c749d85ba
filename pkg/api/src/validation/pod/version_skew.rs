//! Warnings about pod fields that some supported API servers or nodes reject.

use k8s_openapi::{
    api::core::v1::{Container, DownwardAPIVolumeFile, PodSpec, ResourceFieldSelector, Volume},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{disks::SINGLE_POD_MODE, dns::ROOT_DOMAIN};
use crate::quantity::{NANOS_PER_UNIT, parse_nanos};

/// Sysctls that every kubelet allows. A kubelet rejects a pod with another one unless it is
/// configured to allow it.
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];
/// Maximum number of search domains before Kubernetes 1.26.
const OLD_MAX_SEARCHES: usize = 6;
/// Maximum length of all search domains in characters, with spaces, before Kubernetes 1.26.
const OLD_MAX_SEARCH_LEN: usize = 256;
/// Memory in bytes with which no container starts.
const MIN_MEMORY: i128 = 1 << 20;

/// Adds the warnings of a decoded pod.
pub(crate) fn warn_about_pod(pod: &PodSpec, field: &str, warnings: &mut Vec<String>) {
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    for (list, kind) in [(inits, "initContainers"), (&pod.containers, "containers")] {
        for (i, container) in list.iter().enumerate() {
            let field = format!("{field}.{kind}[{i}]");
            warn_about_restarts(container, kind == "initContainers", &field, warnings);
            warn_about_handlers(container, &field, warnings);
            warn_about_env(container, &field, warnings);
            warn_about_amounts(container, &field, warnings);
        }
    }
    let volumes = pod.volumes.as_deref().unwrap_or_default();
    warn_about_volumes(volumes, field, warnings);
    let context = pod.security_context.as_ref();
    let sysctls = context.and_then(|context| context.sysctls.as_deref());
    for (i, sysctl) in sysctls.unwrap_or_default().iter().enumerate() {
        if sysctl.name.contains('/') {
            warnings.push(format!(
                "{field}.securityContext.sysctls[{i}].name: Kubernetes before 1.25 rejects {} because of its slashes",
                sysctl.name
            ));
        }
        if !SAFE_SYSCTLS.contains(&sysctl.name.replace('/', ".").as_str()) {
            warnings.push(format!(
                "{field}.securityContext.sysctls[{i}].name: {} is not among the safe sysctls: only a kubelet that is configured to allow it runs the pod",
                sysctl.name
            ));
        }
    }
    for (i, gate) in pod.scheduling_gates.iter().flatten().enumerate() {
        warnings.push(format!(
            "{field}.schedulingGates[{i}]: no pod is scheduled until {} is removed from it",
            gate.name
        ));
    }
    for (i, toleration) in pod.tolerations.iter().flatten().enumerate() {
        if let Some(operator @ ("Lt" | "Gt")) = toleration.operator.as_deref() {
            warnings.push(format!(
                "{field}.tolerations[{i}].operator: Kubernetes before 1.35 rejects {operator}; newer versions reject it unless the feature gate TaintTolerationComparisonOperators is enabled"
            ));
        }
    }
    let config = pod.dns_config.as_ref();
    let searches = config.and_then(|config| config.searches.as_deref());
    let long = |searches: &[String]| searches.join(" ").len() > OLD_MAX_SEARCH_LEN;
    if searches.is_some_and(|searches| searches.len() > OLD_MAX_SEARCHES || long(searches)) {
        warnings.push(format!(
            "{field}.dnsConfig.searches: Kubernetes before 1.26 rejects more than {OLD_MAX_SEARCHES} search domains, and more than {OLD_MAX_SEARCH_LEN} characters in total"
        ));
    }
    for (i, domain) in searches.unwrap_or_default().iter().enumerate() {
        if domain == ROOT_DOMAIN {
            warnings.push(format!(
                "{field}.dnsConfig.searches[{i}]: Kubernetes before 1.33 rejects {ROOT_DOMAIN}"
            ));
        }
    }
}

fn warn_about_files(
    items: Option<&[DownwardAPIVolumeFile]>,
    field: &str,
    warnings: &mut Vec<String>,
) {
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        let resource = item.resource_field_ref.as_ref();
        if let Some(warning) = resource.and_then(resource_warning) {
            warnings.push(format!(
                "{field}.items[{i}].resourceFieldRef.resource: {warning}"
            ));
        }
    }
}

/// Only newer API servers know a container's own restart policy.
fn warn_about_restarts(
    container: &Container,
    is_init: bool,
    field: &str,
    warnings: &mut Vec<String>,
) {
    let rules = container.restart_policy_rules.as_ref();
    if rules.is_some_and(|rules| !rules.is_empty()) {
        warnings.push(format!(
            "{field}.restartPolicyRules: Kubernetes before 1.35 ignores or rejects these rules"
        ));
    }
    let policy = container.restart_policy.as_deref().unwrap_or_default();
    if is_init && policy == "Always" {
        let probes = [
            &container.liveness_probe,
            &container.readiness_probe,
            &container.startup_probe,
        ];
        if container.lifecycle.is_some() || probes.into_iter().any(Option::is_some) {
            warnings.push(format!(
                "{field}: Kubernetes before 1.29 rejects probes and hooks of init containers"
            ));
        }
        return;
    }
    if policy.is_empty() {
        return;
    }
    let instead = if is_init {
        "Always"
    } else {
        "the policy of the pod"
    };
    warnings.push(format!(
        "{field}.restartPolicy: Kubernetes before 1.35 ignores or rejects {policy} here and supports only {instead}"
    ));
}

/// An API server drops a handler that it does not know, and rejects the probe or hook without one.
fn warn_about_handlers(container: &Container, field: &str, warnings: &mut Vec<String>) {
    for (name, probe) in [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        if probe.as_ref().is_some_and(|probe| probe.grpc.is_some()) {
            warnings.push(format!(
                "{field}.{name}.grpc: Kubernetes before 1.24 rejects it"
            ));
        }
    }
    let Some(lifecycle) = &container.lifecycle else {
        return;
    };
    let field = format!("{field}.lifecycle");
    for (name, hook) in [
        ("postStart", &lifecycle.post_start),
        ("preStop", &lifecycle.pre_stop),
    ] {
        if hook.as_ref().is_some_and(|hook| hook.sleep.is_some()) {
            warnings.push(format!(
                "{field}.{name}.sleep: Kubernetes before 1.30 rejects it"
            ));
        }
    }
    if lifecycle.stop_signal.is_some() {
        warnings.push(format!(
            "{field}.stopSignal: Kubernetes ignores it unless the feature gate ContainerStopSignals is enabled, which is rare"
        ));
    }
}

fn warn_about_env(container: &Container, field: &str, warnings: &mut Vec<String>) {
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let Some(source) = &variable.value_from else {
            continue;
        };
        let field = format!("{field}.env[{i}].valueFrom");
        let of_pod = source.field_ref.as_ref();
        if of_pod.is_some_and(|of_pod| of_pod.field_path == "status.hostIPs") {
            warnings.push(format!(
                "{field}.fieldRef.fieldPath: Kubernetes before 1.29 rejects status.hostIPs"
            ));
        }
        let resource = source.resource_field_ref.as_ref();
        if let Some(warning) = resource.and_then(resource_warning) {
            warnings.push(format!("{field}.resourceFieldRef.resource: {warning}"));
        }
        if source.file_key_ref.is_some() {
            warnings.push(format!(
                "{field}.fileKeyRef: Kubernetes before 1.35 rejects it unless the feature gate EnvFiles is enabled"
            ));
        }
    }
}

/// Returns the warning about a resource in a file or variable.
fn resource_warning(source: &ResourceFieldSelector) -> Option<String> {
    let resource = source.resource.as_str();
    let (_, name) = resource.split_once('.')?;
    let is_huge = name.starts_with("hugepages-");
    is_huge.then(|| format!("Kubernetes before 1.22 rejects {resource}"))
}

/// An API server drops a volume type that it does not know, and rejects the volume without one.
pub(crate) fn warn_about_volumes(volumes: &[Volume], field: &str, warnings: &mut Vec<String>) {
    for (i, volume) in volumes.iter().enumerate() {
        let field = format!("{field}.volumes[{i}]");
        if let Some(ephemeral) = &volume.ephemeral {
            warnings.push(format!(
                "{field}.ephemeral: Kubernetes before 1.21 rejects it"
            ));
            let template = ephemeral.volume_claim_template.as_ref();
            let modes = template.and_then(|template| template.spec.access_modes.as_ref());
            if modes.is_some_and(|modes| modes.iter().any(|mode| mode == SINGLE_POD_MODE)) {
                warnings.push(format!(
                    "{field}.ephemeral.volumeClaimTemplate.spec.accessModes: Kubernetes before 1.27 rejects {SINGLE_POD_MODE}"
                ));
            }
        }
        if volume.image.is_some() {
            warnings.push(format!(
                "{field}.image: Kubernetes before 1.35 rejects it unless the feature gate ImageVolume is enabled"
            ));
        }
        let files = volume.downward_api.as_ref();
        warn_about_files(
            files.and_then(|f| f.items.as_deref()),
            &format!("{field}.downwardAPI"),
            warnings,
        );
        let projected = volume.projected.as_ref();
        let sources = projected.and_then(|projected| projected.sources.as_deref());
        for (j, source) in sources.unwrap_or_default().iter().enumerate() {
            let files = source.downward_api.as_ref();
            let place = format!("{field}.projected.sources[{j}].downwardAPI");
            warn_about_files(files.and_then(|f| f.items.as_deref()), &place, warnings);
            for (name, gate, is_set) in [
                (
                    "clusterTrustBundle",
                    "ClusterTrustBundleProjection",
                    source.cluster_trust_bundle.is_some(),
                ),
                (
                    "podCertificate",
                    "PodCertificateRequest",
                    source.pod_certificate.is_some(),
                ),
            ] {
                if is_set {
                    warnings.push(format!(
                        "{field}.projected.sources[{j}].{name}: Kubernetes rejects it unless the feature gate {gate} is enabled, which is rare"
                    ));
                }
            }
        }
    }
}

fn warn_about_amounts(container: &Container, field: &str, warnings: &mut Vec<String>) {
    let Some(resources) = &container.resources else {
        return;
    };
    for (list, name) in [
        (&resources.limits, "limits"),
        (&resources.requests, "requests"),
    ] {
        for (resource, quantity) in list.iter().flatten() {
            if let Some(warning) = amount_warning(resource, quantity) {
                warnings.push(format!("{field}.resources.{name}[{resource}]: {warning}"));
            }
        }
    }
}

fn amount_warning(resource: &str, Quantity(text): &Quantity) -> Option<String> {
    let amount = parse_nanos(text)?;
    if resource != "memory" {
        return None;
    }
    if amount % NANOS_PER_UNIT != 0 {
        return Some(format!(
            "fractional byte value {text:?} is invalid, must be an integer"
        ));
    }
    let is_small = amount > 0 && amount < MIN_MEMORY * NANOS_PER_UNIT;
    is_small.then(|| format!("{text} is too little for any container, is a unit missing?"))
}
