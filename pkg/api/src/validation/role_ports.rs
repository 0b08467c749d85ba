//! Rules for the ports of replicas: the port `di-port` and those of ddp learners.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};

use super::{
    fault::{Fault, Faults},
    path::Path,
};
use crate::names::{MAIN_CONTAINER, PORT_NAME, ports};

/// Highest port number.
pub(super) const MAX_PORT: i32 = 65535;

/// Checks that no other port conflicts with those of ddp learners on the node's network: from
/// `first` on, one for each GPU. An unnamed port of the main container counts as a port of the ddp
/// learner.
pub(super) fn check_ddp_ports(
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
            let why = if (first..=last).contains(&number) {
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
pub(super) fn check_own_port_unique(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let mut owner: Option<&str> = None;
    for (i, container) in pod.containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            if name_of(port) != PORT_NAME {
                continue;
            }
            // The API server rejects duplicates within one container.
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
pub(super) fn check_reserved_names(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    for (i, container) in pod.containers.iter().enumerate() {
        if container.name != MAIN_CONTAINER {
            continue;
        }
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let name = name_of(port);
            if is_ddp_name(name) {
                let field = field.child("containers").index(i);
                let field = field.child("ports").index(j);
                let why = "is reserved for a port of ddp learners; choose another name";
                faults.push(Fault::invalid(field.child("name"), name, why));
            }
        }
    }
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
