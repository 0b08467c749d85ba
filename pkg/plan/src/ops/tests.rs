use std::collections::HashSet;

use di_api::{DIJob, DIJobStatus, EntryState, Origin, PlanEntry, Role};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use proptest::prelude::*;

use super::*;
use crate::RandomSuffixes;

mod units;

fn job(collectors: i32) -> DIJob {
    let mut job: DIJob = serde_saphyr::from_str(
        "
metadata: {name: j, namespace: ns, uid: u}
spec:
  coordinator: {template: {spec: {containers: [{name: di-container}]}}}
  collector: {template: {spec: {containers: [{name: di-container}]}}}
",
    )
    .unwrap();
    job.spec.collector.as_mut().unwrap().replicas = collectors;
    job
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn ask(
    plan: &mut Vec<PlanEntry>,
    count: usize,
    incarnation: &str,
    key: Option<&str>,
) -> Vec<String> {
    let wish = Request {
        count,
        incarnation: Some(incarnation.to_owned()),
        key: key.map(str::to_owned),
        ..Request::default()
    };
    request(
        &job(0),
        plan,
        Role::Collector,
        &wish,
        |_| false,
        &mut RandomSuffixes,
        now(),
    )
}

fn wanted(plan: &[PlanEntry]) -> usize {
    plan.iter().filter(|entry| entry.is_wanted()).count()
}

#[test]
fn a_restarted_coordinator_is_served_from_what_it_left() {
    let mut plan = Vec::new();
    let first = ask(&mut plan, 2, "uid/0", None);
    assert_eq!(
        ask(&mut plan, 2, "uid/1", None),
        first,
        "the fleet does not double"
    );
    let more = ask(&mut plan, 3, "uid/2", None);
    assert_eq!((&more[..2], wanted(&plan)), (&first[..], 3));
    assert_eq!(ask(&mut plan, 1, "uid/2", None).len(), 1);
    assert_eq!(wanted(&plan), 4, "the same incarnation asks for more");
}

#[test]
fn whom_the_annotation_names_goes_first() {
    let mut plan = Vec::new();
    declare(&job(4), &mut plan, &[], &mut RandomSuffixes, now());
    let all: Vec<_> = plan.iter().map(|entry| entry.name.clone()).collect();
    let mut fewer = job(2);
    // One that is not there, and one more than go.
    let let_go = format!("gone,{},{},{}", all[0], all[1], all[2]);
    fewer
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(di_api::names::LET_GO_ANNOTATION.to_owned(), let_go);
    declare(&fewer, &mut plan, &[], &mut RandomSuffixes, now());
    let left: Vec<_> = plan.iter().filter(|e| e.is_wanted()).collect();
    let left: Vec<_> = left.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(left, all[2..]);
    declare(&fewer, &mut plan, &[], &mut RandomSuffixes, now());
    assert_eq!(wanted(&plan), 2, "it holds once");
}

#[test]
fn a_replica_that_is_over_serves_nobody() {
    let mut plan = Vec::new();
    let first = ask(&mut plan, 1, "uid/0", None);
    let wish = Request {
        count: 1,
        incarnation: Some("uid/1".into()),
        ..Request::default()
    };
    let is_over = |name: &str| name == first[0];
    let next = request(
        &job(0),
        &mut plan,
        Role::Collector,
        &wish,
        is_over,
        &mut RandomSuffixes,
        now(),
    );
    assert_ne!(next, first);
}

#[test]
fn a_repeated_key_plans_nothing_new() {
    let mut plan = Vec::new();
    let first = ask(&mut plan, 2, "uid/0", Some("k"));
    assert_eq!(ask(&mut plan, 2, "uid/0", Some("k")), first);
    assert_eq!(wanted(&plan), 2);
}

#[test]
fn a_repeated_key_is_filled_up_where_some_were_let_go_of() {
    let mut plan = Vec::new();
    let first = ask(&mut plan, 2, "uid/0", Some("k"));
    remove(&mut plan, &first[1]);
    let again = ask(&mut plan, 2, "uid/0", Some("k"));
    assert_eq!((again.len(), &again[0]), (2, &first[0]));
    assert_eq!(wanted(&plan), 2);
}

#[test]
fn what_a_restarted_coordinator_gets_by_a_repeated_key_is_not_left_to_it_once_more() {
    let mut plan = Vec::new();
    let first = ask(&mut plan, 2, "uid/0", Some("k"));
    assert_eq!(ask(&mut plan, 2, "uid/1", Some("k")), first);
    let more = ask(&mut plan, 1, "uid/1", Some("another"));
    assert!(!first.contains(&more[0]));
    assert_eq!(wanted(&plan), 3);
}

#[test]
fn a_name_reported_twice_is_replaced_once() {
    let mut plan = Vec::new();
    let name = ask(&mut plan, 1, "uid/0", None).remove(0);
    let again = |plan: &mut Vec<PlanEntry>, name: &str| {
        replace(&job(0), plan, name, None, &mut RandomSuffixes, now())
    };
    let second = again(&mut plan, &name).unwrap();
    assert_eq!(again(&mut plan, &name).as_ref(), Some(&second));
    let third = again(&mut plan, &second).unwrap();
    assert_eq!(
        again(&mut plan, &name).as_ref(),
        Some(&third),
        "through all its successors"
    );
    assert_eq!(find(&plan, &name).unwrap().state, EntryState::Removing);
    assert_eq!(find(&plan, &second).unwrap().state, EntryState::Replaced);
    assert_eq!(again(&mut plan, "j-collector-never"), None);
}

#[test]
fn what_is_let_go_of_says_no_more_than_whose_it_is_and_the_last_are_kept_for_their_logs() {
    let mut plan = Vec::new();
    let mut names = ask(&mut plan, 150, "uid/0", Some("key"));
    // The first planned is the last that fails.
    names.reverse();
    for name in &names {
        replace(&job(0), &mut plan, name, None, &mut RandomSuffixes, now()).unwrap();
    }
    shorten(&mut plan);
    for (i, name) in names.iter().enumerate() {
        let entry = find(&plan, name).unwrap();
        let kept = if i < 50 {
            EntryState::Removing
        } else {
            EntryState::Replaced
        };
        let said = (&entry.request_key, &entry.claimed_by);
        assert_eq!((entry.state, said), (kept, (&None, &None)), "{i}");
    }
    let successors: Vec<_> = plan.iter().filter(|entry| entry.is_wanted()).collect();
    let same = |entry: &&PlanEntry| entry.request_key.as_deref() == Some("key");
    assert!(successors.len() == 150 && successors.iter().all(same));
}

/// Has all that are wanted made, loses all of them, and returns the size of the plan then, with the longest names that there may be.
fn size_once_all_are_lost(
    plan: &mut Vec<PlanEntry>,
    split: impl Fn(&mut Vec<PlanEntry>),
) -> (usize, usize) {
    for entry in plan.iter_mut() {
        entry.uid = Some("01234567-89ab-cdef-0123-456789abcdef".to_owned());
        entry.resources.cpus = Some(Quantity("16".to_owned()));
        entry.resources.memory = Some(Quantity("131072Mi".to_owned()));
    }
    let leads = |entry: &&PlanEntry| entry.is_wanted() && entry.ddp.is_none();
    let leaders: Vec<_> = plan.iter().filter(leads).cloned().collect();
    let (mut room, mut replaced) = (Room::of(&job(0), plan), 0);
    for entry in &leaders {
        if room.take(plan, entry) {
            replace(&job(0), plan, &entry.name, None, &mut RandomSuffixes, now()).unwrap();
            replaced += 1;
        }
    }
    split(plan);
    shorten(plan);
    (serde_json::to_vec(&plan).unwrap().len(), replaced)
}

#[test]
fn the_largest_plans_can_be_stored() {
    let collectors = |plan: &mut Vec<PlanEntry>| {
        let key = "01234567-89ab-cdef-0123-456789abcdef";
        ask(plan, 2000, &format!("{key}/1"), Some(key));
    };
    let learners = |plan: &mut Vec<PlanEntry>| {
        units::ask(plan, 222, 8, "01234567-89ab-cdef-0123-456789abcdef/1");
        units::split(plan, &[1; 16]);
    };
    for (asks, splits) in [
        (&collectors as &dyn Fn(&mut Vec<PlanEntry>), false),
        (&learners, true),
    ] {
        let mut plan = Vec::new();
        asks(&mut plan);
        let count = wanted(&plan);
        for _ in 0..4 {
            let split = |plan: &mut Vec<PlanEntry>| {
                if splits {
                    units::split(plan, &[1; 16]);
                }
            };
            // Nothing of them goes.
            let (size, replaced) = size_once_all_are_lost(&mut plan, split);
            assert_eq!(wanted(&plan), count);
            assert!(size < 1450 << 10, "{size} bytes, {replaced} replaced");
        }
    }
}

#[test]
fn what_else_a_job_has_takes_room_of_its_plan() {
    let mut plan = Vec::new();
    ask(&mut plan, 1, "uid/0", None);
    let has_room = |spare: usize| {
        let mut job = job(1);
        let note = "x".repeat((1420 << 10) - spare);
        job.annotations_mut().insert("note".to_owned(), note);
        // The plan that stands in it is counted as it is now.
        job.status = Some(DIJobStatus {
            plan: vec![plan[0].clone(); 100],
            ..DIJobStatus::default()
        });
        Room::of(&job, &plan).take(&plan, &plan[0])
    };
    assert!(has_room(5000));
    assert!(!has_room(500));
}

#[test]
fn those_that_have_done_their_work_make_room_for_others_the_oldest_first() {
    let mut plan = Vec::new();
    let names = ask(&mut plan, 4, "uid/0", None);
    declare(&job(1), &mut plan, &[], &mut RandomSuffixes, now());
    for entry in plan.iter_mut().filter(|entry| entry.name != names[0]) {
        entry.done = true;
    }
    release_done(&mut plan, |plan| wanted(plan) <= 3);
    let state = |name: &str| find(&plan, name).unwrap().state;
    let states: Vec<_> = names.iter().map(|name| state(name)).collect();
    let (stays, goes) = (EntryState::Wanted, EntryState::Replaced);
    assert_eq!(states, [stays, goes, goes, stays]);
    release_done(&mut plan, |_| false);
    assert_eq!(
        wanted(&plan),
        2,
        "neither what works nor what is declared goes"
    );
}

#[test]
fn a_number_is_free_once_nobody_has_it_whatever_is_kept_of_who_failed() {
    let mut plan = Vec::new();
    let scale = |plan: &mut Vec<PlanEntry>, replicas| {
        declare(&job(replicas), plan, &[], &mut RandomSuffixes, now());
        let kept: HashSet<_> = plan
            .iter()
            .filter(|entry| entry.state == EntryState::Replaced)
            .map(|entry| entry.name.clone())
            .collect();
        drop_gone(plan, |name| kept.contains(name));
        let wanted = plan.iter().filter(|entry| entry.is_wanted());
        let mut wanted: Vec<_> = wanted.map(|e| (e.index, e.name.clone())).collect();
        wanted.sort();
        wanted
    };
    let lose = |plan: &mut Vec<PlanEntry>, name: &str| {
        replace(&job(2), plan, name, None, &mut RandomSuffixes, now()).unwrap()
    };
    let failed = scale(&mut plan, 2)[0].1.clone();
    lose(&mut plan, &failed);
    assert!(scale(&mut plan, 0).is_empty());
    assert_eq!(plan.len(), 1, "the failed one is kept");
    let anew = scale(&mut plan, 2);
    assert_eq!((anew[0].0, anew[1].0), (0, 1));
    assert_eq!(find(&plan, &failed).unwrap().state, EntryState::Replaced);

    lose(&mut plan, &anew[0].1);
    let state = |name: &str| find(&plan, name).unwrap().state;
    let last = state(&anew[0].1);
    assert_eq!(
        (state(&failed), last),
        (EntryState::Removing, EntryState::Replaced),
        "one is kept of each number"
    );
}

#[test]
fn replacements_back_off_until_one_ran_long_enough() {
    let mut plan = Vec::new();
    let mut name = ask(&mut plan, 1, "uid/0", None).remove(0);
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
        name = replace(&job(0), &mut plan, &name, ran, &mut RandomSuffixes, now()).unwrap();
        let until = find(&plan, &name).unwrap().not_before.clone();
        waits.push(until.map_or(0, |time| time.0.duration_since(now()).as_secs()));
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300, 0, 10]);
}

