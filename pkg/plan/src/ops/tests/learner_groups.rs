//! Logic learners in the plan.

use std::collections::HashSet;

use di_api::{DIJob, EntryState, Origin, PlanEntry, Role};
use jiff::SignedDuration;
use proptest::prelude::*;

use super::{super::*, now};
use crate::{NodeView, PodView, RandomSuffixes, Simple};

/// Learners have 6 GPUs, unless somebody asks for others.
fn job(learners: i32) -> DIJob {
    let mut job: DIJob = serde_saphyr::from_str(
        "
metadata: {name: j, namespace: ns, uid: u}
spec:
  coordinator: {template: {spec: {containers: [{name: di-container}]}}}
  learner: {template: {spec: {containers: [{name: di-container, resources: {limits: {nvidia.com/gpu: '6'}}}]}}}
",
    )
    .unwrap();
    job.spec.learner.as_mut().unwrap().replicas = learners;
    job
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
    expand(
        &job(0),
        plan,
        &nodes(gpus),
        &Simple,
        &mut RandomSuffixes,
        now(),
    );
}

pub(super) fn ask(
    plan: &mut Vec<PlanEntry>,
    count: usize,
    gpus: i32,
    incarnation: &str,
) -> Vec<String> {
    let resources = serde_json::json!({"gpus": gpus.to_string(), "cpus": "6"});
    let wish = Request {
        count,
        resources: serde_json::from_value(resources).unwrap(),
        incarnation: Some(incarnation.to_owned()),
        aggregator_port: Some(5000),
        ..Request::default()
    };
    request(
        &job(0),
        plan,
        Role::Learner,
        &wish,
        |_| false,
        &mut RandomSuffixes,
        now(),
    )
}

/// GPUs, first rank and number of each ddp learner, by rank.
fn places(plan: &[PlanEntry], aggregator: &str) -> Vec<(i32, i32, i32)> {
    let mut all: Vec<_> = members(plan, aggregator)
        .map(|e| (e.gpus(), e.ddp.as_ref().unwrap().start_rank, e.index))
        .collect();
    all.sort_by_key(|(_, rank, _)| *rank);
    all
}

#[test]
fn learners_of_several_gpus_are_planned_as_aggregators() {
    let mut plan = Vec::new();
    let unit = ask(&mut plan, 1, 6, "uid/0").remove(0);
    let one = ask(&mut plan, 1, 1, "uid/0").remove(0);
    split(&mut plan, &[4, 4]);
    assert_eq!(find(&plan, &one).unwrap().role, Role::Learner);
    let aggregator = find(&plan, &unit).unwrap();
    assert_eq!(
        (aggregator.role, aggregator.port, aggregator.gpus()),
        (Role::Aggregator, Some(5000), 6)
    );
    assert_eq!(places(&plan, &unit), [(4, 0, 0), (2, 4, 1)]);
    let cpus: Vec<_> = members(&plan, &unit)
        .map(|e| e.resources.cpus.clone().unwrap().0)
        .collect();
    assert_eq!(cpus, ["4", "2"]);
    assert_eq!(
        ask(&mut plan, 1, 6, "uid/1"),
        [unit],
        "a restarted coordinator claims it"
    );
    let before = plan.clone();
    split(&mut plan, &[1]);
    assert_eq!(plan, before, "what is split stays so");
}

#[test]
fn f19_a_removal_takes_learners_and_aggregators_alike() {
    for n in 0..=5 {
        let mut plan = Vec::new();
        ask(&mut plan, 2, 1, "uid/0");
        ask(&mut plan, 2, 6, "uid/0");
        split(&mut plan, &[4]);
        let gone = release(&mut plan, &[], Role::Learner, n);
        assert_eq!(gone.len(), n.min(4));
        let left = plan
            .iter()
            .filter(|e| e.is_wanted() && e.role.counted_as() == Role::Learner);
        assert_eq!(left.count(), 4 - gone.len());
    }
}

