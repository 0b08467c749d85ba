//! Gangs: the pods of a job that a scheduler places together or not at all. These pods are the
//! floor; all other pods are the overflow. See docs/decisions/0038.

mod floor;
mod groups;
mod pods;
mod scheduler;
mod setting;
mod task_groups;
#[cfg(test)]
mod tests;

pub use floor::floor_members;
pub use groups::{group_name, group_size_patch, leave_group_patch, new_group};
pub(crate) use pods::Gang;
pub use scheduler::{GangScheduler, GroupKind, gang_problem};
pub use setting::GangSetting;
