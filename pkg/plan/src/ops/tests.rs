use std::collections::HashSet;

use di_api::{DIJob, DIJobStatus, EntryState, Origin, PlanEntry, Role};
use di_fixtures::Job;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use proptest::prelude::*;

use super::*;
use crate::RandomSuffixes;

mod learner_groups;
mod units;

fn job_with_collectors(collectors: usize) -> DIJob {
    Job::test().collectors(collectors).build()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn request_collectors(
    plan: &mut Vec<PlanEntry>,
    count: usize,
    instance: &str,
    key: Option<&str>,
) -> Vec<String> {
    let request = Request {
        count,
        coordinator_instance: Some(instance.to_owned()),
        key: key.map(str::to_owned),
        ..Request::default()
    };
    plan_request(
        &job_with_collectors(0),
        plan,
        Role::Collector,
        &request,
        |_| false,
        &mut RandomSuffixes,
        now(),
    )
}

fn sync_plan(job: &DIJob, plan: &mut Vec<PlanEntry>) {
    sync_declared(job, plan, &[], &mut RandomSuffixes, now());
}

fn replace_entry(job: &DIJob, plan: &mut Vec<PlanEntry>, name: &str) -> Option<String> {
    replace(job, plan, name, None, &mut RandomSuffixes, now())
}

fn count_wanted(plan: &[PlanEntry]) -> usize {
    plan.iter().filter(|entry| entry.is_wanted()).count()
}

#[test]
fn restarted_coordinator_gets_its_previous_replicas() {
    let mut plan = Vec::new();
    let first = request_collectors(&mut plan, 2, "uid/0", None);
    assert_eq!(
        request_collectors(&mut plan, 2, "uid/1", None),
        first,
        "the replicas do not double"
    );
    let more = request_collectors(&mut plan, 3, "uid/2", None);
    assert_eq!((&more[..2], count_wanted(&plan)), (&first[..], 3));
    assert_eq!(request_collectors(&mut plan, 1, "uid/2", None).len(), 1);
    assert_eq!(count_wanted(&plan), 4, "the same instance asks for more");
}

#[test]
fn replicas_in_annotation_are_removed_first() {
    let mut plan = Vec::new();
    sync_plan(&job_with_collectors(4), &mut plan);
    let all: Vec<_> = plan.iter().map(|entry| entry.name.clone()).collect();
    let mut fewer = job_with_collectors(2);
    // An unknown name, and one name more than the number of removals.
    let names = format!("unknown,{},{},{}", all[0], all[1], all[2]);
    fewer
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(di_api::names::PODS_TO_DELETE_ANNOTATION.to_owned(), names);
    sync_plan(&fewer, &mut plan);
    let left: Vec<_> = plan.iter().filter(|e| e.is_wanted()).collect();
    let left: Vec<_> = left.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(left, all[2..]);
    sync_plan(&fewer, &mut plan);
    assert_eq!(count_wanted(&plan), 2, "the annotation applies once");
}

#[test]
fn ended_replica_is_not_handed_out_again() {
    let mut plan = Vec::new();
    let first = request_collectors(&mut plan, 1, "uid/0", None);
    let request = Request {
        count: 1,
        coordinator_instance: Some("uid/1".into()),
        ..Request::default()
    };
    let has_ended = |name: &str| name == first[0];
    let next = plan_request(
        &job_with_collectors(0),
        &mut plan,
        Role::Collector,
        &request,
        has_ended,
        &mut RandomSuffixes,
        now(),
    );
    assert_ne!(next, first);
}

#[test]
fn repeated_key_plans_no_new_replicas() {
    let mut plan = Vec::new();
    let first = request_collectors(&mut plan, 2, "uid/0", Some("k"));
    assert_eq!(request_collectors(&mut plan, 2, "uid/0", Some("k")), first);
    assert_eq!(count_wanted(&plan), 2);
}

#[test]
fn repeated_key_replaces_removed_replicas() {
    let mut plan = Vec::new();
    let first = request_collectors(&mut plan, 2, "uid/0", Some("k"));
    remove_entry(&mut plan, &first[1]);
    let second = request_collectors(&mut plan, 2, "uid/0", Some("k"));
    assert_eq!((second.len(), &second[0]), (2, &first[0]));
    assert_eq!(count_wanted(&plan), 2);
}

#[test]
fn replicas_claimed_by_repeated_key_are_not_reused() {
    let mut plan = Vec::new();
    let first = request_collectors(&mut plan, 2, "uid/0", Some("k"));
    assert_eq!(request_collectors(&mut plan, 2, "uid/1", Some("k")), first);
    let more = request_collectors(&mut plan, 1, "uid/1", Some("another"));
    assert!(!first.contains(&more[0]));
    assert_eq!(count_wanted(&plan), 3);
}

#[test]
fn replica_reported_twice_is_replaced_once() {
    let mut plan = Vec::new();
    let name = request_collectors(&mut plan, 1, "uid/0", None).remove(0);
    let job = job_with_collectors(0);
    let second = replace_entry(&job, &mut plan, &name).unwrap();
    assert_eq!(
        replace_entry(&job, &mut plan, &name).as_ref(),
        Some(&second)
    );
    let third = replace_entry(&job, &mut plan, &second).unwrap();
    assert_eq!(
        replace_entry(&job, &mut plan, &name).as_ref(),
        Some(&third),
        "via all successors"
    );
    assert_eq!(
        find_entry(&plan, &name).unwrap().state,
        EntryState::Removing
    );
    assert_eq!(
        find_entry(&plan, &second).unwrap().state,
        EntryState::Replaced
    );
    assert_eq!(replace_entry(&job, &mut plan, "j-collector-never"), None);
}

#[test]
fn history_keeps_last_replaced_without_claims() {
    let mut plan = Vec::new();
    let mut names = request_collectors(&mut plan, 150, "uid/0", Some("key"));
    // The first planned replica fails last.
    names.reverse();
    for name in &names {
        replace_entry(&job_with_collectors(0), &mut plan, name).unwrap();
    }
    trim_history(&mut plan);
    for (i, name) in names.iter().enumerate() {
        let entry = find_entry(&plan, name).unwrap();
        let kept = if i < 50 {
            EntryState::Removing
        } else {
            EntryState::Replaced
        };
        let claims = (&entry.request_key, &entry.claimed_by);
        assert_eq!((entry.state, claims), (kept, (&None, &None)), "{i}");
    }
    let successors: Vec<_> = plan.iter().filter(|entry| entry.is_wanted()).collect();
    let same = |entry: &&PlanEntry| entry.request_key.as_deref() == Some("key");
    assert!(successors.len() == 150 && successors.iter().all(same));
}

/// Creates all wanted replicas with the largest fields, loses all of them, and returns the size of
/// the plan and the number of replacements.
fn size_after_losing_all(
    plan: &mut Vec<PlanEntry>,
    split: impl Fn(&mut Vec<PlanEntry>),
) -> (usize, usize) {
    for entry in plan.iter_mut() {
        entry.uid = Some("01234567-89ab-cdef-0123-456789abcdef".to_owned());
        entry.resources.cpus = Some(Quantity("16".to_owned()));
        entry.resources.memory = Some(Quantity("131072Mi".to_owned()));
    }
    let is_replica = |entry: &&PlanEntry| entry.is_wanted() && entry.ddp.is_none();
    let replicas: Vec<_> = plan.iter().filter(is_replica).cloned().collect();
    let (mut budget, mut replaced) = (StatusSizeBudget::for_job(&job_with_collectors(0), plan), 0);
    for entry in &replicas {
        if budget.reserve_replacement(plan, entry) {
            replace_entry(&job_with_collectors(0), plan, &entry.name).unwrap();
            replaced += 1;
        }
    }
    split(plan);
    trim_history(plan);
    (serde_json::to_vec(&plan).unwrap().len(), replaced)
}

#[test]
fn largest_plan_fits_into_status() {
    let collectors = |plan: &mut Vec<PlanEntry>| {
        let key = "01234567-89ab-cdef-0123-456789abcdef";
        request_collectors(plan, 2000, &format!("{key}/1"), Some(key));
    };
    let learners = |plan: &mut Vec<PlanEntry>| {
        learner_groups::request_learners(plan, 222, 8, "01234567-89ab-cdef-0123-456789abcdef/1");
        learner_groups::split(plan, &[1; 16]);
    };
    for (request, is_split) in [
        (&collectors as &dyn Fn(&mut Vec<PlanEntry>), false),
        (&learners, true),
    ] {
        let mut plan = Vec::new();
        request(&mut plan);
        let count = count_wanted(&plan);
        for _ in 0..4 {
            let split = |plan: &mut Vec<PlanEntry>| {
                if is_split {
                    learner_groups::split(plan, &[1; 16]);
                }
            };
            // No wanted replica is removed.
            let (size, replaced) = size_after_losing_all(&mut plan, split);
            assert_eq!(count_wanted(&plan), count);
            assert!(size < 1450 << 10, "{size} bytes, {replaced} replaced");
        }
    }
}

#[test]
fn other_fields_of_job_reduce_status_budget() {
    let mut plan = Vec::new();
    request_collectors(&mut plan, 1, "uid/0", None);
    let fits = |spare: usize| {
        let mut job = job_with_collectors(1);
        let note = "x".repeat((1420 << 10) - MAX_FAILURES_BYTES - spare);
        job.annotations_mut().insert("note".to_owned(), note);
        // The given plan counts, not the plan in the status.
        job.status = Some(DIJobStatus {
            plan: vec![plan[0].clone(); 100],
            ..DIJobStatus::default()
        });
        StatusSizeBudget::for_job(&job, &plan).reserve_replacement(&plan, &plan[0])
    };
    assert!(fits(5000));
    assert!(!fits(500));
}

#[test]
fn completed_replicas_are_retired_oldest_first() {
    let mut plan = Vec::new();
    let names = request_collectors(&mut plan, 4, "uid/0", None);
    sync_plan(&job_with_collectors(1), &mut plan);
    for entry in plan.iter_mut().filter(|entry| entry.name != names[0]) {
        entry.done = true;
    }
    retire_done(&mut plan, |plan| count_wanted(plan) <= 3);
    let state = |name: &str| find_entry(&plan, name).unwrap().state;
    let states: Vec<_> = names.iter().map(|name| state(name)).collect();
    let (kept, retired) = (EntryState::Wanted, EntryState::Replaced);
    assert_eq!(states, [kept, retired, retired, kept]);
    retire_done(&mut plan, |_| false);
    assert_eq!(count_wanted(&plan), 2, "running and declared replicas stay");
}

#[test]
fn index_of_removed_replica_is_free_despite_history() {
    let mut plan = Vec::new();
    let scale = |plan: &mut Vec<PlanEntry>, replicas| {
        sync_plan(&job_with_collectors(replicas), plan);
        let kept: HashSet<_> = plan
            .iter()
            .filter(|entry| entry.state == EntryState::Replaced)
            .map(|entry| entry.name.clone())
            .collect();
        drop_deleted(plan, |name| kept.contains(name));
        let wanted = plan.iter().filter(|entry| entry.is_wanted());
        let mut wanted: Vec<_> = wanted.map(|e| (e.index, e.name.clone())).collect();
        wanted.sort();
        wanted
    };
    let lose = |plan: &mut Vec<PlanEntry>, name: &str| {
        replace_entry(&job_with_collectors(2), plan, name).unwrap()
    };
    let failed = scale(&mut plan, 2)[0].1.clone();
    lose(&mut plan, &failed);
    assert!(scale(&mut plan, 0).is_empty());
    assert_eq!(plan.len(), 1, "the failed replica is kept");
    let second = scale(&mut plan, 2);
    assert_eq!((second[0].0, second[1].0), (0, 1));
    assert_eq!(
        find_entry(&plan, &failed).unwrap().state,
        EntryState::Replaced
    );

    lose(&mut plan, &second[0].1);
    let state = |name: &str| find_entry(&plan, name).unwrap().state;
    let last = state(&second[0].1);
    assert_eq!(
        (state(&failed), last),
        (EntryState::Removing, EntryState::Replaced),
        "one is kept per index"
    );
}

#[test]
fn replacement_backoff_resets_after_long_run() {
    let mut plan = Vec::new();
    let mut name = request_collectors(&mut plan, 1, "uid/0", None).remove(0);
    let mut waits = Vec::new();
    for ran in [
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        None,
        Some(600),
        None,
    ] {
        name = replace(
            &job_with_collectors(0),
            &mut plan,
            &name,
            ran,
            &mut RandomSuffixes,
            now(),
        )
        .unwrap();
        let until = find_entry(&plan, &name).unwrap().not_before.clone();
        waits.push(until.map_or(0, |time| time.0.duration_since(now()).as_secs()));
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300, 0, 10]);
}

