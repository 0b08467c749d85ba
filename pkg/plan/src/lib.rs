//! The plan of a job: the names of its replicas, and the pods and services built from them.
//!
//! All functions are pure and do no IO.

mod aggregator;
mod allocation;
mod build;
mod gang;
mod job;
mod listing;
mod membership;
mod named_port;
mod names;
mod ops;
mod pod;
mod ports;
mod queueing;
mod resource_share;
mod view;

pub use aggregator::AggregatorTemplate;
pub use allocation::{Allocation, SimpleAllocation};
pub use build::{BuildSettings, NewPod, build_service, template_of};
pub use gang::{
    GangScheduler, GangSetting, GroupKind, floor_members, gang_problem, group_name,
    group_size_patch, leave_group_patch, new_group,
};
pub use job::{Job, rejection_in_status};
pub use listing::{Listing, list_processes, list_replicas, next_change};
pub use membership::{list_members, next_generation, record_members};
pub use named_port::named_port;
pub use names::{RandomSuffixes, Suffixes, job_object_name};
pub use ops::{
    MAX_BACKOFF_SECONDS, MAX_FAILURES_BYTES, Request, StatusSizeBudget, adopt, drop_deleted,
    drop_failed_history, entries_of_request, entry_kind, find_entry, find_successor, group_members,
    incomplete_units, is_group_complete, is_ready, leader_of, next_attempt, plan_ddp_learners,
    plan_request, plan_unit_members, propagate_to_members, remove_entry, replace,
    replace_unit_member, replaces_single_pods, retire_done, scale_down_declared, scale_down_order,
    scale_down_requested, sync_declared, trim_history, wanted_members,
};
pub use pod::{PodBuilder, build_pod};
pub use ports::port_of_entry;
pub use queueing::{
    FlavorView, KueueVersion, PlacementConflict, PodSet, Priority, StatusPatch, WorkloadDraft,
    build_placements, build_pod_sets, flavors_of, new_workload, patch_finished, patch_pods_ready,
    patch_reclaimable, pod_set_name, release_quota, replica_workload_name, updated_workload,
};
pub use view::{
    Admission, CrashLoop, DdpView, End, GroupView, IMMEDIATE_DEADLINE_SECONDS, NodeView, PodPhase,
    PodSetAssignment, PodSetSummary, PodView, RestartPolicy, ServiceView, Stage, WorkloadSummary,
    WorkloadView, controlling_job,
};
