use std::collections::HashSet;

use di_api::{EntryState, Origin, PlanEntry, Role};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::{aggregator_of, successor};
use crate::{
    Job,
    names::{Suffixes, fresh},
};

/// The names and numbers that new entries of one role may take; they are found once, however many are added.
pub(super) struct Slots {
    job: String,
    role: Role,
    names: HashSet<String>,
    indices: HashSet<i32>,
    lowest: i32,
}

impl Slots {
    pub fn new(job: &impl Job, plan: &[PlanEntry], role: Role) -> Self {
        let of_role = || plan.iter().filter(|entry| entry.role == role);
        Self {
            job: job.key().1.to_owned(),
            role,
            names: of_role()
                .flat_map(|entry| entry.replaces.iter().chain([&entry.name]))
                .cloned()
                .collect(),
            indices: of_role()
                .filter(|entry| has_number(plan, entry))
                .map(|entry| entry.index)
                .collect(),
            lowest: 0,
        }
    }

    /// A name that was not in use.
    pub fn name(&mut self, suffixes: &mut dyn Suffixes) -> String {
        let name = fresh(
            &self.job,
            self.role,
            |name| self.names.contains(name),
            suffixes,
        );
        self.names.insert(name.clone());
        name
    }

    /// The same with this number, unless another has it.
    pub fn entry_at(
        &mut self,
        index: Option<i32>,
        origin: Origin,
        name: String,
        now: Timestamp,
    ) -> PlanEntry {
        match index.filter(|index| self.indices.insert(*index)) {
            Some(index) => PlanEntry {
                planned_at: Some(MicroTime(now)),
                ..PlanEntry::new(name, self.role, origin, index)
            },
            None => self.entry(origin, name, now),
        }
    }

    /// An entry of this name, with the lowest number that no other has.
    pub fn entry(&mut self, origin: Origin, name: String, now: Timestamp) -> PlanEntry {
        while !self.indices.insert(self.lowest) {
            self.lowest += 1;
        }
        PlanEntry {
            planned_at: Some(MicroTime(now)),
            ..PlanEntry::new(name, self.role, origin, self.lowest)
        }
    }
}

/// Whether the number of an entry is not free. That of one that was replaced is its successor's, who has it himself; but ddp learners are planned
/// later than the aggregator that they take their places with.
fn has_number(plan: &[PlanEntry], entry: &PlanEntry) -> bool {
    entry.state != EntryState::Replaced
        || aggregator_of(entry).is_some_and(|unit| successor(plan, unit).is_some())
}
