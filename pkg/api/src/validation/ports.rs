use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};

use super::{Fault, names};
use crate::names::{MAIN_CONTAINER, PORT_NAME, ports};

/// The last port that there is.
pub(super) const LAST: i32 = 65535;

/// The ports of a container: numbers, protocols and names.
pub(super) fn check(container: &Container, field: &str, faults: &mut Vec<Fault>) {
    let ports = container.ports.as_deref().unwrap_or_default();
    for (i, port) in ports.iter().enumerate() {
        let field = format!("{field}.ports[{i}]");
        check_number(
            port.container_port,
            &format!("{field}.containerPort"),
            faults,
        );
        if let Some(number) = port.host_port.filter(|number| *number != 0) {
            check_number(number, &format!("{field}.hostPort"), faults);
        }
        if let Some(protocol) = &port.protocol
            && !["", "SCTP", "TCP", "UDP"].contains(&protocol.as_str())
        {
            let field = format!("{field}.protocol");
            let supported = ["SCTP", "TCP", "UDP"];
            faults.push(Fault::not_supported(field, protocol.as_str(), &supported));
        }
        let name = name(port);
        if !name.is_empty() {
            let field = format!("{field}.name");
            names::check_port_name(name, &field, faults);
            names::check_unique(ports[..i].iter().map(self::name), name, &field, faults);
        }
    }
}

/// The replica's own port stands once in a pod: its service and its environment tell of one.
pub(super) fn check_own(pod: &PodSpec, field: &str, faults: &mut Vec<Fault>) {
    let mut holder: Option<&str> = None;
    for (i, container) in pod.containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            if name(port) != PORT_NAME {
                continue;
            }
            // Within one container it is a duplicate as any other name is.
            if holder.is_some_and(|holder| holder != container.name) {
                let field = format!("{field}.containers[{i}].ports[{j}].name");
                faults.push(Fault::duplicate(field, PORT_NAME));
            }
            holder.get_or_insert(&container.name);
        }
    }
}

/// Ports of ddp learners have names that the main container of a learner must leave to them.
pub(super) fn check_reserved(pod: &PodSpec, field: &str, faults: &mut Vec<Fault>) {
    for (i, container) in pod.containers.iter().enumerate() {
        if container.name != MAIN_CONTAINER {
            continue;
        }
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let name = name(port);
            let number = name
                .strip_prefix(ports::GPU_NAME_PREFIX)
                .unwrap_or_default();
            if name == ports::MASTER_NAME || number.parse::<u32>().is_ok() {
                faults.push(Fault::invalid(
                    format!("{field}.containers[{i}].ports[{j}].name"),
                    name,
                    "is the name of a port that ddp learners are given; choose another",
                ));
            }
        }
    }
}

fn name(port: &ContainerPort) -> &str {
    port.name.as_deref().unwrap_or_default()
}

/// The replica's own port, where its template names it.
pub(super) fn own(pod: &PodSpec) -> Option<i32> {
    let mut ports = pod.containers.iter().flat_map(|c| c.ports.iter().flatten());
    let own = ports.find(|port| name(port) == PORT_NAME)?;
    Some(own.container_port)
}

fn check_number(number: i32, field: &str, faults: &mut Vec<Fault>) {
    if !(1..=LAST).contains(&number) {
        let why = "must be between 1 and 65535, inclusive";
        faults.push(Fault::invalid(field, number, why));
    }
}
