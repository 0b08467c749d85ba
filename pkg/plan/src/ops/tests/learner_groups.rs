//! Learner groups in the plan.

use std::collections::HashSet;

use di_api::{DIJob, EntryState, Origin, PlanEntry, Role};
use di_fixtures::{Job, Pod, template};
use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::json;

use super::{super::*, now, replace_entry, sync_plan};
use crate::{NodeView, PodView, RandomSuffixes, SimpleAllocation};

/// A job with learners of 6 GPUs by default.
fn job_with_learners(learners: usize) -> DIJob {
    let gpus = json!({"limits": {"nvidia.com/gpu": "6"}});
    Job::test().learners_with(learners, &gpus).build()
}

fn nodes(gpus: &[i32]) -> Vec<NodeView> {
    let node = |gpus: &i32| NodeView {
        gpus: *gpus,
        schedulable: true,
        taints: Vec::new(),
    };
    gpus.iter().map(node).collect()
}

pub(super) fn split(plan: &mut Vec<PlanEntry>, gpus: &[i32]) {
    plan_ddp_learners(
        &job_with_learners(0),
        plan,
        &nodes(gpus),
        &SimpleAllocation,
        &mut RandomSuffixes,
        now(),
    );
}

pub(super) fn request_learners(
    plan: &mut Vec<PlanEntry>,
    count: usize,
    gpus: i32,
    instance: &str,
) -> Vec<String> {
    let resources = json!({"gpus": gpus.to_string(), "cpus": "6"});
    let request = Request {
        count,
        resources: serde_json::from_value(resources).unwrap(),
        coordinator_instance: Some(instance.to_owned()),
        aggregator_port: Some(5000),
        ..Request::default()
    };
    plan_request(
        &job_with_learners(0),
        plan,
        Role::Learner,
        &request,
        |_| false,
        &mut RandomSuffixes,
        now(),
    )
}

/// GPUs, first rank and index of each ddp learner, by rank.
fn places(plan: &[PlanEntry], aggregator: &str) -> Vec<(i32, i32, i32)> {
    let mut places: Vec<_> = group_members(plan, aggregator)
        .map(|e| (e.gpu_count(), e.ddp.as_ref().unwrap().start_rank, e.index))
        .collect();
    places.sort_by_key(|(_, rank, _)| *rank);
    places
}

#[test]
fn learner_with_several_gpus_becomes_aggregator() {
    let mut plan = Vec::new();
    let group = request_learners(&mut plan, 1, 6, "uid/0").remove(0);
    let one = request_learners(&mut plan, 1, 1, "uid/0").remove(0);
    split(&mut plan, &[4, 4]);
    assert_eq!(find_entry(&plan, &one).unwrap().role, Role::Learner);
    let aggregator = find_entry(&plan, &group).unwrap();
    assert_eq!(
        (aggregator.role, aggregator.port, aggregator.gpu_count()),
        (Role::Aggregator, Some(5000), 6)
    );
    assert_eq!(places(&plan, &group), [(4, 0, 0), (2, 4, 1)]);
    let cpus: Vec<_> = group_members(&plan, &group)
        .map(|e| e.resources.cpus.clone().unwrap().0)
        .collect();
    assert_eq!(cpus, ["4", "2"]);
    assert_eq!(
        request_learners(&mut plan, 1, 6, "uid/1"),
        [group],
        "a restarted coordinator claims it"
    );
    let before = plan.clone();
    split(&mut plan, &[1]);
    assert_eq!(plan, before, "a split group stays");
}

#[test]
fn f19_removal_includes_aggregators() {
    for n in 0..=5 {
        let mut plan = Vec::new();
        request_learners(&mut plan, 2, 1, "uid/0");
        request_learners(&mut plan, 2, 6, "uid/0");
        split(&mut plan, &[4]);
        let removed = scale_down_requested(&mut plan, &[], Role::Learner, n);
        assert_eq!(removed.len(), n.min(4));
        let left = plan
            .iter()
            .filter(|e| e.is_wanted() && e.role.counted_as() == Role::Learner);
        assert_eq!(left.count(), 4 - removed.len());
    }
}

