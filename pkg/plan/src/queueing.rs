//! The Workloads that a job in a queue of Kueue has: one for the coordinator and the declared
//! replicas, and one for each replica that is added later. See docs/decisions/0037.

mod placement;
mod pod_sets;
mod requests;
#[cfg(test)]
mod tests;

use di_api::{PlanEntry, names};

pub use placement::{FlavorView, PlacementConflict, build_placements, flavors_of};
pub use pod_sets::{PodSet, build_pod_sets, pod_set_name};
pub use requests::{
    KueueVersion, Priority, StatusPatch, WorkloadDraft, new_workload, patch_finished,
    patch_pods_ready, patch_reclaimable, release_quota, updated_workload,
};

/// Length of the longest suffix after the name of the base Workload: a role and an index.
const MAX_SUFFIX_LEN: usize = "-aggregator-1999".len();
const UID_LEN: usize = 5;

/// Name of the Workload of the coordinator and the declared replicas.
pub fn base_workload_name(job: &str, uid: &str) -> String {
    let prefix = "dijob-";
    // Other names of the job's objects end with a suffix too, so a job name is never this long.
    let max_len = names::MAX_POD_NAME_LEN - MAX_SUFFIX_LEN - prefix.len() - UID_LEN - 1;
    let job = job.get(..max_len).unwrap_or(job);
    let job = job.trim_end_matches(['-', '.']);
    let uid: String = uid
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(UID_LEN)
        .collect();
    format!("{prefix}{job}-{uid}")
}

/// Name of the Workload of a replica with quota of its own; of a learner group, if the entry is its
/// aggregator. A replacement has the same one.
pub fn replica_workload_name(base: &str, owner: &PlanEntry) -> String {
    format!("{base}-{}-{}", owner.role.label(), owner.index)
}
