use std::collections::{BTreeSet, HashSet};

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};

use super::super::{
    fault::{Fault, Faults},
    names,
    path::Path,
    value_checks::{check_between, check_one_of},
};
use crate::{
    names::{MAIN_CONTAINER, PORT_NAME, ports},
    role::Role,
};

/// Highest port number.
pub(crate) const MAX_PORT: i32 = 65535;
const PORT_RANGE: (i64, i64) = (1, MAX_PORT as i64);

/// Checks numbers, protocols and names of a container's ports.
pub(crate) fn check_container_ports(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let ports = container.ports.as_deref().unwrap_or_default();
    let mut earlier = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let field = field.child("ports").index(i);
        let number = Some(port.container_port);
        check_between(number, PORT_RANGE, &field.child("containerPort"), faults);
        let number = port.host_port.filter(|number| *number != 0);
        check_between(number, PORT_RANGE, &field.child("hostPort"), faults);
        let protocol = port.protocol.as_deref();
        let supported = ["SCTP", "TCP", "UDP"];
        check_one_of(protocol, &supported, &field.child("protocol"), faults);
        let name = name_of(port);
        if !name.is_empty() {
            let field = field.child("name");
            names::check_port_name(name, &field, faults);
            names::check_unique(&mut earlier, name, &field, faults);
        }
    }
}

/// Checks the ports of all containers of a pod for conflicts.
pub(crate) fn check_pod_ports(pod: &PodSpec, role: Role, field: &Path<'_>, faults: &mut Faults) {
    check_own_port_unique(pod, field, faults);
    let mut taken: HashSet<_> = added_host_port(pod, role)
        .map(|number| format!("TCP//{number}"))
        .into_iter()
        .collect();
    let on_host = pod.host_network == Some(true);
    for (i, container) in pod.containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let wanted = port.host_port.filter(|number| *number != 0);
            if on_host && wanted.is_some_and(|wanted| wanted != port.container_port) {
                let why = "must match `hostPort` when `hostNetwork` is true";
                let field = field.child("containers").index(i);
                let field = field.child("ports").index(j);
                let field = field.child("containerPort");
                faults.push(Fault::invalid(field, port.container_port, why));
            }
        }
        let field = field.child("containers").index(i);
        reserve_host_ports(container, on_host, &mut taken, &field, faults);
    }
    // Init containers run one after another, before the containers.
    for (i, container) in pod.init_containers.iter().flatten().enumerate() {
        let field = field.child("initContainers").index(i);
        reserve_host_ports(container, on_host, &mut HashSet::new(), &field, faults);
    }
}

/// Reserves the container's ports on the node, and reports those that another container has.
fn reserve_host_ports(
    container: &Container,
    on_host: bool,
    taken: &mut HashSet<String>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    for (i, port) in container.ports.iter().flatten().enumerate() {
        let wanted = port.host_port.filter(|number| *number != 0);
        let Some(number) = wanted.or(on_host.then_some(port.container_port)) else {
            continue;
        };
        let protocol = protocol_of(port);
        let host = port.host_ip.as_deref().unwrap_or_default();
        let key = format!("{protocol}/{host}/{number}");
        if let Some(key) = taken.replace(key) {
            let field = field.child("ports").index(i);
            faults.push(Fault::duplicate(field.child("hostPort"), key));
        }
    }
}

/// Returns the default port if the pod builder adds it to the main container and the pod uses the
/// node's network.
fn added_host_port(pod: &PodSpec, role: Role) -> Option<i32> {
    let number = role.default_port();
    let is_unnamed_default = |port: &ContainerPort| {
        name_of(port).is_empty() && port.container_port == number && is_tcp(port)
    };
    let mains = pod.containers.iter().filter(|c| c.name == MAIN_CONTAINER);
    let has_own_port = own_port(pod).is_some()
        || mains
            .flat_map(|c| c.ports.iter().flatten())
            .any(is_unnamed_default);
    (pod.host_network == Some(true) && !has_own_port).then_some(number)
}

