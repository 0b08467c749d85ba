use super::*;

fn said(job: &Value) -> Vec<String> {
    let faults = dijob(job).err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

fn named(count: usize) -> Value {
    (0..count)
        .map(|i| json!({"name": format!("v{i}")}))
        .collect()
}

#[test]
fn a_list_of_a_spec_has_a_thousand_items_at_most() {
    let container = "/spec/coordinator/template/spec/containers/0";
    for place in [
        "/spec/volumes".to_owned(),
        format!("{container}/env"),
        "/spec/collector/groups".to_owned(),
    ] {
        let mut job = good();
        set(&mut job, &place, named(1_000));
        assert_eq!(said(&job), [""; 0]);
        set(&mut job, &place, named(1_001));
        let field = place[1..].replace("/0", "[0]").replace('/', ".");
        let expected = format!("{field}: Too many: 1001: must have at most 1000 items");
        assert_eq!(said(&job), [expected]);
    }
    let mut job = good();
    set(&mut job, "/spec/volumes", vec![json!({}); 20_000].into());
    assert!(serde_json::from_value::<Read<DIJob>>(job.clone()).is_err());
    assert!(serde_json::from_str::<Read<DIJob>>(&job.to_string()).is_err());
    let faults = dijob(&job).unwrap_err();
    assert_eq!(
        summary(&faults),
        "spec.volumes: Too many: 20000: must have at most 1000 items"
    );
    assert_eq!(faults[0].reason(), "FieldValueTooMany");
}

/// What else is wrong is told as well.
#[test]
fn a_list_that_is_too_long_hides_no_other_fault() {
    let mut job = good();
    set(&mut job, "/spec/volumes", named(1_001));
    set(&mut job, "/spec/backoffLimit", json!(-1));
    set(&mut job, "/spec/suspend", json!("no"));
    let fields: Vec<_> = dijob(&job)
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
fn the_lists_and_maps_of_a_spec_are_bounded_together() {
    let with = |each: usize| {
        let variables: Value = (0..each)
            .map(|i| json!({"name": format!("A{i}")}))
            .collect();
        let mut containers =
            vec![json!({"name": "di-container", "image": "i", "env": variables}); 20];
        for (i, container) in containers.iter_mut().enumerate().skip(1) {
            container["name"] = json!(format!("c{i}"));
        }
        let mut job = good();
        set(
            &mut job,
            "/spec/coordinator/template/spec/containers",
            containers.into(),
        );
        job
    };
    assert_eq!(said(&with(900)), [""; 0]);
    assert_eq!(
        said(&with(1_000)),
        [
            "spec.coordinator.template.spec.containers[19].env: Too many: must have at most 20000 items together with all other lists and maps of the spec"
        ]
    );
    let labels: Value = (0..20_001).map(|i| (format!("a{i}"), "x")).collect();
    let mut job = good();
    set(
        &mut job,
        "/spec/coordinator/template/metadata",
        json!({"labels": labels}),
    );
    assert_eq!(
        said(&job),
        [
            "spec.coordinator.template.metadata.labels: Too many: must have at most 20000 items together with all other lists and maps of the spec"
        ]
    );
}

fn with_script(length: usize) -> Value {
    let mut job = good();
    set(
        &mut job,
        "/spec/coordinator/template/spec/containers/0/args",
        json!(["-c", "x".repeat(length)]),
    );
    job
}

const TOO_LONG: &str = "spec: Too long: may not be more than 262144 bytes; keep large files in a ConfigMap and mount it";

#[test]
fn a_spec_has_256_kib_of_text_at_most_whatever_else_the_object_has() {
    let mut job = with_script(261_000);
    set(
        &mut job,
        "/metadata/annotations",
        json!({"a": "x".repeat(200_000)}),
    );
    set(&mut job, "/status", json!({"reason": "x".repeat(300_000)}));
    assert_eq!(said(&job), [""; 0]);

    let mut job = with_script(262_144);
    assert_eq!(said(&job), [TOO_LONG]);
    let read: Read<DIJob> = serde_json::from_str(&job.to_string()).unwrap();
    let faults = dijob_read(read).unwrap_err();
    assert_eq!(summary(&faults), TOO_LONG);
    assert_eq!(faults[0].reason(), "FieldValueTooLong");
    set(&mut job, "/spec/suspend", json!("no"));
    let faults = dijob(&job).unwrap_err();
    let fields: Vec<_> = faults.iter().map(|fault| &fault.field).collect();
    assert_eq!(fields, ["spec.suspend", "spec"]);
}

#[test]
fn a_started_job_whose_spec_is_too_long_may_still_be_scaled() {
    for (status, refused) in [
        (json!({"phase": "Running"}), None),
        (json!(null), Some(TOO_LONG.to_owned())),
    ] {
        let mut old = with_script(262_144);
        set(&mut old, "/status", status);
        let mut new = old.clone();
        set(&mut new, "/spec/collector/replicas", json!(3));
        let faults = dijob_update(&old, &new).err();
        assert_eq!(faults.map(|faults| summary(&faults)), refused);
    }
}

#[test]
fn a_status_may_list_as_many_replicas_as_there_are() {
    let entry =
        json!({"name": "j-collector-0", "type": "Collector", "origin": "Declared", "index": 0});
    let mut job = good();
    set(&mut job, "/status", json!({"plan": vec![entry; 2_001]}));
    let read: Read<DIJob> = serde_json::from_value(job.clone()).unwrap();
    assert_eq!(read.object().status.as_ref().unwrap().plan.len(), 2_001);
    assert_eq!(said(&job), [""; 0]);
}

#[test]
fn an_update_may_keep_a_list_that_is_too_long_but_not_make_one() {
    let mut old = good();
    set(&mut old, "/spec/volumes", named(1_001));
    set(&mut old, "/status", json!({"phase": "Running"}));
    let mut new = old.clone();
    set(&mut new, "/metadata/labels", json!({"a": "b"}));
    assert!(dijob_update(&old, &new).unwrap().is_none());
    set(&mut old, "/spec/volumes", named(1));
    let faults = dijob_update(&old, &new).unwrap_err();
    assert_eq!(
        faults[0].to_string(),
        "spec.volumes: Too many: 1001: must have at most 1000 items"
    );
}

/// Each is looked for among the known ones, and compared with those that were told.
#[test]
fn a_hundred_unknown_fields_are_told_and_no_more() {
    let mut job = good();
    for i in 0..5_000 {
        job["spec"][format!("x{i}")] = json!(i);
    }
    set(&mut job, "/spec/suspend", json!("no"));
    let told = said(&job);
    let unknown = told.iter().filter(|said| said.contains("unknown field"));
    assert_eq!(unknown.count(), 100);
    assert!(told.iter().any(|said| said.starts_with("spec.suspend: ")));
}

#[test]
fn what_is_told_of_long_values_fits_into_a_status() {
    let long = json!("é".repeat(350_000));
    for place in [
        "/spec/backoffLimit",
        "/spec/cleanPodPolicy",
        "/spec/priorityClassName",
        "/spec/coordinator/template/spec/restartPolicy",
    ] {
        let mut job = good();
        set(&mut job, place, long.clone());
        let faults = dijob(&job).unwrap_err();
        assert!(
            faults.iter().all(|fault| fault.detail.len() < 1_024),
            "{place}"
        );
    }
    let mut job = good();
    let volume = json!({"name": "_".repeat(400)});
    set(&mut job, "/spec/volumes", vec![volume; 100].into());
    let told = summary(&dijob(&job).unwrap_err());
    assert!((31_000..32_768).contains(&told.len()), "{}", told.len());
    assert!(told.ends_with("..."));
}

#[test]
fn a_container_has_twenty_restart_rules_at_most_and_each_255_exit_codes() {
    let container = "/spec/coordinator/template/spec/containers/0";
    let rule = |codes: usize| json!({"action": "Restart", "exitCodes": {"operator": "In", "values": vec![3; codes]}});
    let field = "spec.coordinator.template.spec.containers[0].restartPolicyRules";
    for (rules, expected) in [
        (vec![rule(255); 20], None),
        (
            vec![rule(1); 21],
            Some(format!("{field}: Too many: 21: must have at most 20 items")),
        ),
        (
            vec![rule(256)],
            Some(format!(
                "{field}[0].exitCodes.values: Too many: 256: must have at most 255 items"
            )),
        ),
    ] {
        let mut job = good();
        let place = job.pointer_mut(container).unwrap();
        place["restartPolicy"] = json!("Never");
        place["restartPolicyRules"] = rules.into();
        let expected: Vec<_> = expected.into_iter().collect();
        assert_eq!(said(&job), expected);
    }
}

/// Of a pod's volume `v`, a claim, as many mounts and devices of the main container.
fn with_volumes(mounts: &Value, devices: &Value) -> Value {
    let mut job = good();
    let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
    set(&mut job, "/spec/volumes", json!([claim]));
    let container = "/spec/coordinator/template/spec/containers/0";
    set(
        &mut job,
        &format!("{container}/volumeMounts"),
        mounts.clone(),
    );
    set(
        &mut job,
        &format!("{container}/volumeDevices"),
        devices.clone(),
    );
    job
}

/// Each mount was compared with each device, and four faults told of each pair: a job of 59 KB took a gigabyte.
#[test]
fn a_mount_and_a_device_have_a_few_faults_each_however_many_there_are_of_the_other() {
    let volumes = |count: usize| {
        with_volumes(
            &vec![json!({"name": "v", "mountPath": "/v"}); count].into(),
            &vec![json!({"name": "v", "devicePath": "/v"}); count].into(),
        )
    };
    assert_eq!(said(&volumes(1)).len(), 4);
    // Of each but the first that its path is not its own, and of devices that their name is not.
    assert_eq!(said(&volumes(100)).len(), 4 * 100 + 3 * 99);
    assert_eq!(said(&volumes(1_000)).len(), 1_000);
}

#[test]
fn a_reference_is_told_of_once_and_by_the_beginning_of_its_text() {
    let with = |expression: String| {
        let mount = json!({"name": "v", "mountPath": "/v", "subPathExpr": expression});
        said(&with_volumes(&json!([mount]), &json!([])))
    };
    let field = "spec.coordinator.template.spec.containers[0].volumeMounts[0].subPathExpr";
    let repeated = with("$(A)".repeat(50_000));
    let shown = "$(A)".repeat(127) + "$(A";
    assert_eq!(
        repeated,
        [format!(
            "{field}: Invalid value: \"{shown}...: missing value for \"A\""
        )]
    );
    let different: Vec<_> = (0..2_000).map(|i| format!("$(A{i})")).collect();
    let told = with(different.concat());
    assert_eq!(told.len(), 1_000);
    assert!(told.iter().all(|told| told.len() < 700), "{}", told[0]);
    let long = with(format!("$({})", "é".repeat(50_000)));
    assert_eq!(long.len(), 1);
    assert!(long[0].len() < 1_024, "{}", long[0].len());
}

/// What a message quotes of another field is as long as that is, and may be quoted of every container.
#[test]
fn a_thousand_faults_of_long_texts_take_a_megabyte() {
    let limits = |amount: String| json!({"limits": {"cpu": amount}});
    let container = |i: usize| {
        let name = if i == 0 {
            "di-container".to_owned()
        } else {
            format!("c{i}")
        };
        json!({"name": name, "image": "i", "resources": limits("2".to_owned())})
    };
    let containers: Value = (0..1_000).map(container).collect();
    let mut job = good();
    let zeroes = "0".repeat(100_000);
    let pod = json!({"resources": limits(format!("{zeroes}1")), "containers": containers});
    set(&mut job, "/spec/coordinator/template/spec", pod);
    let told = said(&job);
    assert_eq!(told.len(), 1_000);
    let bytes: usize = told.iter().map(String::len).sum();
    assert!(bytes < 2 << 20, "{bytes}");
}