#[test]
fn incomplete_group_is_not_ready_and_removed_first() {
    let mut plan = Vec::new();
    let older = request_learners(&mut plan, 1, 6, "uid/0").remove(0);
    request_learners(&mut plan, 1, 6, "uid/0");
    split(&mut plan, &[4]);
    let lost = group_members(&plan, &older).next().unwrap().name.clone();
    plan.retain(|entry| entry.name != lost);
    let ready = |entry: &PlanEntry| {
        let pod = Pod::test(&entry.name, entry.role.label()).phase("Running");
        PodView::new(&pod.build()).unwrap()
    };
    let pods: Vec<_> = plan.iter().map(ready).collect();
    assert_eq!(
        scale_down_requested(&mut plan, &pods, Role::Learner, 1),
        [older]
    );
}

#[test]
fn indices_of_removed_group_are_free_after_failure() {
    let mut plan = Vec::new();
    let first = request_learners(&mut plan, 1, 6, "uid/0").remove(0);
    split(&mut plan, &[4]);
    let next = replace_entry(&job_with_learners(0), &mut plan, &first).unwrap();
    // The indices of the failed group are reserved until the replacement is split.
    let other = request_learners(&mut plan, 1, 6, "uid/0").remove(0);
    let unsplit = plan.clone();
    split(&mut plan, &[4]);
    assert_eq!(places(&plan, &next), [(4, 0, 0), (2, 4, 1)]);
    assert_eq!(places(&plan, &other), [(4, 0, 2), (2, 4, 3)]);

    plan = unsplit;
    remove_entry(&mut plan, &next);
    split(&mut plan, &[4]);
    assert_eq!(places(&plan, &other), [(4, 0, 0), (2, 4, 1)]);
}

#[test]
fn replacing_ddp_learner_replaces_whole_group() {
    let mut plan = Vec::new();
    let group = request_learners(&mut plan, 1, 6, "uid/0").remove(0);
    request_learners(&mut plan, 1, 2, "uid/0");
    split(&mut plan, &[4, 4]);
    let all: Vec<_> = group_members(&plan, &group)
        .map(|e| e.name.clone())
        .collect();
    let replace_entry = |plan: &mut Vec<PlanEntry>, name: &str| {
        replace_entry(&job_with_learners(0), plan, name).unwrap()
    };
    let next = replace_entry(&mut plan, &all[1]);
    for name in all.iter().chain([&group]) {
        assert_eq!(find_entry(&plan, name).unwrap().state, EntryState::Replaced);
        assert_eq!(replace_entry(&mut plan, name), next, "once");
    }
    // Replaced again before its split: the indices are still known.
    let last = replace_entry(&mut plan, &next);
    split(&mut plan, &[2]);
    assert_eq!(places(&plan, &last), [(2, 0, 0), (2, 2, 1), (2, 4, 3)]);
    drop_deleted(&mut plan, |_| false);
    assert_eq!(
        find_successor(&plan, &all[0]).unwrap().name,
        last,
        "found via its successor"
    );
    remove_entry(&mut plan, &last);
    drop_deleted(&mut plan, |_| false);
    assert_eq!(plan.len(), 2);
}

#[test]
fn changed_spec_of_suspended_job_changes_entries() {
    let mut plan = Vec::new();
    sync_plan(&job_with_learners(2), &mut plan);
    split(&mut plan, &[8]);
    let mut changed = job_with_learners(2);
    changed.spec.learner.as_mut().unwrap().template = serde_json::from_value(template()).unwrap();
    sync_plan(&changed, &mut plan);
    drop_deleted(&mut plan, |_| false);
    let roles: Vec<_> = plan.iter().map(|e| e.role).collect();
    assert_eq!(roles, [Role::Learner, Role::Learner]);
}