#[test]
fn requested_ones_go_before_declared_ones() {
    let mut plan = Vec::new();
    declare(&job(2), &mut plan, &[], &mut RandomSuffixes, now());
    let requested = ask(&mut plan, 2, "uid/0", None);
    let mut gone = release(&mut plan, &[], Role::Collector, 3);
    gone.sort();
    let mut expected = requested;
    expected.sort();
    assert_eq!(gone, expected);
    assert_eq!(
        release_declared(&mut plan, &[], Role::Collector, 1).len(),
        1
    );
    assert_eq!(wanted(&plan), 1);
}

#[test]
fn groups_have_their_own_counts_and_resources() {
    let mut job = job(1);
    let groups = serde_json::json!([{"name": "big", "replicas": 2, "resources": {"cpus": "4"}}]);
    job.spec.collector.as_mut().unwrap().groups = serde_json::from_value(groups).unwrap();
    let mut plan = Vec::new();
    declare(&job, &mut plan, &[], &mut RandomSuffixes, now());
    let big: Vec<_> = plan
        .iter()
        .filter(|e| e.group.as_deref() == Some("big"))
        .collect();
    assert_eq!((plan.len(), big.len()), (3, 2));
    assert_eq!(big[0].resources.cpus.as_ref().unwrap().0, "4");
    // What was not made yet is made as the job says now, and keeps its name.
    let before = plan.clone();
    let seen = plan.iter_mut().find(|e| e.group.is_some()).unwrap();
    seen.uid = Some("u".to_owned());
    let groups = &mut job.spec.collector.as_mut().unwrap().groups;
    groups[0].resources.cpus = Some(Quantity("8".to_owned()));
    declare(&job, &mut plan, &[], &mut RandomSuffixes, now());
    let cpus = |e: &PlanEntry| Some(e.resources.cpus.as_ref()?.0.clone());
    let all: Vec<_> = plan.iter().filter_map(cpus).collect();
    assert_eq!(all, ["4", "8"]);
    let names = |plan: &[PlanEntry]| plan.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&plan), names(&before));
    job.spec.collector.as_mut().unwrap().groups.clear();
    declare(&job, &mut plan, &[], &mut RandomSuffixes, now());
    assert_eq!(wanted(&plan), 1);
}

