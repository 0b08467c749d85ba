//! What a pod has that some servers or nodes refuse, or that is seldom meant.

use k8s_openapi::{
    api::core::v1::{Container, DownwardAPIVolumeFile, PodSpec, ResourceFieldSelector, Volume},
    apimachinery::pkg::api::resource::Quantity,
};

use super::{disks::OF_ONE_POD, dns::ROOT};
use crate::quantity::{NANO, nanos};

/// Those that every kubelet takes; another ends the pod, unless the kubelet was told to take it.
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
/// Search domains that servers before 1.26 take.
const FEW_SEARCHES: usize = 6;
/// Characters that they have at most, with a space between two.
const SHORT_SEARCHES: usize = 256;
/// Bytes that no container starts in.
const TOO_SMALL: i128 = 1 << 20;

/// Of a pod that could be read.
pub(super) fn of_pod(pod: &PodSpec, field: &str, warnings: &mut Vec<String>) {
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    for (list, kind) in [(inits, "initContainers"), (&pod.containers, "containers")] {
        for (i, container) in list.iter().enumerate() {
            let field = format!("{field}.{kind}[{i}]");
            of_restarts(container, kind == "initContainers", &field, warnings);
            of_handlers(container, &field, warnings);
            of_env(container, &field, warnings);
            of_amounts(container, &field, warnings);
        }
    }
    let volumes = pod.volumes.as_deref().unwrap_or_default();
    of_volumes(volumes, field, warnings);
    let context = pod.security_context.as_ref();
    let sysctls = context.and_then(|context| context.sysctls.as_deref());
    for (i, sysctl) in sysctls.unwrap_or_default().iter().enumerate() {
        if sysctl.name.contains('/') {
            warnings.push(format!(
                "{field}.securityContext.sysctls[{i}].name: servers before 1.25 refuse {} for its slashes",
                sysctl.name
            ));
        }
        if !SAFE_SYSCTLS.contains(&sysctl.name.replace('/', ".").as_str()) {
            warnings.push(format!(
                "{field}.securityContext.sysctls[{i}].name: {} is not among the safe sysctls: only a kubelet that was told to allow it runs the pod",
                sysctl.name
            ));
        }
    }
    for (i, gate) in pod.scheduling_gates.iter().flatten().enumerate() {
        warnings.push(format!(
            "{field}.schedulingGates[{i}]: no pod is scheduled before somebody has removed {} from it",
            gate.name
        ));
    }
    for (i, toleration) in pod.tolerations.iter().flatten().enumerate() {
        if let Some(operator @ ("Lt" | "Gt")) = toleration.operator.as_deref() {
            warnings.push(format!(
                "{field}.tolerations[{i}].operator: servers before 1.35 refuse {operator}, and newer ones that do not enable TaintTolerationComparisonOperators"
            ));
        }
    }
    let config = pod.dns_config.as_ref();
    let searches = config.and_then(|config| config.searches.as_deref());
    let long = |searches: &[String]| searches.join(" ").len() > SHORT_SEARCHES;
    if searches.is_some_and(|searches| searches.len() > FEW_SEARCHES || long(searches)) {
        warnings.push(format!(
            "{field}.dnsConfig.searches: servers before 1.26 take {FEW_SEARCHES} at most, of {SHORT_SEARCHES} characters together"
        ));
    }
    for (i, domain) in searches.unwrap_or_default().iter().enumerate() {
        if domain == ROOT {
            warnings.push(format!(
                "{field}.dnsConfig.searches[{i}]: servers before 1.33 refuse {ROOT}"
            ));
        }
    }
}

fn of_files(items: Option<&[DownwardAPIVolumeFile]>, field: &str, warnings: &mut Vec<String>) {
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        let resource = item.resource_field_ref.as_ref();
        if let Some(doubt) = resource.and_then(of_resource) {
            warnings.push(format!(
                "{field}.items[{i}].resourceFieldRef.resource: {doubt}"
            ));
        }
    }
}

/// A container's own policy is known to newer servers only, and not to all of them everywhere.
fn of_restarts(container: &Container, is_init: bool, field: &str, warnings: &mut Vec<String>) {
    let rules = container.restart_policy_rules.as_ref();
    if rules.is_some_and(|rules| !rules.is_empty()) {
        warnings.push(format!(
            "{field}.restartPolicyRules: servers before 1.35 ignore or refuse them"
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
                "{field}: servers before 1.29 refuse probes and hooks of init containers"
            ));
        }
        return;
    }
    if policy.is_empty() {
        return;
    }
    let instead = if is_init { "Always" } else { "that of the pod" };
    warnings.push(format!(
        "{field}.restartPolicy: servers before 1.35 ignore or refuse {policy} here, they know {instead} only"
    ));
}

