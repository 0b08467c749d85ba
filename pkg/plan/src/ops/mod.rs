//! Changes of the plan. An entry is added before its pod is created, and dropped after its pod and
//! service are deleted.

mod adoption;
mod declared;
mod learner_groups;
mod lookup;
mod name_allocator;
mod removal;
mod replacement;
mod requested;
mod scale_down;
mod status_size;
#[cfg(test)]
mod tests;
mod units;

pub use adoption::adopt;
pub use declared::sync_declared;
pub(crate) use learner_groups::has_all_members;
pub use learner_groups::{
    entry_kind, is_group_complete, is_ready, plan_ddp_learners, propagate_to_members,
};
pub use lookup::{find_entry, find_successor, group_members, leader_of, wanted_members};
pub use removal::{drop_deleted, remove_entry};
pub use replacement::{MAX_BACKOFF_SECONDS, next_attempt, replace, replace_unit_member};
pub use requested::{Request, entries_of_request, plan_request};
pub use scale_down::{retire_done, scale_down_declared, scale_down_order, scale_down_requested};
pub use status_size::{MAX_FAILURES_BYTES, StatusSizeBudget, drop_failed_history, trim_history};
pub use units::{incomplete_units, plan_unit_members, replaces_single_pods};