#[test]
fn uncreated_group_is_split_again_on_new_resources() {
    let mut plan = Vec::new();
    sync_plan(&job_with_learners(1), &mut plan);
    let mut changed = job_with_learners(1);
    let learner = changed.spec.learner.as_mut().unwrap();
    learner.replicas = 0;
    let group = |cpus: &str| {
        let group = json!([{"name": "g", "replicas": 1, "resources": {"gpus": 4, "cpus": cpus}}]);
        serde_json::from_value(group).unwrap()
    };
    learner.groups = group("8");
    let replace_entry = |plan: &mut Vec<PlanEntry>, job: &DIJob| {
        sync_plan(job, plan);
        drop_deleted(plan, |_| false);
    };
    replace_entry(&mut plan, &changed);
    let name = plan[0].name.clone();
    changed.spec.learner.as_mut().unwrap().groups = group("16");
    replace_entry(&mut plan, &changed);
    assert_eq!((plan.len(), &plan[0].name), (1, &name), "it is not split");
    split(&mut plan, &[4]);
    assert_eq!(plan.len(), 2);
    replace_entry(&mut plan, &changed);
    assert_eq!((plan.len(), &plan[0].name), (2, &name), "unchanged");
    changed.spec.learner.as_mut().unwrap().groups = group("32");
    replace_entry(&mut plan, &changed);
    assert_eq!(plan.len(), 1, "the group is planned again");
    assert_eq!(plan[0].resources.cpus.as_ref().unwrap().0, "32");
    assert_ne!(plan[0].name, name);
}

#[test]
fn removed_role_removes_all_its_entries() {
    let mut plan = Vec::new();
    sync_plan(&job_with_learners(1), &mut plan);
    request_learners(&mut plan, 1, 6, "uid/0");
    request_learners(&mut plan, 1, 1, "uid/0");
    split(&mut plan, &[4, 4]);
    assert_eq!(plan.len(), 3 + 3 + 1);
    let mut without = job_with_learners(0);
    without.spec.learner = None;
    sync_plan(&without, &mut plan);
    let is_removing = |entry: &PlanEntry| entry.state == EntryState::Removing;
    assert!(plan.iter().all(is_removing), "{plan:?}");
}

#[test]
fn aggregator_entry_stays_with_kept_ddp_learner() {
    let mut plan = Vec::new();
    let group = request_learners(&mut plan, 1, 6, "uid/0").remove(0);
    split(&mut plan, &[4]);
    let member = group_members(&plan, &group).next().unwrap().name.clone();
    replace_entry(&job_with_learners(0), &mut plan, &member);
    drop_deleted(&mut plan, |name| name == member);
    propagate_to_members(&mut plan);
    assert_eq!(
        find_entry(&plan, &member).unwrap().state,
        EntryState::Replaced
    );
    drop_deleted(&mut plan, |_| false);
    assert!(find_entry(&plan, &group).is_none() && find_entry(&plan, &member).is_none());
}

#[derive(Clone, Debug)]
enum Op {
    SyncDeclared(usize),
    Request(usize, i32, u8),
    ScaleDown(usize),
    Replace(usize),
    Remove(usize),
    Split(Vec<i32>),
    DropDeleted(usize),
}

fn any_ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..4_usize).prop_map(Op::SyncDeclared),
        (0..3_usize, 1..20, 0..3_u8).prop_map(|(n, gpus, i)| Op::Request(n, gpus, i)),
        (0..5_usize).prop_map(Op::ScaleDown),
        (0..20_usize).prop_map(Op::Replace),
        (0..20_usize).prop_map(Op::Remove),
        proptest::collection::vec(0..9, 0..6).prop_map(Op::Split),
        (1..5_usize).prop_map(Op::DropDeleted),
    ];
    proptest::collection::vec(op, 0..40)
}

