//! Units: replicas of several pods. The leader's entry represents the unit, the others follow it.
//! See docs/decisions/0040.

use std::collections::{BTreeSet, HashMap, HashSet};

use di_api::{DIJob, PlanEntry, UnitPlace, UnitRestart, names};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::lookup::leader_of;
use crate::{
    job::Job,
    names::{Suffixes, unused_name},
};

/// Whether these entries are all pods of a unit other than the leader.
pub(super) fn covers_unit(size: i32, members: &[&PlanEntry]) -> bool {
    let wanted = members.iter().filter(|entry| entry.is_wanted());
    let places: BTreeSet<i32> = wanted
        .filter_map(|entry| Some(entry.unit.as_ref()?.index))
        .collect();
    (1..size).all(|index| places.contains(&index))
}

/// Names of the wanted leaders whose units lack entries.
pub fn incomplete_units(plan: &[PlanEntry]) -> HashSet<&str> {
    let mut members: HashMap<&str, Vec<&PlanEntry>> = HashMap::new();
    for entry in plan.iter().filter(|entry| entry.is_in_unit()) {
        if let Some(leader) = leader_of(entry) {
            members.entry(leader).or_default().push(entry);
        }
    }
    let is_incomplete = |leader: &&PlanEntry| {
        let size = leader.unit.as_ref().map_or(1, |place| place.size);
        let members = members.get(&*leader.name).map(Vec::as_slice);
        !covers_unit(size, members.unwrap_or_default())
    };
    wanted_leaders(plan)
        .filter(is_incomplete)
        .map(|leader| leader.name.as_str())
        .collect()
}

fn wanted_leaders(plan: &[PlanEntry]) -> impl Iterator<Item = &PlanEntry> {
    plan.iter()
        .filter(|entry| entry.is_wanted() && entry.is_replica() && entry.is_in_unit())
}

/// Plans the missing pods of units.
///
/// A leader with a pod whose unit lacks others has lost them. With `restart: Unit` the unit must be
/// replaced, so they are not planned.
pub fn plan_unit_members(
    job: &DIJob,
    plan: &mut Vec<PlanEntry>,
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) {
    let incomplete = incomplete_units(plan);
    let leaders: Vec<PlanEntry> = plan
        .iter()
        .filter(|entry| incomplete.contains(&*entry.name) && !entry.done)
        .filter(|entry| entry.uid.is_none() || replaces_single_pods(job, entry))
        .cloned()
        .collect();
    if leaders.is_empty() {
        return;
    }
    let mut places: HashSet<UnitPlace> = plan
        .iter()
        .filter(|entry| entry.is_wanted())
        .filter_map(|entry| entry.unit.clone())
        .collect();
    let mut taken = taken_names(plan);
    for leader in leaders {
        let size = leader.unit.as_ref().map_or(1, |place| place.size);
        for index in 1..size {
            let place = UnitPlace {
                leader: Some(leader.name.clone()),
                index,
                size,
            };
            if !places.insert(place.clone()) {
                continue;
            }
            let mut name = names::unit_member_name(&leader.name, index);
            if taken.contains(&name) {
                name = unused_member_name(job, &leader, index, &taken, suffixes);
            }
            taken.insert(name.clone());
            plan.push(PlanEntry {
                group: leader.group.clone(),
                resources: leader.resources.clone(),
                unit: Some(place),
                planned_at: Some(MicroTime(now)),
                ..PlanEntry::new(name, leader.role, leader.origin, leader.index)
            });
        }
    }
}

/// Whether a lost pod of this unit is replaced alone, unless it is the leader.
pub fn replaces_single_pods(job: &DIJob, entry: &PlanEntry) -> bool {
    let unit = job.spec.unit(entry.role);
    unit.is_some_and(|unit| unit.restart == UnitRestart::Pod)
}

/// All names in the plan, also those of predecessors.
pub(super) fn taken_names(plan: &[PlanEntry]) -> HashSet<String> {
    let names = plan
        .iter()
        .flat_map(|entry| entry.replaces.iter().chain([&entry.name]));
    names.cloned().collect()
}

/// An unused name for a pod of a unit with a random part of its own.
pub(super) fn unused_member_name(
    job: &impl Job,
    entry: &PlanEntry,
    index: i32,
    taken: &HashSet<String>,
    suffixes: &mut dyn Suffixes,
) -> String {
    let is_taken = |leader: &str| {
        taken.contains(leader) || taken.contains(&names::unit_member_name(leader, index))
    };
    let random = unused_name(job.job_key().1, entry.role, is_taken, suffixes);
    names::unit_member_name(&random, index)
}