#[test]
fn a_unit_that_is_not_whole_is_not_ready_and_goes_first() {
    let mut plan = Vec::new();
    let older = ask(&mut plan, 1, 6, "uid/0").remove(0);
    ask(&mut plan, 1, 6, "uid/0");
    split(&mut plan, &[4]);
    let lost = members(&plan, &older).next().unwrap().name.clone();
    plan.retain(|entry| entry.name != lost);
    let ready = |entry: &PlanEntry| {
        let pod = serde_json::json!({
            "metadata": {"name": entry.name, "labels": {"dijob-name": "j"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        PodView::new(&serde_json::from_value(pod).unwrap()).unwrap()
    };
    let pods: Vec<_> = plan.iter().map(ready).collect();
    assert_eq!(release(&mut plan, &pods, Role::Learner, 1), [older]);
}

#[test]
fn the_numbers_of_a_unit_that_is_let_go_of_after_a_failure_are_free() {
    let mut plan = Vec::new();
    let first = ask(&mut plan, 1, 6, "uid/0").remove(0);
    split(&mut plan, &[4]);
    let next = replace(&job(0), &mut plan, &first, None, &mut RandomSuffixes, now()).unwrap();
    // Its places are kept for it until it is split.
    let other = ask(&mut plan, 1, 6, "uid/0").remove(0);
    let unsplit = plan.clone();
    split(&mut plan, &[4]);
    assert_eq!(places(&plan, &next), [(4, 0, 0), (2, 4, 1)]);
    assert_eq!(places(&plan, &other), [(4, 0, 2), (2, 4, 3)]);

    plan = unsplit;
    remove(&mut plan, &next);
    split(&mut plan, &[4]);
    assert_eq!(places(&plan, &other), [(4, 0, 0), (2, 4, 1)]);
}

#[test]
fn a_member_stands_for_its_unit() {
    let mut plan = Vec::new();
    let unit = ask(&mut plan, 1, 6, "uid/0").remove(0);
    ask(&mut plan, 1, 2, "uid/0");
    split(&mut plan, &[4, 4]);
    let all: Vec<_> = members(&plan, &unit).map(|e| e.name.clone()).collect();
    let again = |plan: &mut Vec<PlanEntry>, name: &str| {
        replace(&job(0), plan, name, None, &mut RandomSuffixes, now()).unwrap()
    };
    let next = again(&mut plan, &all[1]);
    for name in all.iter().chain([&unit]) {
        assert_eq!(find(&plan, name).unwrap().state, EntryState::Replaced);
        assert_eq!(again(&mut plan, name), next, "once");
    }
    // Replaced once more before it was split: its places are still known.
    let last = again(&mut plan, &next);
    split(&mut plan, &[2]);
    assert_eq!(places(&plan, &last), [(2, 0, 0), (2, 2, 1), (2, 4, 3)]);
    drop_gone(&mut plan, |_| false);
    assert_eq!(
        successor(&plan, &all[0]).unwrap().name,
        last,
        "known by its successor"
    );
    remove(&mut plan, &last);
    drop_gone(&mut plan, |_| false);
    assert_eq!(plan.len(), 2);
}

#[test]
fn a_held_job_that_was_changed_is_planned_anew() {
    let mut plan = Vec::new();
    declare(&job(2), &mut plan, &[], &mut RandomSuffixes, now());
    split(&mut plan, &[8]);
    let mut changed = job(2);
    changed.spec.learner.as_mut().unwrap().template = serde_json::from_value(
        serde_json::json!({"spec": {"containers": [{"name": "di-container"}]}}),
    )
    .unwrap();
    declare(&changed, &mut plan, &[], &mut RandomSuffixes, now());
    drop_gone(&mut plan, |_| false);
    let roles: Vec<_> = plan.iter().map(|e| e.role).collect();
    assert_eq!(roles, [Role::Learner, Role::Learner]);
}

#[test]
fn a_unit_that_was_not_made_yet_is_split_anew_when_its_resources_change() {
    let mut plan = Vec::new();
    declare(&job(1), &mut plan, &[], &mut RandomSuffixes, now());
    let mut changed = job(1);
    let learner = changed.spec.learner.as_mut().unwrap();
    learner.replicas = 0;
    let group = |cpus: &str| {
        let group = serde_json::json!([{"name": "g", "replicas": 1, "resources": {"gpus": 4, "cpus": cpus}}]);
        serde_json::from_value(group).unwrap()
    };
    learner.groups = group("8");
    let again = |plan: &mut Vec<PlanEntry>, job: &DIJob| {
        declare(job, plan, &[], &mut RandomSuffixes, now());
        drop_gone(plan, |_| false);
    };
    again(&mut plan, &changed);
    let name = plan[0].name.clone();
    changed.spec.learner.as_mut().unwrap().groups = group("16");
    again(&mut plan, &changed);
    assert_eq!(
        (plan.len(), &plan[0].name),
        (1, &name),
        "it has no parts yet"
    );
    split(&mut plan, &[4]);
    assert_eq!(plan.len(), 2);
    again(&mut plan, &changed);
    assert_eq!(
        (plan.len(), &plan[0].name),
        (2, &name),
        "nothing has changed"
    );
    changed.spec.learner.as_mut().unwrap().groups = group("32");
    again(&mut plan, &changed);
    assert_eq!(plan.len(), 1, "its parts are planned anew");
    assert_eq!(plan[0].resources.cpus.as_ref().unwrap().0, "32");
    assert_ne!(plan[0].name, name);
}

#[test]
fn of_a_role_that_was_taken_out_all_go_whoever_wanted_them_and_units_whole() {
    let mut plan = Vec::new();
    declare(&job(1), &mut plan, &[], &mut RandomSuffixes, now());
    ask(&mut plan, 1, 6, "uid/0");
    ask(&mut plan, 1, 1, "uid/0");
    split(&mut plan, &[4, 4]);
    assert_eq!(plan.len(), 3 + 3 + 1);
    let mut without = job(0);
    without.spec.learner = None;
    declare(&without, &mut plan, &[], &mut RandomSuffixes, now());
    let goes = |entry: &PlanEntry| entry.state == EntryState::Removing;
    assert!(plan.iter().all(goes), "{plan:?}");
}

#[test]
fn an_aggregator_stays_planned_while_a_failed_ddp_learner_is_kept() {
    let mut plan = Vec::new();
    let unit = ask(&mut plan, 1, 6, "uid/0").remove(0);
    split(&mut plan, &[4]);
    let member = members(&plan, &unit).next().unwrap().name.clone();
    replace(
        &job(0),
        &mut plan,
        &member,
        None,
        &mut RandomSuffixes,
        now(),
    );
    drop_gone(&mut plan, |name| name == member);
    follow(&mut plan);
    assert_eq!(find(&plan, &member).unwrap().state, EntryState::Replaced);
    drop_gone(&mut plan, |_| false);
    assert!(find(&plan, &unit).is_none() && find(&plan, &member).is_none());
}

#[derive(Clone, Debug)]
enum Op {
    Declare(i32),
    Ask(usize, i32, u8),
    Release(usize),
    Replace(usize),
    Remove(usize),
    Split(Vec<i32>),
    Gone(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..4).prop_map(Op::Declare),
        (0..3_usize, 1..20, 0..3_u8).prop_map(|(n, gpus, i)| Op::Ask(n, gpus, i)),
        (0..5_usize).prop_map(Op::Release),
        (0..20_usize).prop_map(Op::Replace),
        (0..20_usize).prop_map(Op::Remove),
        proptest::collection::vec(0..9, 0..6).prop_map(Op::Split),
        (1..5_usize).prop_map(Op::Gone),
    ];
    proptest::collection::vec(op, 0..40)
}

fn counted(plan: &[PlanEntry], origin: Origin) -> usize {
    let of = |e: &&PlanEntry| {
        e.is_wanted() && e.origin == origin && e.role.counted_as() == Role::Learner
    };
    plan.iter().filter(of).count()
}

proptest! {
    /// Whatever is done in whatever order: units are whole or not split yet, go as one, and are counted as learners.
    #[test]
    fn units_stay_whole(ops in ops()) {
        let mut plan: Vec<PlanEntry> = Vec::new();
        let mut declared = 0;
        let mut time = now();
        for op in ops {
            time += SignedDuration::from_secs(1);
            let (requested, all) = (counted(&plan, Origin::Requested), counted(&plan, Origin::Declared));
            match op {
                Op::Declare(n) => {
                    declared = n;
                    declare(&job(n), &mut plan, &[], &mut RandomSuffixes, time);
                    prop_assert_eq!(counted(&plan, Origin::Declared), usize::try_from(declared).unwrap());
                }
                Op::Ask(n, gpus, incarnation) => {
                    let names = ask(&mut plan, n, gpus, &format!("uid/{incarnation}"));
                    prop_assert_eq!(names.len(), n);
                    prop_assert!(counted(&plan, Origin::Requested) <= requested + n);
                }
                Op::Release(n) => {
                    let gone = release(&mut plan, &[], Role::Learner, n);
                    prop_assert_eq!(gone.len(), n.min(requested));
                    prop_assert_eq!(counted(&plan, Origin::Requested), requested - gone.len());
                }
                Op::Replace(i) => {
                    if let Some(name) = plan.get(i).map(|e| e.name.clone()) {
                        let next = replace(&job(declared), &mut plan, &name, None, &mut RandomSuffixes, time);
                        if let Some(next) = next {
                            prop_assert!(find(&plan, &next).unwrap().role != Role::DdpLearner);
                        }
                    }
                    prop_assert_eq!((counted(&plan, Origin::Requested), counted(&plan, Origin::Declared)), (requested, all));
                }
                Op::Remove(i) => {
                    let entry = plan.get(i).filter(|e| e.role != Role::DdpLearner);
                    if let Some(name) = entry.map(|e| e.name.clone()) {
                        remove(&mut plan, &name);
                    }
                }
                Op::Split(gpus) => {
                    split(&mut plan, &gpus);
                    for unit in plan.iter().filter(|e| e.role == Role::Aggregator && e.is_wanted()) {
                        prop_assert!(is_whole(&plan, &unit.name));
                        let sum: i32 = members(&plan, &unit.name).map(PlanEntry::gpus).sum();
                        prop_assert_eq!(sum, unit.gpus());
                    }
                }
                Op::Gone(nth) => {
                    let names: Vec<_> = plan.iter().map(|e| e.name.clone()).collect();
                    drop_gone(&mut plan, |name| names.iter().position(|n| n == name).unwrap() % nth != 0);
                }
            }
            let names: HashSet<_> = plan.iter().map(|e| &e.name).collect();
            prop_assert_eq!(names.len(), plan.len());
            let wanted = || plan.iter().filter(|e| e.is_wanted());
            let numbers: HashSet<_> = wanted().map(|e| (e.role, e.index)).collect();
            prop_assert_eq!(numbers.len(), wanted().count());
            for entry in &plan {
                if let Some(aggregator) = aggregator_of(entry) {
                    let leader = find(&plan, aggregator).map(|e| e.state);
                    prop_assert_eq!(entry.is_wanted(), leader == Some(EntryState::Wanted));
                    prop_assert!(leader.is_some(), "an aggregator stays as long as its ddp learners");
                }
                if entry.role == Role::Aggregator && entry.is_wanted() {
                    prop_assert!(members(&plan, &entry.name).next().is_none() || is_whole(&plan, &entry.name));
                }
            }
        }
    }
}