fn count_learners(plan: &[PlanEntry], origin: Origin) -> usize {
    let is_learner = |e: &&PlanEntry| {
        e.is_wanted() && e.origin == origin && e.role.counted_as() == Role::Learner
    };
    plan.iter().filter(is_learner).count()
}

proptest! {
    /// After any sequence of operations: groups are complete or not split, are removed as a whole,
    /// and count as learners.
    #[test]
    fn learner_groups_stay_complete(ops in any_ops()) {
        let mut plan: Vec<PlanEntry> = Vec::new();
        let mut declared = 0;
        let mut time = now();
        for op in ops {
            time += SignedDuration::from_secs(1);
            let (requested, all) = (count_learners(&plan, Origin::Requested), count_learners(&plan, Origin::Declared));
            match op {
                Op::SyncDeclared(n) => {
                    declared = n;
                    sync_declared(&job_with_learners(n), &mut plan, &[], &mut RandomSuffixes, time);
                    prop_assert_eq!(count_learners(&plan, Origin::Declared), declared);
                }
                Op::Request(n, gpus, instance) => {
                    let names = request_learners(&mut plan, n, gpus, &format!("uid/{instance}"));
                    prop_assert_eq!(names.len(), n);
                    prop_assert!(count_learners(&plan, Origin::Requested) <= requested + n);
                }
                Op::ScaleDown(n) => {
                    let removed = scale_down_requested(&mut plan, &[], Role::Learner, n);
                    prop_assert_eq!(removed.len(), n.min(requested));
                    prop_assert_eq!(count_learners(&plan, Origin::Requested), requested - removed.len());
                }
                Op::Replace(i) => {
                    if let Some(name) = plan.get(i).map(|e| e.name.clone()) {
                        let next = replace(&job_with_learners(declared), &mut plan, &name, None, &mut RandomSuffixes, time);
                        if let Some(next) = next {
                            prop_assert!(find_entry(&plan, &next).unwrap().role != Role::DdpLearner);
                        }
                    }
                    prop_assert_eq!((count_learners(&plan, Origin::Requested), count_learners(&plan, Origin::Declared)), (requested, all));
                }
                Op::Remove(i) => {
                    let entry = plan.get(i).filter(|e| e.role != Role::DdpLearner);
                    if let Some(name) = entry.map(|e| e.name.clone()) {
                        remove_entry(&mut plan, &name);
                    }
                }
                Op::Split(gpus) => {
                    split(&mut plan, &gpus);
                    for group in plan.iter().filter(|e| e.role == Role::Aggregator && e.is_wanted()) {
                        prop_assert!(is_group_complete(&plan, &group.name));
                        let sum: i32 = group_members(&plan, &group.name).map(PlanEntry::gpu_count).sum();
                        prop_assert_eq!(sum, group.gpu_count());
                    }
                }
                Op::DropDeleted(nth) => {
                    let names: Vec<_> = plan.iter().map(|e| e.name.clone()).collect();
                    drop_deleted(&mut plan, |name| names.iter().position(|n| n == name).unwrap() % nth != 0);
                }
            }
            let names: HashSet<_> = plan.iter().map(|e| &e.name).collect();
            prop_assert_eq!(names.len(), plan.len());
            let wanted = || plan.iter().filter(|e| e.is_wanted());
            let indices: HashSet<_> = wanted().map(|e| (e.role, e.index)).collect();
            prop_assert_eq!(indices.len(), wanted().count());
            for entry in &plan {
                if let Some(aggregator) = leader_of(entry) {
                    let aggregator_state = find_entry(&plan, aggregator).map(|e| e.state);
                    prop_assert_eq!(entry.is_wanted(), aggregator_state == Some(EntryState::Wanted));
                    prop_assert!(aggregator_state.is_some(), "an aggregator stays while it has ddp learners");
                }
                if entry.role == Role::Aggregator && entry.is_wanted() {
                    prop_assert!(group_members(&plan, &entry.name).next().is_none() || is_group_complete(&plan, &entry.name));
                }
            }
        }
    }
}
