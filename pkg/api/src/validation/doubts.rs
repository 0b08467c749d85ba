//! What a pod has that some servers or nodes refuse, or that is seldom meant.

use k8s_openapi::{
    api::core::v1::{Container, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
};

use super::dns::ROOT;
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
/// Bytes that no container starts in.
const TOO_SMALL: i128 = 1 << 20;

/// Of a pod that could be read.
pub(super) fn of_pod(pod: &PodSpec, field: &str, warnings: &mut Vec<String>) {
    let inits = pod.init_containers.as_deref().unwrap_or_default();
    for (list, kind) in [(inits, "initContainers"), (&pod.containers, "containers")] {
        for (i, container) in list.iter().enumerate() {
            let field = format!("{field}.{kind}[{i}]");
            of_restarts(container, kind == "initContainers", &field, warnings);
            of_stop(container, &field, warnings);
            of_amounts(container, &field, warnings);
        }
    }
    let context = pod.security_context.as_ref();
    let sysctls = context.and_then(|context| context.sysctls.as_deref());
    for (i, sysctl) in sysctls.unwrap_or_default().iter().enumerate() {
        if !SAFE_SYSCTLS.contains(&sysctl.name.as_str()) {
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
    if searches.is_some_and(|searches| searches.len() > FEW_SEARCHES) {
        warnings.push(format!(
            "{field}.dnsConfig.searches: servers before 1.26 take {FEW_SEARCHES} at most"
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

/// A container's own policy is known to newer servers only, and not to all of them everywhere.
fn of_restarts(container: &Container, is_init: bool, field: &str, warnings: &mut Vec<String>) {
    let rules = container.restart_policy_rules.as_ref();
    if rules.is_some_and(|rules| !rules.is_empty()) {
        warnings.push(format!(
            "{field}.restartPolicyRules: servers before 1.35 ignore or refuse them"
        ));
    }
    let policy = container.restart_policy.as_deref().unwrap_or_default();
    if policy.is_empty() || (is_init && policy == "Always") {
        return;
    }
    let instead = if is_init { "Always" } else { "that of the pod" };
    warnings.push(format!(
        "{field}.restartPolicy: servers before 1.35 ignore or refuse {policy} here, they know {instead} only"
    ));
}

fn of_stop(container: &Container, field: &str, warnings: &mut Vec<String>) {
    let lifecycle = container.lifecycle.as_ref();
    if lifecycle.is_some_and(|lifecycle| lifecycle.stop_signal.is_some()) {
        warnings.push(format!(
            "{field}.lifecycle.stopSignal: servers that do not enable ContainerStopSignals, as most do not, ignore it"
        ));
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