/// Checks that no other port conflicts with those of ddp learners on the node's network: from
/// `first` on, one for each GPU. An unnamed port of the main container counts as a port of the ddp
/// learner.
pub(crate) fn check_ddp_ports(
    pod: &PodSpec,
    first: i32,
    sizes: &BTreeSet<i32>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let Some(max_gpus) = sizes.last().filter(|_| pod.host_network == Some(true)) else {
        return;
    };
    let last = first.saturating_add(max_gpus - 1);
    let masters: BTreeSet<_> = sizes
        .iter()
        .map(|gpus| ports::master_port(first, *gpus))
        .collect();
    for (i, container) in pod.containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let number = port.container_port;
            let is_main = container.name == MAIN_CONTAINER;
            let on_all_addresses = port.host_ip.as_deref().unwrap_or_default().is_empty();
            let belongs_to_ddp =
                is_added_name(name_of(port)) || name_of(port).is_empty() && is_main;
            if !is_tcp(port) || !on_all_addresses || belongs_to_ddp {
                continue;
            }
            let why = if number > first && number <= last {
                format!(
                    "conflicts with ports {first} to {last}, which a learner with {max_gpus} GPUs uses on the host network; choose another port"
                )
            } else if masters.contains(&number) {
                let name = ports::MASTER_NAME;
                format!(
                    "conflicts with {name}, the rendezvous port of a learner with several GPUs, on the host network; choose another port"
                )
            } else {
                continue;
            };
            let field = field.child("containers").index(i);
            let field = field.child("ports").index(j);
            faults.push(Fault::invalid(field.child("hostPort"), number, why));
        }
    }
}

/// Whether the pod builder adds ports of this name.
fn is_added_name(name: &str) -> bool {
    name == PORT_NAME || is_ddp_name(name)
}

/// Whether the pod builder adds ports of this name to ddp learners.
fn is_ddp_name(name: &str) -> bool {
    let number = name.strip_prefix(ports::GPU_NAME_PREFIX);
    name == ports::MASTER_NAME || number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Checks that only one container has the replica's own port, because its service and environment
/// refer to one port.
fn check_own_port_unique(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let mut owner: Option<&str> = None;
    for (i, container) in pod.containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            if name_of(port) != PORT_NAME {
                continue;
            }
            // Duplicates within one container are reported by `check_container_ports`.
            if owner.is_some_and(|owner| owner != container.name) {
                let field = field.child("containers").index(i);
                let field = field.child("ports").index(j);
                faults.push(Fault::duplicate(field.child("name"), PORT_NAME));
            }
            owner.get_or_insert(&container.name);
        }
    }
}

/// Checks that the main container of a learner does not use port names of ddp learners.
pub(crate) fn check_reserved_names(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    for (i, container) in pod.containers.iter().enumerate() {
        if container.name != MAIN_CONTAINER {
            continue;
        }
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let name = name_of(port);
            if is_ddp_name(name) {
                faults.push(Fault::invalid(
                    field
                        .child("containers")
                        .index(i)
                        .child("ports")
                        .index(j)
                        .child("name"),
                    name,
                    "is reserved for a port of ddp learners; choose another name",
                ));
            }
        }
    }
}

/// Whether a container has a port of this name, in its template or added by the pod builder.
pub(crate) fn has_port_named(container: &Container, pod: &PodSpec, wanted: &str) -> bool {
    let is_ddp = wanted == ports::MASTER_NAME || wanted.starts_with(ports::GPU_NAME_PREFIX);
    let is_own = wanted == PORT_NAME && own_port(pod).is_none();
    let is_added = container.name == MAIN_CONTAINER && (is_own || is_ddp);
    let mut named = container.ports.iter().flatten().map(name_of);
    is_added || named.any(|name| name == wanted)
}

/// Returns the protocol, which Kubernetes defaults to TCP.
fn protocol_of(port: &ContainerPort) -> &str {
    let protocol = port.protocol.as_deref().unwrap_or_default();
    if protocol.is_empty() { "TCP" } else { protocol }
}

fn is_tcp(port: &ContainerPort) -> bool {
    protocol_of(port) == "TCP"
}

fn name_of(port: &ContainerPort) -> &str {
    port.name.as_deref().unwrap_or_default()
}

/// Returns the replica's own port if its template names one.
pub(crate) fn own_port(pod: &PodSpec) -> Option<i32> {
    let mut ports = pod.containers.iter().flat_map(|c| c.ports.iter().flatten());
    let own = ports.find(|port| name_of(port) == PORT_NAME)?;
    Some(own.container_port)
}
