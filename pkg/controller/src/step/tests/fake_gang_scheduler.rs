//! A fake gang scheduler in memory: it assigns nodes when a test says so.

use std::collections::BTreeMap;

use di_api::{DIJob, PlanEntry, Role, names};
use di_cache::OptionalApi;
use di_plan::{GangScheduler, GroupView, PodView, floor_members, group_name, new_group};

use super::fake_cluster::World;
use crate::step::{Action, ObservedGang};

/// Name of the group of the job of all tests.
pub(super) const GROUP: &str = "dijob-j-u";

/// The scheduler of the tests.
pub(super) fn coscheduling() -> GangScheduler {
    "coscheduling".parse().unwrap()
}

impl World {
    pub fn serve_gangs(&mut self) {
        self.gang.scheduler = Some(coscheduling());
        self.gang.api = OptionalApi::Served(());
    }

    pub fn group(&self) -> Option<&GroupView> {
        find_group(&self.gang, GROUP)
    }

    /// Assigns nodes, of which this number is free: to as many pods as the group needs, or to none.
    pub fn schedule(&mut self, free: usize) {
        let Some(group) = self.group().filter(|group| !group.deleting) else {
            return;
        };
        let min_member = group.min_member;
        place_pods(&mut self.pods, "u", min_member, free);
    }

    /// Checks that the pod of an entry is created in the order of its gang.
    pub fn check_gang(&self, entry: &PlanEntry) {
        check_gang(&self.job, &self.gang, entry);
    }

    /// Applies an action for a group, as the API server does.
    pub fn apply_group_action(&mut self, action: &Action) {
        assert_eq!(self.gang.api, OptionalApi::Served(()), "{action:?}");
        if let Action::LeaveGroup { name, uid } = action {
            assert_eq!(self.pods[name].uid, *uid);
            let labels = self.object_mut(name).metadata.labels.as_mut();
            labels.unwrap().remove(names::gang::COSCHEDULING_GROUP);
            self.pods.get_mut(name).unwrap().in_gang = false;
        } else {
            apply_group_action(&mut self.gang, &self.job, action, "group");
        }
    }
}

/// Finds the group with this name.
pub(super) fn find_group<'a>(gang: &'a ObservedGang, name: &str) -> Option<&'a GroupView> {
    gang.groups.iter().find(|group| group.name == name)
}

/// Assigns nodes, of which this number is free: to as many pods of a job as its group needs, or to
/// none.
pub(super) fn place_pods(
    pods: &mut BTreeMap<String, PodView>,
    job_uid: &str,
    min_member: i32,
    free: usize,
) {
    let min_member = usize::try_from(min_member).unwrap();
    let is_member = |pod: &&PodView| pod.in_gang && pod.belongs_to(job_uid);
    let placed = pods.values().filter(is_member);
    let placed = placed.filter(|pod| pod.is_on_node()).count();
    let waiting = pods.values().filter(is_member);
    let waiting = waiting.filter(|pod| !pod.is_on_node() && !pod.deleting);
    let waiting: Vec<_> = waiting.map(|pod| pod.name.clone()).collect();
    let needed = min_member.saturating_sub(placed);
    let fits = needed <= free.min(waiting.len());
    for (i, name) in waiting.iter().enumerate() {
        let pod = pods.get_mut(name).unwrap();
        pod.scheduled = if fits && i < free {
            Ok(true)
        } else {
            Err("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.".into())
        };
    }
}

/// Checks that the pod of an entry is created in the order of its gang.
pub(super) fn check_gang(job: &DIJob, gang: &ObservedGang, entry: &PlanEntry) {
    let Some(status) = &job.status else {
        return;
    };
    let Some(scheduling) = &status.scheduling else {
        return;
    };
    let scheduler = gang.scheduler.as_ref().unwrap();
    let is_served = gang.api == OptionalApi::Served(());
    assert!(
        is_served || scheduling.placed,
        "{} does not wait for the API",
        entry.name
    );
    if scheduler.group_kind().is_some() && is_served {
        let group = find_group(gang, &group_name(job));
        assert!(
            group.is_some_and(|group| !group.deleting),
            "{} has no group",
            entry.name
        );
    }
    let floor = floor_members(job, &status.plan).unwrap_or_default();
    let is_in_floor = entry.role == Role::Coordinator || floor.contains(&*entry.name);
    assert!(
        is_in_floor || scheduling.placed,
        "{} does not wait for the others",
        entry.name
    );
}

/// Applies an action for a group, which must have the UID in the action. A new one has `new_uid`.
pub(super) fn apply_group_action(
    gang: &mut ObservedGang,
    job: &DIJob,
    action: &Action,
    new_uid: &str,
) {
    match action {
        Action::CreateGroup { min_member } => {
            let scheduler = gang.scheduler.as_ref().unwrap();
            let group = new_group(job, scheduler, *min_member).unwrap();
            let group = GroupView::new(&group).unwrap();
            assert!(
                find_group(gang, &group.name).is_none(),
                "{} exists",
                group.name
            );
            gang.groups.push(GroupView {
                uid: new_uid.to_owned(),
                ..group
            });
        }
        Action::UpdateGroup {
            name,
            uid,
            min_member,
        } => {
            let mut all = gang.groups.iter_mut();
            let group = all.find(|group| group.name == *name).unwrap();
            assert_eq!((&group.uid, &group.owner), (uid, &job.metadata.uid));
            group.min_member = *min_member;
        }
        Action::DeleteGroup { name, uid } => {
            let is_deleted = |group: &GroupView| group.name == *name && group.uid == *uid;
            assert!(gang.groups.iter().any(is_deleted), "{name}");
            gang.groups.retain(|group| !is_deleted(group));
        }
        other => panic!("{other:?}"),
    }
}
