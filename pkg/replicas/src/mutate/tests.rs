use di_api::{EntryState, RequestKind, names};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{write::status_fields, *};
use crate::idempotency::{
    history,
    scale_down::{self, recorded_pod_names, recorded_scale_downs},
};

fn entry(name: &str, role: Role) -> PlanEntry {
    serde_json::from_value(json!({"name": name, "type": role, "origin": "Requested", "index": 0}))
        .unwrap()
}

fn view(job: &Value) -> JobView {
    serde_json::from_value(job.clone()).unwrap()
}

#[test]
fn what_is_written_fits_what_is_there() {
    let mut going = entry("c", Role::Collector);
    going.state = EntryState::Removing;
    let draft = || JobChange {
        plan: vec![
            entry("a", Role::Collector),
            entry("b", Role::Learner),
            going.clone(),
        ],
        answers: Some(history::new_record(
            RequestKind::Add,
            "key",
            "collectors 2",
            Vec::new(),
        )),
        ..JobChange::default()
    };
    let mut job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "j", "resourceVersion": "5"},
        "spec": {"coordinator": {"template": {}}},
    });
    let patched = |job: &Value| {
        let fields = status_fields(&view(job), draft(), Timestamp::UNIX_EPOCH);
        let patch = di_api::guarded_patches(Some("5"), fields);
        let mut job = job.clone();
        json_patch::patch(&mut job, &patch).unwrap();
        job["status"].take()
    };
    let anew = patched(&job);
    assert_eq!(
        (&anew["collectors"], &anew["learners"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(anew["plan"][2]["state"], "Removing");
    assert_eq!(anew["requests"][0]["key"], "key");
    job["status"] = json!({"phase": "Running", "collectors": 7, "unknown": "kept"});
    let over = patched(&job);
    assert_eq!(
        (&over["collectors"], &over["plan"]),
        (&json!(1), &anew["plan"])
    );
    assert_eq!(
        (&over["phase"], &over["unknown"]),
        (&json!("Running"), &json!("kept"))
    );
}

#[test]
fn pauses_grow_and_stay_bounded() {
    assert!(retry_delay(1) <= Duration::from_millis(20));
    assert!(retry_delay(40) <= Duration::from_millis(MAX_BACKOFF_MS));
    assert!(retry_delay(40) >= Duration::from_millis(MAX_BACKOFF_MS / 2));
}

fn note(job: &mut Value, key: &str, lower: &HashMap<ReplicaGroupRef, ScaleDown>, now: Timestamp) {
    let fields = scale_down::record_fields(&view(job), key, lower, now);
    let patch = di_api::guarded_patches(Some("5"), fields);
    json_patch::patch(job, &patch).unwrap();
}

fn fewer(by: i32, names: &[&str]) -> ScaleDown {
    ScaleDown {
        by,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    }
}

#[test]
fn what_a_request_lowered_is_noted_with_it() {
    let mut job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "j", "resourceVersion": "5"},
        "spec": {"coordinator": {"template": {}}},
    });
    let plain: ReplicaGroupRef = (Role::Collector, None);
    let big: ReplicaGroupRef = (Role::Collector, Some("big".to_owned()));
    let both = HashMap::from([(plain.clone(), fewer(2, &["x", "y"])), (big, fewer(1, &[]))]);
    let more = HashMap::from([(plain.clone(), fewer(3, &["z"]))]);
    let now = Timestamp::UNIX_EPOCH;
    let note = |job: &mut Value, key: &str, lower: &HashMap<ReplicaGroupRef, ScaleDown>| {
        note(job, key, lower, now);
    };
    let recorded = |job: &JobView, key: &str| recorded_scale_downs(job, key, now);
    note(&mut job, "a", &both);
    assert_eq!(recorded(&view(&job), "a"), both);
    job["metadata"]["annotations"]["theirs"] = json!("kept");
    note(&mut job, "b", &more);
    assert_eq!(recorded(&view(&job), "a"), both);
    assert_eq!(recorded(&view(&job), "b"), more);
    assert!(recorded(&view(&job), "c").is_empty());
    assert_eq!(job["metadata"]["annotations"]["theirs"], "kept");
    let mut names = recorded_pod_names(&view(&job), now);
    names.sort();
    assert_eq!(names, ["x", "y", "z"]);
    note(&mut job, "b", &more);
    let twice = HashMap::from([(plain, fewer(6, &["z", "z"]))]);
    assert_eq!(recorded(&view(&job), "b"), twice);
    for i in 0..100 {
        note(&mut job, &i.to_string(), &more);
    }
    assert!(recorded(&view(&job), "b").is_empty(), "long ago");
    assert_eq!(recorded(&view(&job), "99"), more);
}

