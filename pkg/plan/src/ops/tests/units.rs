//! Units in the plan.

use di_api::{DIJob, EntryState, Origin, PlanEntry, Role, UnitRestart};
use di_fixtures::Job;
use serde_json::json;

use super::{super::*, now, replace_entry, request_collectors, sync_plan};
use crate::{BuildSettings, PodView, RandomSuffixes, build_pod};

/// A job with collectors of three pods.
fn job_with_units(collectors: usize) -> DIJob {
    job_with_size(collectors, 3)
}

fn job_with_size(collectors: usize, size: i32) -> DIJob {
    let unit = json!({"collector": {"unit": {"size": size}}});
    Job::test().collectors(collectors).spec(unit).build()
}

/// A job whose units replace single pods.
fn job_with_single_pods(collectors: usize) -> DIJob {
    let mut job = job_with_units(collectors);
    let unit = job.spec.collector.as_mut().unwrap().unit.as_mut();
    unit.unwrap().restart = UnitRestart::Pod;
    job
}

fn plan_members(job: &DIJob, plan: &mut Vec<PlanEntry>) {
    plan_unit_members(job, plan, &mut RandomSuffixes, now());
}

fn planned(job: &DIJob) -> Vec<PlanEntry> {
    let mut plan = Vec::new();
    sync_plan(job, &mut plan);
    plan_members(job, &mut plan);
    plan
}

fn names_of(plan: &[PlanEntry]) -> Vec<String> {
    plan.iter().map(|entry| entry.name.clone()).collect()
}

/// Index of the unit and position of each wanted entry.
fn wanted_places(plan: &[PlanEntry]) -> Vec<(i32, i32)> {
    let wanted = plan.iter().filter(|entry| entry.is_wanted());
    let mut places: Vec<_> = wanted
        .map(|entry| (entry.index, entry.unit.as_ref().unwrap().index))
        .collect();
    places.sort_unstable();
    places
}

fn replace_single(job: &DIJob, plan: &mut Vec<PlanEntry>, name: &str) -> Option<String> {
    replace_unit_member(job, plan, name, None, &mut RandomSuffixes, now())
}

#[test]
fn unit_is_planned_as_leader_and_entries_that_follow() {
    let job = job_with_units(2);
    let mut plan = Vec::new();
    sync_plan(&job, &mut plan);
    assert_eq!(plan.len(), 2, "leaders first");
    assert_eq!(incomplete_units(&plan).len(), 2);
    plan_members(&job, &mut plan);
    let all = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)];
    assert_eq!(wanted_places(&plan), all);
    let leader = plan[0].clone();
    assert_eq!(plan[2].name, format!("{}-1", leader.name));
    assert_eq!(leader_of(&plan[2]), Some(&*leader.name));
    assert!(is_group_complete(&plan, &leader.name));
    let before = plan.clone();
    sync_plan(&job, &mut plan);
    plan_members(&job, &mut plan);
    assert_eq!(plan, before, "planned once");
    sync_plan(&job_with_units(1), &mut plan);
    assert_eq!(wanted_places(&plan), all[..3], "removed as a whole");
}

#[test]
fn requested_unit_is_one_name() {
    let job = job_with_units(0);
    let mut plan = Vec::new();
    let request_one = |plan: &mut Vec<PlanEntry>, instance: &str| {
        let request = Request {
            count: 1,
            coordinator_instance: Some(instance.to_owned()),
            ..Request::default()
        };
        let (role, suffixes) = (Role::Collector, &mut RandomSuffixes);
        plan_request(&job, plan, role, &request, |_| false, suffixes, now())
    };
    let names = request_one(&mut plan, "uid/0");
    plan_members(&job, &mut plan);
    assert_eq!((names.len(), plan.len()), (1, 3));
    assert_eq!(request_one(&mut plan, "uid/1"), names, "not doubled");
    let removed = scale_down_requested(&mut plan, &[], Role::Collector, 9);
    assert_eq!(removed, names);
    assert!(plan.iter().all(|entry| entry.state == EntryState::Removing));
    // A request for single pods is unchanged.
    let mut plan = Vec::new();
    request_collectors(&mut plan, 1, "uid/0", None);
    assert_eq!(plan[0].unit, None);
}

#[test]
fn learner_with_gpus_and_unit_has_no_aggregator() {
    let gpus = json!({"limits": {"nvidia.com/gpu": "8"}});
    let job = Job::test().learners_with(1, &gpus);
    let job: DIJob = job.spec(json!({"learner": {"unit": {"size": 1}}})).build();
    let plan = planned(&job);
    assert_eq!((plan.len(), plan[0].role), (1, Role::Learner));
    assert!(is_group_complete(&plan, &plan[0].name));
}

#[test]
fn any_lost_pod_replaces_whole_unit() {
    let job = job_with_units(1);
    for lost in 0..3 {
        let mut plan = planned(&job);
        let before = names_of(&plan);
        let name = replace_entry(&job, &mut plan, &before[lost]).unwrap();
        plan_members(&job, &mut plan);
        assert_eq!(wanted_places(&plan), [(0, 0), (0, 1), (0, 2)]);
        let old = |name: &String| find_entry(&plan, name).unwrap().state;
        assert!(before.iter().all(|name| old(name) == EntryState::Replaced));
        assert_eq!(
            find_entry(&plan, &name).unwrap().replaces.as_ref(),
            Some(&before[0])
        );
        for old in &before {
            let next = find_successor(&plan, old).unwrap();
            assert_eq!(next.name, name, "any old name leads to the leader");
        }
    }
}

