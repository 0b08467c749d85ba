use di_api::{DIJobStatus, EntryState};
use serde_json::json;

use super::{write::count, *};

fn entry(name: &str, role: Role) -> PlanEntry {
    serde_json::from_value(json!({"name": name, "type": role, "origin": "Requested", "index": 0}))
        .unwrap()
}

#[test]
fn a_lost_answer_is_told_from_a_lost_write() {
    let (a, b) = (entry("a", Role::Collector), entry("b", Role::Collector));
    let (only_a, both) = ([a.clone()], [a.clone(), b.clone()]);
    let planned = touched(&only_a, &both);
    assert_eq!(planned, [(b.clone(), true)]);
    assert!(!was_made(&planned, &only_a));
    assert!(was_made(&planned, &both));

    let mut going = a.clone();
    going.state = EntryState::Removing;
    let released = touched(&both, &[going.clone(), b.clone()]);
    assert_eq!(released, [(going.clone(), false)]);
    assert!(!was_made(&released, &both));
    assert!(was_made(&released, &[going, b.clone()]));
    assert!(was_made(&released, &[b]), "dropped meanwhile");

    let mut claimed = [a];
    claimed[0].claimed_by = Some("uid/1".into());
    let claims = touched(&only_a, &claimed);
    assert!(!was_made(&claims, &only_a));
    assert!(was_made(&claims, &claimed));
}

#[test]
fn totals_count_what_is_wanted() {
    let mut going = entry("c", Role::Collector);
    going.state = EntryState::Removing;
    let mut status = DIJobStatus {
        plan: vec![
            entry("a", Role::Collector),
            entry("b", Role::Learner),
            going,
        ],
        ..DIJobStatus::default()
    };
    count(&mut status);
    assert_eq!((status.collectors, status.learners), (1, 1));
}

#[test]
fn pauses_grow_and_stay_bounded() {
    assert!(pause(1) <= Duration::from_millis(20));
    assert!(pause(40) <= Duration::from_millis(LONGEST_WAIT_MS));
    assert!(pause(40) >= Duration::from_millis(LONGEST_WAIT_MS / 2));
}
