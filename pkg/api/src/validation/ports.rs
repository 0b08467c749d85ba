use std::collections::{BTreeSet, HashSet};

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};

use super::{
    Fault, Faults, Path,
    basic::{check_between, check_one_of},
    names,
};
use crate::{
    Role,
    names::{MAIN_CONTAINER, PORT_NAME, ports},
};

/// The last port that there is.
pub(super) const LAST: i32 = 65535;
const NUMBERS: (i64, i64) = (1, LAST as i64);

/// The ports of a container: numbers, protocols and names.
pub(super) fn check(container: &Container, field: &Path<'_>, faults: &mut Faults) {
    let ports = container.ports.as_deref().unwrap_or_default();
    let mut earlier = HashSet::new();
    for (i, port) in ports.iter().enumerate() {
        let field = field.item("ports", i);
        let number = Some(port.container_port);
        check_between(number, NUMBERS, &field.at("containerPort"), faults);
        let number = port.host_port.filter(|number| *number != 0);
        check_between(number, NUMBERS, &field.at("hostPort"), faults);
        let protocol = port.protocol.as_deref();
        let supported = ["SCTP", "TCP", "UDP"];
        check_one_of(protocol, &supported, &field.at("protocol"), faults);
        let name = name(port);
        if !name.is_empty() {
            let field = field.at("name");
            names::check_port_name(name, &field, faults);
            names::check_unique(&mut earlier, name, &field, faults);
        }
    }
}

/// Ports that the containers of a pod share.
pub(super) fn check_pod(pod: &PodSpec, role: Role, field: &Path<'_>, faults: &mut Faults) {
    check_own(pod, field, faults);
    let mut taken: HashSet<_> = given(pod, role)
        .map(|number| format!("TCP//{number}"))
        .into_iter()
        .collect();
    let on_host = pod.host_network == Some(true);
    for (i, container) in pod.containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let wanted = port.host_port.filter(|number| *number != 0);
            if on_host && wanted.is_some_and(|wanted| wanted != port.container_port) {
                let why = "must match `hostPort` when `hostNetwork` is true";
                let field = field.item("containers", i);
                let field = field.item("ports", j);
                let field = field.at("containerPort");
                faults.push(Fault::invalid(field, port.container_port, why));
            }
        }
        let field = field.item("containers", i);
        take(container, on_host, &mut taken, &field, faults);
    }
    // These run one after another, before the others.
    for (i, container) in pod.init_containers.iter().flatten().enumerate() {
        let field = field.item("initContainers", i);
        take(container, on_host, &mut HashSet::new(), &field, faults);
    }
}

/// Ports of the node, each of which one container has.
fn take(
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
        let protocol = protocol(port);
        let host = port.host_ip.as_deref().unwrap_or_default();
        let place = format!("{protocol}/{host}/{number}");
        if let Some(place) = taken.replace(place) {
            let field = field.item("ports", i);
            faults.push(Fault::duplicate(field.at("hostPort"), place));
        }
    }
}

/// The port of the node that the replica's own is, where its template tells of none: the main container is given it.
fn given(pod: &PodSpec, role: Role) -> Option<i32> {
    let number = role.default_port();
    let stands = |port: &ContainerPort| {
        name(port).is_empty() && port.container_port == number && is_tcp(port)
    };
    let mains = pod.containers.iter().filter(|c| c.name == MAIN_CONTAINER);
    let is_told = own(pod).is_some() || mains.flat_map(|c| c.ports.iter().flatten()).any(stands);
    (pod.host_network == Some(true) && !is_told).then_some(number)
}

/// Ports of the node that learners of so many GPUs are given, from their own on: others may not want them. One that stands without its name
/// is theirs.
pub(super) fn check_ddp(
    pod: &PodSpec,
    first: i32,
    sizes: &BTreeSet<i32>,
    field: &Path<'_>,
    faults: &mut Faults,
) {
    let Some(most) = sizes.last().filter(|_| pod.host_network == Some(true)) else {
        return;
    };
    let last = first.saturating_add(most - 1);
    let masters: BTreeSet<_> = sizes
        .iter()
        .map(|gpus| ports::master(first, *gpus))
        .collect();
    for (i, container) in pod.containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let number = port.container_port;
            let is_main = container.name == MAIN_CONTAINER;
            let on_all = port.host_ip.as_deref().unwrap_or_default().is_empty();
            let is_theirs = is_given_name(name(port)) || name(port).is_empty() && is_main;
            if !is_tcp(port) || !on_all || is_theirs {
                continue;
            }
            let why = if number > first && number <= last {
                format!(
                    "is taken on the node's network by the processes of a learner of {most} GPUs, which have the ports {first} to {last}; choose another"
                )
            } else if masters.contains(&number) {
                let name = ports::MASTER_NAME;
                format!(
                    "is taken on the node's network by the {name}, where the processes of a learner of several GPUs meet; choose another"
                )
            } else {
                continue;
            };
            let field = field.item("containers", i);
            let field = field.item("ports", j);
            faults.push(Fault::invalid(field.at("hostPort"), number, why));
        }
    }
}

/// Whether ports of pods are given this name.
fn is_given_name(name: &str) -> bool {
    name == PORT_NAME || is_ddp_name(name)
}

/// Whether ports of ddp learners are given this name.
fn is_ddp_name(name: &str) -> bool {
    let number = name.strip_prefix(ports::GPU_NAME_PREFIX);
    name == ports::MASTER_NAME || number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// The replica's own port stands once in a pod: its service and its environment tell of one.
fn check_own(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    let mut holder: Option<&str> = None;
    for (i, container) in pod.containers.iter().enumerate() {
        for (j, port) in container.ports.iter().flatten().enumerate() {
            if name(port) != PORT_NAME {
                continue;
            }
            // Within one container it is a duplicate as any other name is.
            if holder.is_some_and(|holder| holder != container.name) {
                let field = field.item("containers", i);
                let field = field.item("ports", j);
                faults.push(Fault::duplicate(field.at("name"), PORT_NAME));
            }
            holder.get_or_insert(&container.name);
        }
    }
}

/// Ports of ddp learners have names that the main container of a learner must leave to them.
pub(super) fn check_reserved(pod: &PodSpec, field: &Path<'_>, faults: &mut Faults) {
    for (i, container) in pod.containers.iter().enumerate() {
        if container.name != MAIN_CONTAINER {
            continue;
        }
        for (j, port) in container.ports.iter().flatten().enumerate() {
            let name = name(port);
            if is_ddp_name(name) {
                faults.push(Fault::invalid(
                    field.item("containers", i).item("ports", j).at("name"),
                    name,
                    "is the name of a port that ddp learners are given; choose another",
                ));
            }
        }
    }
}

/// Whether a container has a port of this name, its own or one that it is given.
pub(super) fn has_named(container: &Container, pod: &PodSpec, wanted: &str) -> bool {
    let is_ddp = wanted == ports::MASTER_NAME || wanted.starts_with(ports::GPU_NAME_PREFIX);
    let is_own = wanted == PORT_NAME && own(pod).is_none();
    let is_given = container.name == MAIN_CONTAINER && (is_own || is_ddp);
    let mut named = container.ports.iter().flatten().map(name);
    is_given || named.any(|name| name == wanted)
}

/// Kubernetes fills in what is empty.
fn protocol(port: &ContainerPort) -> &str {
    let protocol = port.protocol.as_deref().unwrap_or_default();
    if protocol.is_empty() { "TCP" } else { protocol }
}

fn is_tcp(port: &ContainerPort) -> bool {
    protocol(port) == "TCP"
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
