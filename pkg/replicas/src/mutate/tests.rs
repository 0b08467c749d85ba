use std::collections::HashMap;

use di_api::{EntryState, PlanEntry, RequestKind, Role, names};
use di_fixtures::Job;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{write::status_fields, *};
use crate::idempotency::{
    history,
    recorded_scale_down::{
        self, ReplicaGroupRef, ScaleDown, recorded_pod_names, recorded_scale_downs,
    },
};

fn entry(name: &str, role: Role) -> PlanEntry {
    serde_json::from_value(json!({"name": name, "type": role, "origin": "Requested", "index": 0}))
        .unwrap()
}

fn job() -> Job {
    Job::test().metadata(json!({"resourceVersion": "5"}))
}

fn view(job: &Value) -> JobView {
    serde_json::from_value(job.clone()).unwrap()
}

#[test]
fn status_patch_applies_to_new_and_existing_status() {
    let mut removing = entry("c", Role::Collector);
    removing.state = EntryState::Removing;
    let draft = || JobChange {
        plan: vec![
            entry("a", Role::Collector),
            entry("b", Role::Learner),
            removing.clone(),
        ],
        new_record: Some(history::new_record(
            RequestKind::Add,
            "key",
            "collectors 2",
            Vec::new(),
        )),
        ..JobChange::default()
    };
    let mut job = job().json();
    let patched_status = |job: &Value| {
        let fields = status_fields(&view(job), draft(), Timestamp::UNIX_EPOCH);
        let patch = di_api::guarded_patches(Some("5"), fields);
        let mut job = job.clone();
        json_patch::patch(&mut job, &patch).unwrap();
        job["status"].take()
    };
    let created = patched_status(&job);
    assert_eq!(
        (&created["collectors"], &created["learners"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(created["plan"][2]["state"], "Removing");
    assert_eq!(created["requests"][0]["key"], "key");
    job["status"] = json!({"phase": "Running", "collectors": 7, "unknown": "kept"});
    let updated = patched_status(&job);
    assert_eq!(
        (&updated["collectors"], &updated["plan"]),
        (&json!(1), &created["plan"])
    );
    assert_eq!(
        (&updated["phase"], &updated["unknown"]),
        (&json!("Running"), &json!("kept"))
    );
}

#[test]
fn status_patch_counts_changes_of_listed_replicas() {
    let listed = |name: &str, is_listed: bool| {
        let mut entry = entry(name, Role::Collector);
        entry.listed = is_listed;
        entry
    };
    let removing = |name: &str| PlanEntry {
        state: EntryState::Removing,
        ..listed(name, true)
    };
    let before = || vec![listed("a", true), listed("b", false)];
    for (counted, plan, generation) in [
        (Some(7), vec![removing("a"), listed("b", false)], Some(8)),
        (Some(7), vec![listed("a", true), removing("b")], Some(7)),
        (
            Some(7),
            [before(), vec![listed("c", false)]].concat(),
            Some(7),
        ),
        (None, vec![removing("a"), listed("b", false)], None),
    ] {
        let status = json!({"plan": before(), "membershipGeneration": counted});
        let mut job = job().status(status).json();
        let draft = JobChange {
            plan,
            ..JobChange::default()
        };
        let fields = status_fields(&view(&job), draft, Timestamp::UNIX_EPOCH);
        let patch = di_api::guarded_patches(Some("5"), fields);
        json_patch::patch(&mut job, &patch).unwrap();
        let status = &job["status"];
        assert_eq!(status["membershipGeneration"].as_i64(), generation);
        if counted.is_some() {
            assert_ne!(
                status["plan"][0]["listed"],
                status["plan"][0]["state"] == "Removing"
            );
        }
    }
}

#[test]
fn retry_delay_grows_within_bounds() {
    assert!(retry_delay(1) <= Duration::from_millis(20));
    assert!(retry_delay(40) <= Duration::from_millis(MAX_BACKOFF_MS));
    assert!(retry_delay(40) >= Duration::from_millis(MAX_BACKOFF_MS / 2));
}

fn record_scale_down(
    job: &mut Value,
    key: &str,
    scale_downs: &HashMap<ReplicaGroupRef, ScaleDown>,
    now: Timestamp,
) {
    let fields = recorded_scale_down::record_fields(&view(job), key, scale_downs, now);
    let patch = di_api::guarded_patches(Some("5"), fields);
    json_patch::patch(job, &patch).unwrap();
}

fn scale_down_by(by: i32, names: &[&str]) -> ScaleDown {
    ScaleDown {
        by,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

#[test]
fn scale_down_is_recorded_with_its_request_key() {
    let mut job = job().json();
    let plain: ReplicaGroupRef = (Role::Collector, None);
    let big: ReplicaGroupRef = (Role::Collector, Some("big".to_owned()));
    let both = HashMap::from([
        (plain.clone(), scale_down_by(2, &["x", "y"])),
        (big, scale_down_by(1, &[])),
    ]);
    let more = HashMap::from([(plain.clone(), scale_down_by(3, &["z"]))]);
    let now = Timestamp::UNIX_EPOCH;
    let record_now =
        |job: &mut Value, key: &str, scale_downs: &HashMap<ReplicaGroupRef, ScaleDown>| {
            record_scale_down(job, key, scale_downs, now);
        };
    let recorded = |job: &JobView, key: &str| recorded_scale_downs(job, key, now);
    record_now(&mut job, "a", &both);
    assert_eq!(recorded(&view(&job), "a"), both);
    job["metadata"]["annotations"]["theirs"] = json!("kept");
    record_now(&mut job, "b", &more);
    assert_eq!(recorded(&view(&job), "a"), both);
    assert_eq!(recorded(&view(&job), "b"), more);
    assert!(recorded(&view(&job), "c").is_empty());
    assert_eq!(job["metadata"]["annotations"]["theirs"], "kept");
    let mut names = recorded_pod_names(&view(&job), now);
    names.sort();
    assert_eq!(names, ["x", "y", "z"]);
    record_now(&mut job, "b", &more);
    let twice = HashMap::from([(plain, scale_down_by(6, &["z", "z"]))]);
    assert_eq!(recorded(&view(&job), "b"), twice);
    for i in 0..100 {
        record_now(&mut job, &i.to_string(), &more);
    }
    assert!(
        recorded(&view(&job), "b").is_empty(),
        "dropped by newer records"
    );
    assert_eq!(recorded(&view(&job), "99"), more);
}

#[test]
fn scale_down_record_keeps_newest_names_within_size_limit() {
    let mut job = job().json();
    let group: ReplicaGroupRef = (Role::Collector, None);
    let now = Timestamp::UNIX_EPOCH;
    for key in ["old", "new"] {
        let scale_downs = HashMap::from([(group.clone(), scale_down_by(1000, &["x"; 1000]))]);
        record_scale_down(&mut job, key, &scale_downs, now);
    }
    for (key, names) in [("old", 24), ("new", 1000)] {
        let record = &recorded_scale_downs(&view(&job), key, now)[&group];
        assert_eq!((record.by, record.names.len()), (1000, names), "{key}");
    }
}

#[test]
fn pods_to_delete_annotation_merges_new_and_planned_names() {
    let plan = ["theirs", "x"].map(|name| entry(name, Role::Collector));
    let mut job = job()
        .metadata(json!({"annotations": {names::PODS_TO_DELETE_ANNOTATION: "gone,theirs,x"}}))
        .status(json!({"plan": plan}))
        .json();
    let group: ReplicaGroupRef = (Role::Collector, None);
    let now = Timestamp::UNIX_EPOCH;
    for names in [&["x", "y"][..], &[]] {
        let scale_downs = HashMap::from([(group.clone(), scale_down_by(2, names))]);
        record_scale_down(&mut job, "key", &scale_downs, now);
        let annotation = &job["metadata"]["annotations"][names::PODS_TO_DELETE_ANNOTATION];
        assert_eq!(annotation, "theirs,x,y");
    }
}

#[test]
fn idempotency_key_of_another_request_is_rejected() {
    let at = Timestamp::UNIX_EPOCH;
    let is_replay = |recorded: &str, kind, requested: &str| {
        let mut request = history::new_record(RequestKind::Add, "more-1", recorded, Vec::new());
        request.at.0 = at;
        let job = job().status(json!({"requests": [request]})).build();
        let replay = history::find_replay(&job, kind, "more-1", requested, at);
        replay
            .map(|found| found.is_some())
            .map_err(|error| error.to_string())
    };
    let rejection = "the Idempotency-Key more-1 was used by another request, for collectors 2; use a new key for a new request";
    for (recorded, kind, requested, expected) in [
        ("collectors 2", RequestKind::Add, "collectors 2", Ok(true)),
        (
            "collectors 2",
            RequestKind::Add,
            "collectors 3",
            Err(rejection.to_owned()),
        ),
        (
            "collectors 2",
            RequestKind::Remove,
            "collectors 3",
            Ok(false),
        ),
        // Older versions recorded no request text.
        ("", RequestKind::Add, "collectors 3", Ok(true)),
    ] {
        assert_eq!(
            is_replay(recorded, kind, requested),
            expected,
            "{recorded}, {requested}"
        );
    }
}

#[test]
fn expired_idempotency_key_is_usable_again() {
    let request = history::new_record(RequestKind::Remove, "nightly", "", Vec::new());
    let recorded_at = request.at.0;
    let (in_time, late) = (
        recorded_at + history::RETENTION / 2,
        recorded_at + history::RETENTION * 2,
    );
    let mut job = job().status(json!({"requests": [request]})).json();
    let has_request = |job: &Value, now: Timestamp| {
        history::find_record(&view(job), RequestKind::Remove, "nightly", now).is_some()
    };
    assert!(has_request(&job, in_time) && !has_request(&job, late));

    let two = HashMap::from([((Role::Collector, None), scale_down_by(2, &[]))]);
    record_scale_down(&mut job, "nightly", &two, recorded_at);
    assert_eq!(recorded_scale_downs(&view(&job), "nightly", in_time), two);
    assert!(recorded_scale_downs(&view(&job), "nightly", late).is_empty());
    record_scale_down(&mut job, "nightly", &two, late);
    assert_eq!(
        recorded_scale_downs(&view(&job), "nightly", late),
        two,
        "the expired record is not added"
    );

    // Older versions wrote no time, so the record counts as expired.
    let old = json!([{"key": "nightly", "role": Role::Collector, "by": 2}]);
    let old = json!({names::SCALE_DOWNS_ANNOTATION: old.to_string()});
    job["metadata"]["annotations"] = old;
    assert!(recorded_scale_downs(&view(&job), "nightly", recorded_at).is_empty());
    record_scale_down(&mut job, "nightly", &two, recorded_at);
    assert_eq!(
        recorded_scale_downs(&view(&job), "nightly", recorded_at),
        two
    );
}
