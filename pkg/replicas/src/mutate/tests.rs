use di_api::{DIJobStatus, EntryState};
use serde_json::json;

use super::{lowering, write::count, *};

fn entry(name: &str, role: Role) -> PlanEntry {
    serde_json::from_value(json!({"name": name, "type": role, "origin": "Requested", "index": 0}))
        .unwrap()
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

#[test]
fn what_a_request_lowered_is_noted_with_it() {
    let mut job: DIJob = serde_json::from_value(json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "j", "annotations": {"theirs": "kept"}},
        "spec": {"coordinator": {"template": {}}},
    }))
    .unwrap();
    let plain: Bucket = (Role::Collector, None);
    let big: Bucket = (Role::Collector, Some("big".to_owned()));
    let both = HashMap::from([(plain.clone(), 2), (big, 1)]);
    job.metadata.annotations = Some(lowering::note(&job, "a", &both));
    let more = HashMap::from([(plain, 3)]);
    job.metadata.annotations = Some(lowering::note(&job, "b", &more));
    assert_eq!(lowered(&job, "a"), both);
    assert_eq!(lowered(&job, "b"), more);
    assert!(lowered(&job, "c").is_empty());
    assert_eq!(job.metadata.annotations.as_ref().unwrap()["theirs"], "kept");
    for i in 0..100 {
        job.metadata.annotations = Some(lowering::note(&job, &i.to_string(), &more));
    }
    assert!(lowered(&job, "b").is_empty(), "long ago");
    assert_eq!(lowered(&job, "99"), more);
}