#[test]
fn requested_replicas_are_removed_before_declared() {
    let mut plan = Vec::new();
    sync_plan(&job_with_collectors(2), &mut plan);
    let requested = request_collectors(&mut plan, 2, "uid/0", None);
    let mut removed = scale_down_requested(&mut plan, &[], Role::Collector, 3);
    removed.sort();
    let mut expected = requested;
    expected.sort();
    assert_eq!(removed, expected);
    assert_eq!(
        scale_down_declared(&mut plan, &[], Role::Collector, 1).len(),
        1
    );
    assert_eq!(count_wanted(&plan), 1);
}

#[test]
fn group_has_own_count_and_resources() {
    let mut job = job_with_collectors(1);
    let groups = serde_json::json!([{"name": "big", "replicas": 2, "resources": {"cpus": "4"}}]);
    job.spec.collector.as_mut().unwrap().groups = serde_json::from_value(groups).unwrap();
    let mut plan = Vec::new();
    sync_plan(&job, &mut plan);
    let big: Vec<_> = plan
        .iter()
        .filter(|e| e.group.as_deref() == Some("big"))
        .collect();
    assert_eq!((plan.len(), big.len()), (3, 2));
    assert_eq!(big[0].resources.cpus.as_ref().unwrap().0, "4");
    // A pod that does not exist follows the new spec and keeps its name.
    let before = plan.clone();
    let created = plan.iter_mut().find(|e| e.group.is_some()).unwrap();
    created.uid = Some("u".to_owned());
    let groups = &mut job.spec.collector.as_mut().unwrap().groups;
    groups[0].resources.cpus = Some(Quantity("8".to_owned()));
    sync_plan(&job, &mut plan);
    let cpus = |e: &PlanEntry| Some(e.resources.cpus.as_ref()?.0.clone());
    let all: Vec<_> = plan.iter().filter_map(cpus).collect();
    assert_eq!(all, ["4", "8"]);
    let names = |plan: &[PlanEntry]| plan.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&plan), names(&before));
    job.spec.collector.as_mut().unwrap().groups.clear();
    sync_plan(&job, &mut plan);
    assert_eq!(count_wanted(&plan), 1);
}