#[derive(Clone, Debug)]
enum Op {
    Declare(i32),
    Ask(usize, u8),
    Release(usize),
    Replace(usize),
    Gone,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..6).prop_map(Op::Declare),
        (0..4_usize, 0..3_u8).prop_map(|(n, i)| Op::Ask(n, i)),
        (0..5_usize).prop_map(Op::Release),
        (0..12_usize).prop_map(Op::Replace),
        Just(Op::Gone),
    ];
    proptest::collection::vec(op, 0..30)
}

proptest! {
    /// Whatever is asked in whatever order: names are unique, wanted indices of a role too, and the counts are those asked for.
    #[test]
    fn the_plan_stays_consistent(ops in ops()) {
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
                Op::Declare(n) => {
                    declared = n;
                    declare(&job(n), &mut plan, &[], &mut RandomSuffixes, time);
                    prop_assert_eq!(requested(&plan), before);
                }
                Op::Ask(n, incarnation) => {
                    let names = ask(&mut plan, n, &format!("uid/{incarnation}"), None);
                    prop_assert_eq!(names.len(), n);
                    prop_assert!(requested(&plan) >= before && requested(&plan) <= before + n);
                }
                Op::Release(n) => {
                    let gone = release(&mut plan, &[], Role::Collector, n);
                    prop_assert_eq!(gone.len(), n.min(before));
                    prop_assert_eq!(requested(&plan), before - gone.len());
                }
                Op::Replace(i) => {
                    let all = wanted(&plan);
                    if let Some(name) = plan.get(i).map(|e| e.name.clone()) {
                        replace(&job(declared), &mut plan, &name, None, &mut RandomSuffixes, time);
                    }
                    prop_assert_eq!(wanted(&plan), all);
                }
                Op::Gone => drop_gone(&mut plan, |_| false),
            }
            let names: HashSet<_> = plan.iter().map(|e| &e.name).collect();
            prop_assert_eq!(names.len(), plan.len());
            let indices: HashSet<_> = plan.iter().filter(|e| e.is_wanted()).map(|e| e.index).collect();
            prop_assert_eq!(indices.len(), wanted(&plan));
            prop_assert_eq!(wanted(&plan) - requested(&plan), usize::try_from(declared).unwrap());
        }
    }
}
