//! A fake gang scheduler in memory: it assigns nodes when a test says so.

use di_api::{PlanEntry, Role, names};
use di_cache::OptionalApi;
use di_plan::{GangScheduler, GroupView, PodView, floor_members, new_group};

use super::fake_cluster::World;
use crate::step::Action;

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
        let mut all = self.gang.groups.iter();
        all.find(|group| group.name == GROUP)
    }

    /// Assigns nodes, of which this number is free: to as many pods as the group needs, or to none.
    pub fn schedule(&mut self, free: usize) {
        let Some(group) = self.group().filter(|group| !group.deleting) else {
            return;
        };
        let min_member = usize::try_from(group.min_member).unwrap();
        let members = || self.pods.values().filter(|pod| pod.in_gang);
        let placed = members().filter(|pod| pod.is_on_node()).count();
        let is_waiting = |pod: &&PodView| !pod.is_on_node() && !pod.deleting;
        let waiting = members().filter(is_waiting);
        let waiting: Vec<_> = waiting.map(|pod| pod.name.clone()).collect();
        let needed = min_member.saturating_sub(placed);
        let has_place = needed <= free.min(waiting.len());
        for (i, name) in waiting.iter().enumerate() {
            let pod = self.pods.get_mut(name).unwrap();
            pod.scheduled = if has_place && i < free {
                Ok(true)
            } else {
                Err("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.".into())
            };
        }
    }

    /// Checks that the pod of an entry is created in the order of its gang.
    pub fn check_gang(&self, entry: &PlanEntry) {
        let Some(scheduling) = &self.status().scheduling else {
            return;
        };
        let scheduler = self.gang.scheduler.as_ref().unwrap();
        if scheduler.group_kind().is_some() {
            let group = self.group();
            assert!(
                group.is_some_and(|group| !group.deleting),
                "{} has no group",
                entry.name
            );
        }
        let floor = floor_members(&self.job, self.plan()).unwrap_or_default();
        let is_in_floor = entry.role == Role::Coordinator || floor.contains(&*entry.name);
        assert!(
            is_in_floor || scheduling.placed,
            "{} does not wait for the others",
            entry.name
        );
    }

    /// Applies an action for a group, as the API server does.
    pub fn apply_group_action(&mut self, action: Action) {
        assert_eq!(self.gang.api, OptionalApi::Served(()), "{action:?}");
        match action {
            Action::CreateGroup { min_member } => {
                assert!(self.group().is_none(), "{GROUP} exists");
                let scheduler = self.gang.scheduler.as_ref().unwrap();
                let group = new_group(&self.job, scheduler, min_member).unwrap();
                let group = GroupView::new(&group).unwrap();
                self.gang.groups.push(GroupView {
                    uid: "group".into(),
                    ..group
                });
            }
            Action::UpdateGroup {
                name,
                uid,
                min_member,
            } => {
                let mut all = self.gang.groups.iter_mut();
                let group = all.find(|group| group.name == name).unwrap();
                assert_eq!((&group.uid, group.owner.as_deref()), (&uid, Some("u")));
                group.min_member = min_member;
            }
            Action::DeleteGroup { name, uid } => {
                let is_deleted = |group: &GroupView| group.name == name && group.uid == uid;
                assert!(self.gang.groups.iter().any(is_deleted), "{name}");
                self.gang.groups.retain(|group| !is_deleted(group));
            }
            Action::LeaveGroup { name, uid } => {
                assert_eq!(self.pods[&name].uid, uid);
                let labels = self.object_mut(&name).metadata.labels.as_mut();
                labels.unwrap().remove(names::gang::COSCHEDULING_GROUP);
                self.pods.get_mut(&name).unwrap().in_gang = false;
            }
            other => panic!("{other:?}"),
        }
    }
}