#[derive(Clone, Debug)]
enum Op {
    SyncDeclared(usize),
    Request(usize, u8),
    ScaleDown(usize),
    Replace(usize),
    DropDeleted,
}

fn any_ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..6_usize).prop_map(Op::SyncDeclared),
        (0..4_usize, 0..3_u8).prop_map(|(n, i)| Op::Request(n, i)),
        (0..5_usize).prop_map(Op::ScaleDown),
        (0..12_usize).prop_map(Op::Replace),
        Just(Op::DropDeleted),
    ];
    proptest::collection::vec(op, 0..30)
}

proptest! {
    /// After any sequence of operations: names are unique, indices of wanted entries are unique per
    /// role, and the counts are the requested ones.
    #[test]
    fn plan_stays_consistent_after_any_operations(ops in any_ops()) {
        let mut plan: Vec<PlanEntry> = Vec::new();
        let mut declared = 0;
        let mut time = now();
        for op in ops {
            time += SignedDuration::from_secs(1);
            let requested = |plan: &[PlanEntry]| {
                plan.iter().filter(|e| e.is_wanted() && e.origin == Origin::Requested).count()
            };
            let before = requested(&plan);
            match op {
                Op::SyncDeclared(n) => {
                    declared = n;
                    sync_declared(&job_with_collectors(n), &mut plan, &[], &mut RandomSuffixes, time);
                    prop_assert_eq!(requested(&plan), before);
                }
                Op::Request(n, instance) => {
                    let names = request_collectors(&mut plan, n, &format!("uid/{instance}"), None);
                    prop_assert_eq!(names.len(), n);
                    prop_assert!(requested(&plan) >= before && requested(&plan) <= before + n);
                }
                Op::ScaleDown(n) => {
                    let removed = scale_down_requested(&mut plan, &[], Role::Collector, n);
                    prop_assert_eq!(removed.len(), n.min(before));
                    prop_assert_eq!(requested(&plan), before - removed.len());
                }
                Op::Replace(i) => {
                    let all = count_wanted(&plan);
                    if let Some(name) = plan.get(i).map(|e| e.name.clone()) {
                        replace(&job_with_collectors(declared), &mut plan, &name, None, &mut RandomSuffixes, time);
                    }
                    prop_assert_eq!(count_wanted(&plan), all);
                }
                Op::DropDeleted => drop_deleted(&mut plan, |_| false),
            }
            let names: HashSet<_> = plan.iter().map(|e| &e.name).collect();
            prop_assert_eq!(names.len(), plan.len());
            let indices: HashSet<_> = plan.iter().filter(|e| e.is_wanted()).map(|e| e.index).collect();
            prop_assert_eq!(indices.len(), count_wanted(&plan));
            prop_assert_eq!(count_wanted(&plan) - requested(&plan), declared);
        }
    }
}