/// What a server does not know is no handler to it, and a probe or a hook without one is refused.
fn of_handlers(container: &Container, field: &str, warnings: &mut Vec<String>) {
    for (name, probe) in [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        if probe.as_ref().is_some_and(|probe| probe.grpc.is_some()) {
            warnings.push(format!(
                "{field}.{name}.grpc: servers before 1.24 refuse it"
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
                "{field}.{name}.sleep: servers before 1.30 refuse it"
            ));
        }
    }
    if lifecycle.stop_signal.is_some() {
        warnings.push(format!(
            "{field}.stopSignal: servers that do not enable ContainerStopSignals, as most do not, ignore it"
        ));
    }
}

fn of_env(container: &Container, field: &str, warnings: &mut Vec<String>) {
    for (i, variable) in container.env.iter().flatten().enumerate() {
        let Some(source) = &variable.value_from else {
            continue;
        };
        let field = format!("{field}.env[{i}].valueFrom");
        let of_pod = source.field_ref.as_ref();
        if of_pod.is_some_and(|of_pod| of_pod.field_path == "status.hostIPs") {
            warnings.push(format!(
                "{field}.fieldRef.fieldPath: servers before 1.29 refuse status.hostIPs"
            ));
        }
        let resource = source.resource_field_ref.as_ref();
        if let Some(doubt) = resource.and_then(of_resource) {
            warnings.push(format!("{field}.resourceFieldRef.resource: {doubt}"));
        }
        if source.file_key_ref.is_some() {
            warnings.push(format!(
                "{field}.fileKeyRef: servers before 1.35 refuse it, but for those that enable EnvFiles"
            ));
        }
    }
}

/// An amount that files or variables tell.
fn of_resource(source: &ResourceFieldSelector) -> Option<String> {
    let resource = source.resource.as_str();
    let (_, name) = resource.split_once('.')?;
    let is_huge = name.starts_with("hugepages-");
    is_huge.then(|| format!("servers before 1.22 refuse {resource}"))
}

/// Volumes of types that servers do not know have none to them.
pub(super) fn of_volumes(volumes: &[Volume], field: &str, warnings: &mut Vec<String>) {
    for (i, volume) in volumes.iter().enumerate() {
        let field = format!("{field}.volumes[{i}]");
        if let Some(ephemeral) = &volume.ephemeral {
            warnings.push(format!("{field}.ephemeral: servers before 1.21 refuse it"));
            let template = ephemeral.volume_claim_template.as_ref();
            let modes = template.and_then(|template| template.spec.access_modes.as_ref());
            if modes.is_some_and(|modes| modes.iter().any(|mode| mode == OF_ONE_POD)) {
                warnings.push(format!(
                    "{field}.ephemeral.volumeClaimTemplate.spec.accessModes: servers before 1.27 refuse {OF_ONE_POD}"
                ));
            }
        }
        if volume.image.is_some() {
            warnings.push(format!(
                "{field}.image: servers before 1.35 refuse it, but for those that enable ImageVolume"
            ));
        }
        let files = volume.downward_api.as_ref();
        of_files(
            files.and_then(|f| f.items.as_deref()),
            &format!("{field}.downwardAPI"),
            warnings,
        );
        let projected = volume.projected.as_ref();
        let sources = projected.and_then(|projected| projected.sources.as_deref());
        for (j, source) in sources.unwrap_or_default().iter().enumerate() {
            let files = source.downward_api.as_ref();
            let place = format!("{field}.projected.sources[{j}].downwardAPI");
            of_files(files.and_then(|f| f.items.as_deref()), &place, warnings);
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
                        "{field}.projected.sources[{j}].{name}: servers that do not enable {gate}, as most do not, refuse it"
                    ));
                }
            }
        }
    }
}

fn of_amounts(container: &Container, field: &str, warnings: &mut Vec<String>) {
    let Some(resources) = &container.resources else {
        return;
    };
    for (list, name) in [
        (&resources.limits, "limits"),
        (&resources.requests, "requests"),
    ] {
        for (resource, quantity) in list.iter().flatten() {
            if let Some(doubt) = of_amount(resource, quantity) {
                warnings.push(format!("{field}.resources.{name}[{resource}]: {doubt}"));
            }
        }
    }
}

fn of_amount(resource: &str, Quantity(text): &Quantity) -> Option<String> {
    let amount = nanos(text)?;
    if resource != "memory" {
        return None;
    }
    if amount % NANO != 0 {
        return Some(format!(
            "fractional byte value {text:?} is invalid, must be an integer"
        ));
    }
    let is_small = amount > 0 && amount < TOO_SMALL * NANO;
    is_small.then(|| format!("{text} is too little for any container, is a unit missing?"))
}