#[test]
fn single_pod_is_replaced_in_its_place() {
    let job = job_with_single_pods(1);
    let mut plan = planned(&job);
    let before = names_of(&plan);
    let second = replace_single(&job, &mut plan, &before[1]).unwrap();
    assert_eq!(wanted_places(&plan), [(0, 0), (0, 1), (0, 2)]);
    assert!(second.ends_with("-1"), "{second}");
    assert_ne!(second, before[1]);
    let entry = find_entry(&plan, &second).unwrap();
    assert_eq!(entry.attempt, 1);
    assert_eq!(leader_of(entry), Some(&*before[0]));
    assert!(is_group_complete(&plan, &before[0]));
    assert_eq!(replace_single(&job, &mut plan, &before[1]), None, "once");
    assert_eq!(
        replace_single(&job, &mut plan, &before[0]),
        None,
        "a leader"
    );
    let reported = replace_entry(&job, &mut plan.clone(), &before[1]);
    assert_eq!(reported.as_deref(), Some(&*before[0]), "replaced already");
    let third = replace_single(&job, &mut plan, &second).unwrap();
    let states = [&before[1], &second, &third].map(|name| find_entry(&plan, name).unwrap().state);
    let expected = [
        EntryState::Removing,
        EntryState::Replaced,
        EntryState::Wanted,
    ];
    assert_eq!(states, expected, "the last failed pod is kept");
}

#[test]
fn changed_size_plans_units_without_pods_again() {
    let mut plan = planned(&job_with_units(1));
    let smaller = job_with_size(1, 2);
    let mut running = plan.clone();
    for entry in &mut running {
        entry.uid = Some("uid".to_owned());
    }
    for (plan, places) in [
        (&mut plan, &[(1, 0), (1, 1)][..]),
        (&mut running, &[(0, 0), (0, 1), (0, 2)]),
    ] {
        sync_plan(&smaller, plan);
        plan_members(&smaller, plan);
        assert_eq!(wanted_places(plan), places);
    }
}

/// The pods of a plan.
fn pods_of(job: &DIJob, plan: &[PlanEntry]) -> Vec<PodView> {
    let build = |entry: &PlanEntry| {
        let pod = build_pod(job, entry, None, &BuildSettings::default());
        PodView::new(&pod.unwrap().decode().unwrap()).unwrap()
    };
    plan.iter().map(build).collect()
}

fn adopt_pods(job: &DIJob, pods: &[PodView]) -> Vec<PlanEntry> {
    let mut plan = Vec::new();
    adopt(job, &mut plan, pods, Some("uid/0".to_owned()), now());
    plan
}

#[test]
fn adopted_units_keep_places_and_origins() {
    let job = job_with_single_pods(2);
    let mut plan = planned(&job);
    let renamed = plan[2].name.clone();
    let renamed = replace_single(&job, &mut plan, &renamed).unwrap();
    plan.retain(PlanEntry::is_wanted);
    let key = |entry: &PlanEntry| (entry.name.clone(), entry.index, entry.unit.clone());
    let keys = |plan: &[PlanEntry]| {
        let mut keys: Vec<_> = plan.iter().map(key).collect();
        keys.sort_by(|one, other| one.0.cmp(&other.0));
        keys
    };
    let adopted = adopt_pods(&job, &pods_of(&job, &plan));
    assert_eq!(keys(&adopted), keys(&plan));
    assert!(
        adopted
            .iter()
            .all(|e| e.origin == Origin::Declared && e.is_wanted())
    );
    assert!(find_entry(&adopted, &renamed).is_some());
    // Only one unit is declared: the other one counts as requested, with all its pods.
    let fewer = job_with_single_pods(1);
    let adopted = adopt_pods(&fewer, &pods_of(&job, &plan));
    let requested = adopted.iter().filter(|e| e.origin == Origin::Requested);
    assert_eq!(requested.count(), 3);
    let claimed = adopted.iter().filter(|entry| entry.claimed_by.is_some());
    assert_eq!(claimed.count(), 1, "its leader");
}

#[test]
fn pods_without_leader_or_with_taken_place_are_removed() {
    let job = job_with_single_pods(1);
    let mut plan = planned(&job);
    let pods = pods_of(&job, &plan);
    let orphans = adopt_pods(&job, &pods[1..]);
    assert!(
        orphans
            .iter()
            .all(|entry| entry.state == EntryState::Removing)
    );
    let old = plan[1].name.clone();
    replace_single(&job, &mut plan, &old).unwrap();
    let adopted = adopt_pods(&job, &pods_of(&job, &plan));
    let removed = adopted
        .iter()
        .filter(|entry| entry.state == EntryState::Removing);
    assert_eq!(removed.count(), 1);
    assert_eq!(wanted_places(&adopted), [(0, 0), (0, 1), (0, 2)]);
}

#[test]
fn missing_pods_are_planned_unless_unit_must_be_replaced() {
    for (job, completed) in [(job_with_units(1), false), (job_with_single_pods(1), true)] {
        let mut plan = planned(&job);
        plan[0].uid = Some("uid".to_owned());
        plan.remove(1);
        plan_members(&job, &mut plan);
        assert_eq!(is_group_complete(&plan, &plan[0].name), completed);
    }
}
