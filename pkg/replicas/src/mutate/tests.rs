use di_api::{EntryState, RequestKind};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{lowering, write::fields, *};

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
    let draft = || Draft {
        plan: vec![
            entry("a", Role::Collector),
            entry("b", Role::Learner),
            going.clone(),
        ],
        answers: Some(answered::new(RequestKind::Add, "key", Vec::new())),
        ..Draft::default()
    };
    let mut job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "j", "resourceVersion": "5"},
        "spec": {"coordinator": {"template": {}}},
    });
    let patched = |job: &Value| {
        let fields = fields(&view(job), draft(), Timestamp::UNIX_EPOCH);
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
    assert!(pause(1) <= Duration::from_millis(20));
    assert!(pause(40) <= Duration::from_millis(LONGEST_WAIT_MS));
    assert!(pause(40) >= Duration::from_millis(LONGEST_WAIT_MS / 2));
}

#[test]
fn what_a_request_lowered_is_noted_with_it() {
    let mut job = json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "j", "resourceVersion": "5"},
        "spec": {"coordinator": {"template": {}}},
    });
    let plain: Bucket = (Role::Collector, None);
    let big: Bucket = (Role::Collector, Some("big".to_owned()));
    let both = HashMap::from([(plain.clone(), 2), (big, 1)]);
    let more = HashMap::from([(plain, 3)]);
    let note = |job: &mut Value, key: &str, by: &HashMap<Bucket, i32>| {
        let field = lowering::note(&view(job), key, by);
        let patch = di_api::guarded_patches(Some("5"), [field]);
        json_patch::patch(job, &patch).unwrap();
    };
    note(&mut job, "a", &both);
    assert_eq!(lowered(&view(&job), "a"), both);
    job["metadata"]["annotations"]["theirs"] = json!("kept");
    note(&mut job, "b", &more);
    assert_eq!(lowered(&view(&job), "a"), both);
    assert_eq!(lowered(&view(&job), "b"), more);
    assert!(lowered(&view(&job), "c").is_empty());
    assert_eq!(job["metadata"]["annotations"]["theirs"], "kept");
    for i in 0..100 {
        note(&mut job, &i.to_string(), &more);
    }
    assert!(lowered(&view(&job), "b").is_empty(), "long ago");
    assert_eq!(lowered(&view(&job), "99"), more);
}
