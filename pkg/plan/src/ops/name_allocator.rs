use std::collections::HashSet;

use di_api::{EntryState, Origin, PlanEntry, Role, UnitPlace};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::lookup::{find_successor, leader_of};
use crate::{
    job::Job,
    names::{Suffixes, unused_name},
};

/// Allocates unused names and indices for new entries of one role.
///
/// It reads the plan once, so that adding many entries stays linear.
pub(super) struct NameAllocator {
    job: String,
    role: Role,
    /// Place of new entries, if replicas of the role are units.
    unit: Option<UnitPlace>,
    names: HashSet<String>,
    indices: HashSet<i32>,
    next_index: i32,
}

impl NameAllocator {
    pub fn new(job: &impl Job, plan: &[PlanEntry], role: Role) -> Self {
        let entries = || plan.iter().filter(|entry| entry.role == role);
        Self {
            job: job.job_key().1.to_owned(),
            role,
            unit: job.unit_size(role).map(UnitPlace::of_leader),
            names: entries()
                .flat_map(|entry| entry.replaces.iter().chain([&entry.name]))
                .cloned()
                .collect(),
            indices: entries()
                .filter(|entry| is_index_used(plan, entry))
                .map(|entry| entry.index)
                .collect(),
            next_index: 0,
        }
    }

    /// Allocates an unused name.
    pub fn allocate_name(&mut self, suffixes: &mut dyn Suffixes) -> String {
        let name = unused_name(
            &self.job,
            self.role,
            |name| self.names.contains(name),
            suffixes,
        );
        self.names.insert(name.clone());
        name
    }

    /// A new entry with this index, or with the lowest free index if it is used.
    pub fn new_entry_at(
        &mut self,
        index: Option<i32>,
        origin: Origin,
        name: String,
        now: Timestamp,
    ) -> PlanEntry {
        match index.filter(|index| self.indices.insert(*index)) {
            Some(index) => PlanEntry {
                planned_at: Some(MicroTime(now)),
                unit: self.unit.clone(),
                ..PlanEntry::new(name, self.role, origin, index)
            },
            None => self.new_entry(origin, name, now),
        }
    }

    /// A new entry with the lowest free index.
    pub fn new_entry(&mut self, origin: Origin, name: String, now: Timestamp) -> PlanEntry {
        while !self.indices.insert(self.next_index) {
            self.next_index += 1;
        }
        PlanEntry {
            planned_at: Some(MicroTime(now)),
            unit: self.unit.clone(),
            ..PlanEntry::new(name, self.role, origin, self.next_index)
        }
    }
}

/// Whether the index of an entry is used.
///
/// A replaced entry does not use its index, because its successor has it. A replaced ddp learner
/// keeps it while its aggregator has a successor: its ddp learners are planned later. Pods of a unit
/// have the index of their leader.
fn is_index_used(plan: &[PlanEntry], entry: &PlanEntry) -> bool {
    entry.state != EntryState::Replaced
        || leader_of(entry).is_some_and(|leader| find_successor(plan, leader).is_some())
}
