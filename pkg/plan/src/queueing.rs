//! The Workloads that a job in a queue of Kueue has: one for the coordinator and the declared
//! replicas, and one for each replica that is added later. See docs/decisions/0037.

mod placement;
mod pod_sets;
mod requests;
#[cfg(test)]
mod tests;

use di_api::PlanEntry;

pub use placement::{FlavorView, PlacementConflict, build_placements, flavors_of};
pub(crate) use pod_sets::coordinator_entry;
pub use pod_sets::{PodSet, build_pod_sets, pod_set_name};
pub use requests::{
    KueueVersion, Priority, StatusPatch, WorkloadDraft, new_workload, patch_finished,
    patch_pods_ready, patch_reclaimable, release_quota, updated_workload,
};

/// Name of the Workload of a replica with quota of its own; of a learner group, if the entry is its
/// aggregator. A replacement has the same one.
pub fn replica_workload_name(base: &str, owner: &PlanEntry) -> String {
    format!("{base}-{}-{}", owner.role.label(), owner.index)
}
