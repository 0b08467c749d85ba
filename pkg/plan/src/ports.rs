//! The ports of replicas.

use di_api::{PlanEntry, Role, names};

use crate::job::Job;

/// The port in the URL of a replica.
pub fn port_of_entry(job: &impl Job, entry: &PlanEntry) -> i32 {
    let base = entry.port.unwrap_or_else(|| job.role_port(entry.role));
    base + entry.ddp.as_ref().map_or(0, |place| place.start_rank)
}

/// All ports of a replica with their names. The port of the process with rank n is n above that
/// of rank 0.
pub(crate) fn replica_ports(job: &impl Job, entry: &PlanEntry) -> Vec<(String, i32)> {
    let first = port_of_entry(job, entry);
    let mut all = vec![(names::PORT_NAME.to_owned(), first)];
    if let Some(place) = &entry.ddp {
        let others = (1..entry.gpu_count())
            .map(|i| (format!("{}{i}", names::ports::GPU_NAME_PREFIX), first + i));
        all.extend(others);
        if place.master.is_none() {
            all.push((
                names::ports::MASTER_NAME.to_owned(),
                master_port(job, entry),
            ));
        }
    }
    all
}

/// The rendezvous port of the processes of a learner group (`MASTER_PORT`).
pub(crate) fn master_port(job: &impl Job, entry: &PlanEntry) -> i32 {
    let base = job.role_port(Role::DdpLearner);
    let world = entry.ddp.as_ref().map_or(0, |place| place.world_size);
    names::ports::master_port(base, world)
}
