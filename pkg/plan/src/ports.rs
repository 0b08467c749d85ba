//! The ports of replicas.

use di_api::{PlanEntry, Role, names};
use k8s_openapi::api::core::v1::PodSpec;

use crate::Job;

/// The port named `di-port` of a pod.
pub fn named_port(spec: &PodSpec) -> Option<i32> {
    spec.containers
        .iter()
        .filter_map(|container| container.ports.as_ref())
        .flatten()
        .find(|port| port.name.as_deref() == Some(names::PORT_NAME))
        .map(|port| port.container_port)
}

/// Port of one replica, by which its URL tells where it listens.
pub fn port_of(job: &impl Job, entry: &PlanEntry) -> i32 {
    let base = entry.port.unwrap_or_else(|| job.port(entry.role));
    base + entry.ddp.as_ref().map_or(0, |place| place.start_rank)
}

/// Every port of a replica, by name: a process of rank n listens n ports after that of rank 0.
pub(crate) fn ports(job: &impl Job, entry: &PlanEntry) -> Vec<(String, i32)> {
    let own = port_of(job, entry);
    let mut all = vec![(names::PORT_NAME.to_owned(), own)];
    if let Some(place) = &entry.ddp {
        let further =
            (1..entry.gpus()).map(|i| (format!("{}{i}", names::ports::GPU_NAME_PREFIX), own + i));
        all.extend(further);
        if place.master.is_none() {
            all.push((names::ports::MASTER_NAME.to_owned(), master(job, entry)));
        }
    }
    all
}

/// Where the processes of a logic learner meet.
pub(crate) fn master(job: &impl Job, entry: &PlanEntry) -> i32 {
    let base = job.port(Role::DdpLearner);
    let world = entry.ddp.as_ref().map_or(0, |place| place.world_size);
    names::ports::master(base, world)
}
