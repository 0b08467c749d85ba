use super::*;

fn messages_of(job: &Value) -> Vec<String> {
    let known = validate_dijob(job).and_then(Valid::without_unknown_fields);
    let faults = known.err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

fn named_items(count: usize) -> Value {
    (0..count)
        .map(|i| json!({"name": format!("v{i}")}))
        .collect()
}

#[test]
fn list_over_1000_items_is_rejected() {
    let container = "/spec/coordinator/template/spec/containers/0";
    for place in [
        "/spec/volumes".to_owned(),
        format!("{container}/env"),
        "/spec/collector/groups".to_owned(),
    ] {
        let mut job = valid_job();
        set(&mut job, &place, named_items(1_000));
        assert_eq!(messages_of(&job), [""; 0]);
        set(&mut job, &place, named_items(1_001));
        let field = place[1..].replace("/0", "[0]").replace('/', ".");
        let expected = format!("{field}: Too many: 1001: must have at most 1000 items");
        assert_eq!(messages_of(&job), [expected]);
    }
    let mut job = valid_job();
    set(&mut job, "/spec/volumes", vec![json!({}); 20_000].into());
    assert!(serde_json::from_value::<Decoded<DIJob>>(job.clone()).is_err());
    assert!(serde_json::from_str::<Decoded<DIJob>>(&job.to_string()).is_err());
    let faults = validate_dijob(&job).unwrap_err();
    assert_eq!(
        summarize_faults(&faults),
        "spec.volumes: Too many: 20000: must have at most 1000 items"
    );
    assert_eq!(faults[0].reason(), "FieldValueTooMany");
}

#[test]
fn too_long_list_hides_no_other_fault() {
    let mut job = valid_job();
    set(&mut job, "/spec/volumes", named_items(1_001));
    set(&mut job, "/spec/backoffLimit", json!(-1));
    set(&mut job, "/spec/suspend", json!("no"));
    let fields: Vec<_> = validate_dijob(&job)
        .unwrap_err()
        .into_iter()
        .map(|fault| fault.field)
        .collect();
    assert_eq!(
        fields,
        ["spec.suspend", "spec.volumes", "spec.backoffLimit"]
    );
}

#[test]
fn lists_over_total_limit_are_rejected() {
    let with = |each: usize| {
        let variables: Value = (0..each)
            .map(|i| json!({"name": format!("A{i}")}))
            .collect();
        let mut containers =
            vec![json!({"name": "di-container", "image": "i", "env": variables}); 20];
        for (i, container) in containers.iter_mut().enumerate().skip(1) {
            container["name"] = json!(format!("c{i}"));
        }
        let mut job = valid_job();
        set(
            &mut job,
            "/spec/coordinator/template/spec/containers",
            containers.into(),
        );
        job
    };
    assert_eq!(messages_of(&with(900)), [""; 0]);
    assert_eq!(
        messages_of(&with(1_000)),
        [
            "spec.coordinator.template.spec.containers[19].env: Too many: all lists of the spec must have at most 20000 items in total"
        ]
    );
}

fn with_script(length: usize) -> Value {
    let mut job = valid_job();
    set(
        &mut job,
        "/spec/coordinator/template/spec/containers/0/args",
        json!(["-c", "x".repeat(length)]),
    );
    job
}

const TOO_LONG: &str = "spec: Too long: may not be more than 262144 bytes; keep large files in a ConfigMap and mount it";

#[test]
fn spec_over_256_kib_is_rejected() {
    let mut job = with_script(261_000);
    set(
        &mut job,
        "/metadata/annotations",
        json!({"a": "x".repeat(200_000)}),
    );
    set(&mut job, "/status", json!({"reason": "x".repeat(300_000)}));
    assert_eq!(messages_of(&job), [""; 0]);

    let mut job = with_script(262_144);
    assert_eq!(messages_of(&job), [TOO_LONG]);
    let read: Decoded<DIJob> = serde_json::from_str(&job.to_string()).unwrap();
    let faults = validate_decoded_dijob(read).unwrap_err();
    assert_eq!(summarize_faults(&faults), TOO_LONG);
    assert_eq!(faults[0].reason(), "FieldValueTooLong");
    set(&mut job, "/spec/suspend", json!("no"));
    let faults = validate_dijob(&job).unwrap_err();
    let fields: Vec<_> = faults.iter().map(|fault| &fault.field).collect();
    assert_eq!(fields, ["spec.suspend", "spec"]);
}

#[test]
fn started_job_with_too_long_spec_can_be_scaled() {
    for (status, refused) in [
        (json!({"phase": "Running"}), None),
        (json!(null), Some(TOO_LONG.to_owned())),
    ] {
        let mut old = with_script(262_144);
        set(&mut old, "/status", status);
        let mut new = old.clone();
        set(&mut new, "/spec/collector/replicas", json!(3));
        let faults = validate_dijob_update(&old, &new).err();
        assert_eq!(faults.map(|faults| summarize_faults(&faults)), refused);
    }
}

#[test]
fn status_with_over_1000_replicas_is_decoded() {
    let entry =
        json!({"name": "j-collector-0", "type": "Collector", "origin": "Declared", "index": 0});
    let mut job = valid_job();
    set(&mut job, "/status", json!({"plan": vec![entry; 2_001]}));
    let read: Decoded<DIJob> = serde_json::from_value(job.clone()).unwrap();
    assert_eq!(read.object().status.as_ref().unwrap().plan.len(), 2_001);
    assert_eq!(messages_of(&job), [""; 0]);
}

#[test]
fn update_may_keep_too_long_list_but_not_add_one() {
    let mut old = valid_job();
    set(&mut old, "/spec/volumes", named_items(1_001));
    set(&mut old, "/status", json!({"phase": "Running"}));
    let mut new = old.clone();
    set(&mut new, "/metadata/labels", json!({"a": "b"}));
    assert!(validate_dijob_update(&old, &new).unwrap().is_none());
    set(&mut old, "/spec/volumes", named_items(1));
    let faults = validate_dijob_update(&old, &new).unwrap_err();
    assert_eq!(
        faults[0].to_string(),
        "spec.volumes: Too many: 1001: must have at most 1000 items"
    );
}

/// Each unknown field is compared with all known ones, so their number is limited.
#[test]
fn unknown_fields_over_100_are_not_reported() {
    let mut job = valid_job();
    for i in 0..5_000 {
        job["spec"][format!("x{i}")] = json!(i);
    }
    set(&mut job, "/spec/suspend", json!("no"));
    let reported = messages_of(&job);
    let unknown = reported
        .iter()
        .filter(|message| message.contains("unknown field"));
    assert_eq!(unknown.count(), 100);
    assert!(
        reported
            .iter()
            .any(|message| message.starts_with("spec.suspend: "))
    );
}

#[test]
fn messages_about_long_values_fit_into_status() {
    let long = json!("é".repeat(350_000));
    for place in [
        "/spec/backoffLimit",
        "/spec/cleanPodPolicy",
        "/spec/priorityClassName",
        "/spec/coordinator/template/spec/containers/0/image",
    ] {
        let mut job = valid_job();
        set(&mut job, place, long.clone());
        let faults = validate_dijob(&job).unwrap_err();
        assert!(
            faults.iter().all(|fault| fault.detail.len() < 1_024),
            "{place}"
        );
    }
    let mut job = valid_job();
    let volume = json!({"name": "_".repeat(400)});
    set(&mut job, "/spec/volumes", vec![volume; 100].into());
    let reported = summarize_faults(&validate_dijob(&job).unwrap_err());
    assert!(
        (31_000..32_768).contains(&reported.len()),
        "{}",
        reported.len()
    );
    assert!(reported.ends_with("..."));
}
