//! Default ports of replicas, and further ports of learner groups.

/// Default port of a collector.
pub const COLLECTOR: i32 = 22270;
/// Default port of a learner, and of the first process of a ddp learner.
pub const LEARNER: i32 = 22271;
/// Default port of an aggregator.
pub const AGGREGATOR: i32 = 22272;
/// Default port of a coordinator.
pub const COORDINATOR: i32 = 22273;
/// Rendezvous port of a learner group, see [`master_port`].
pub const MASTER: i32 = 10314;
/// Name of the rendezvous port.
pub const MASTER_NAME: &str = "master-port";
/// Name prefix of the ports of a ddp learner's further processes; their number follows.
pub const GPU_NAME_PREFIX: &str = "gpu-port-";

/// Returns the rendezvous port of `processes` processes on the ports from `first` on:
/// [`MASTER`], or the port after theirs if they use `MASTER`.
pub fn master_port(first: i32, processes: i32) -> i32 {
    let next = first.saturating_add(processes);
    if (first..next).contains(&MASTER) {
        next
    } else {
        MASTER
    }
}