#[test]
fn of_very_many_names_the_newest_are_noted() {
    let mut job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "j", "resourceVersion": "5"},
        "spec": {"coordinator": {"template": {}}},
    });
    let bucket: ReplicaGroupRef = (Role::Collector, None);
    let now = Timestamp::UNIX_EPOCH;
    for key in ["old", "new"] {
        let lower = HashMap::from([(bucket.clone(), fewer(1000, &["x"; 1000]))]);
        note(&mut job, key, &lower, now);
    }
    for (key, names) in [("old", 24), ("new", 1000)] {
        let noted = &recorded_scale_downs(&view(&job), key, now)[&bucket];
        assert_eq!((noted.by, noted.names.len()), (1000, names), "{key}");
    }
}

#[test]
fn the_reconciler_is_told_who_goes_and_who_was_named_before_and_is_yet_to_go() {
    let mut job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {
            "name": "j", "resourceVersion": "5", "annotations": {names::PODS_TO_DELETE_ANNOTATION: "gone,theirs,x"},
        },
        "spec": {"coordinator": {"template": {}}},
        "status": {"plan": [entry("theirs", Role::Collector), entry("x", Role::Collector)]},
    });
    let bucket: ReplicaGroupRef = (Role::Collector, None);
    let now = Timestamp::UNIX_EPOCH;
    for going in [&["x", "y"][..], &[]] {
        let lower = HashMap::from([(bucket.clone(), fewer(2, going))]);
        note(&mut job, "key", &lower, now);
        let told = &job["metadata"]["annotations"][names::PODS_TO_DELETE_ANNOTATION];
        assert_eq!(told, "theirs,x,y");
    }
}

#[test]
fn a_key_stands_for_one_request_and_another_under_it_is_refused() {
    let at = Timestamp::UNIX_EPOCH;
    let known = |noted: &str, kind, asked: &str| {
        let mut request = history::new_record(RequestKind::Add, "more-1", noted, Vec::new());
        request.at.0 = at;
        let job = json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": "j"},
            "spec": {"coordinator": {"template": {}}},
            "status": {"requests": [request]},
        });
        let job = view(&job);
        let known = history::find_replay(&job, kind, "more-1", asked, at);
        known
            .map(|found| found.is_some())
            .map_err(|refused| refused.to_string())
    };
    let refusal = "the Idempotency-Key more-1 is that of another request, for collectors 2; a new request needs a key of its own";
    for (noted, kind, asked, answer) in [
        ("collectors 2", RequestKind::Add, "collectors 2", Ok(true)),
        (
            "collectors 2",
            RequestKind::Add,
            "collectors 3",
            Err(refusal.to_owned()),
        ),
        (
            "collectors 2",
            RequestKind::Remove,
            "collectors 3",
            Ok(false),
        ),
        // As older versions noted it.
        ("", RequestKind::Add, "collectors 3", Ok(true)),
    ] {
        assert_eq!(known(noted, kind, asked), answer, "{noted}, {asked}");
    }
}

#[test]
fn a_key_that_has_expired_stands_for_another_request() {
    let request = history::new_record(RequestKind::Remove, "nightly", "", Vec::new());
    let then = request.at.0;
    let (in_time, late) = (then + history::RETENTION / 2, then + history::RETENTION * 2);
    let mut job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "j", "resourceVersion": "5"},
        "spec": {"coordinator": {"template": {}}},
        "status": {"requests": [request]},
    });
    let knows = |job: &Value, now: Timestamp| {
        history::find_request(&view(job), RequestKind::Remove, "nightly", now).is_some()
    };
    assert!(knows(&job, in_time) && !knows(&job, late));

    let two = HashMap::from([((Role::Collector, None), fewer(2, &[]))]);
    note(&mut job, "nightly", &two, then);
    assert_eq!(recorded_scale_downs(&view(&job), "nightly", in_time), two);
    assert!(recorded_scale_downs(&view(&job), "nightly", late).is_empty());
    note(&mut job, "nightly", &two, late);
    assert_eq!(
        recorded_scale_downs(&view(&job), "nightly", late),
        two,
        "and not four"
    );

    // As older versions wrote it.
    let old = json!([{"key": "nightly", "role": Role::Collector, "by": 2}]);
    let old = json!({names::SCALE_DOWNS_ANNOTATION: old.to_string()});
    job["metadata"]["annotations"] = old;
    assert!(recorded_scale_downs(&view(&job), "nightly", then).is_empty());
    note(&mut job, "nightly", &two, then);
    assert_eq!(recorded_scale_downs(&view(&job), "nightly", then), two);
}
