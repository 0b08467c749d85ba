use serde_json::json;

use super::*;

fn good() -> Value {
    json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2",
        "kind": "DIJob",
        "metadata": {"name": "cartpole", "namespace": "rl"},
        "spec": {
            "coordinator": {"template": template("di-container")},
            "collector": {"template": template("di-container"), "replicas": 2},
        },
    })
}

fn template(container: &str) -> Value {
    json!({"spec": {"containers": [{"name": container, "image": "i"}]}})
}

fn with_gpus(gpus: &str) -> Value {
    let resources = json!({"limits": {"nvidia.com/gpu": gpus}});
    json!({"spec": {"containers": [{"name": "di-container", "image": "i", "resources": resources}]}})
}

fn at_port(mut template: Value, port: i32) -> Value {
    template["spec"]["containers"][0]["ports"] =
        json!([{"name": "di-port", "containerPort": port}]);
    template
}

#[test]
fn a_good_job_passes() {
    assert_eq!(dijob(&good()).unwrap().spec.collector.unwrap().replicas, 2);
}

#[test]
fn each_fault_names_its_field_and_remedy() {
    let long = "a".repeat(46);
    let table = [
        (
            "/spec/cleanPodPolicy",
            json!("Sometimes"),
            r#"spec.cleanPodPolicy: Unsupported value: "Sometimes": supported values: "None", "Running", "All""#,
        ),
        (
            "/spec/cleanPodPolicy",
            json!(3),
            r#"spec.cleanPodPolicy: Unsupported value: 3: supported values: "None", "Running", "All""#,
        ),
        (
            "/spec/coordinator",
            json!({}),
            "spec.coordinator.template: Required value: the pod that the coordinator runs in",
        ),
        (
            "/spec/learner",
            json!({"replicas": 1}),
            "spec.learner.template: Required value: the pod that the learner runs in",
        ),
        (
            "/spec/coordinator/template",
            template("main"),
            "spec.coordinator.template.spec.containers: Required value: one container must be named di-container, the main one; found main",
        ),
        (
            "/spec/collector/template/spec/containers",
            json!([]),
            "spec.collector.template.spec.containers: Required value: one container must be named di-container, the main one; there are no containers",
        ),
        (
            "/spec/collector/replicas",
            json!(-1),
            "spec.collector.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            "/spec/backoffLimit",
            json!(-2),
            "spec.backoffLimit: Invalid value: -2: must be greater than or equal to 0",
        ),
        (
            "/spec/activeDeadlineSeconds",
            json!(0),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be greater than zero; leave it out for no limit",
        ),
        (
            "/spec/volumes",
            json!([{"name": "v"}, {"name": "v"}]),
            r#"spec.volumes[1].name: Duplicate value: "v""#,
        ),
        (
            "/spec/collector/groups",
            json!([{"name": "g"}, {"name": "g", "replicas": 1}]),
            r#"spec.collector.groups[1].name: Duplicate value: "g""#,
        ),
        (
            "/spec/learner",
            json!({"template": with_gpus("2000"), "replicas": 1}),
            "spec.learner.template.spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: 2000: a learner has 1024 GPUs at most",
        ),
        (
            "/spec/learner",
            json!({"template": at_port(with_gpus("1"), 65533), "groups": [{"name": "g", "resources": {"gpus": "4"}}]}),
            "spec.learner.groups[0].resources.gpus: Invalid value: 4: GPUs of one learner need as many ports from di-port 65533 on, and the last there is is 65535; choose a lower di-port",
        ),
        (
            "/metadata/name",
            json!(long),
            &format!(
                r#"metadata.name: Invalid value: "{long}": must be no more than 45 characters, because the names of its pods and services are derived from it"#
            ),
        ),
        (
            "/metadata/name",
            json!("a.b"),
            r#"metadata.name: Invalid value: "a.b": must consist of lower case letters, digits or '-' and start with a letter, because its services are named after it (a DNS-1035 label)"#,
        ),
        (
            "/spec",
            json!(null),
            "spec: Required value: a DIJob needs at least spec.coordinator.template",
        ),
        (
            "/spec/collector/replicas",
            json!("two"),
            r#"spec.collector.replicas: Invalid value: invalid type: string "two", expected i32"#,
        ),
    ];
    for (path, value, message) in table {
        let mut job = good();
        set(&mut job, path, value.clone());
        let faults = dijob(&job).expect_err(message);
        assert_eq!(summary(&faults), message, "{path} = {value}");
    }
}

fn set(object: &mut Value, path: &str, value: Value) {
    let (parent, key) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
}

#[test]
fn several_faults_come_back_together() {
    let mut job = good();
    set(&mut job, "/spec/backoffLimit", json!(-1));
    set(&mut job, "/spec/collector/replicas", json!(-1));
    let fields: Vec<_> = dijob(&job)
        .unwrap_err()
        .into_iter()
        .map(|f| f.field)
        .collect();
    assert_eq!(fields, ["spec.collector.replicas", "spec.backoffLimit"]);
}

#[test]
fn an_aggregator_config_needs_its_template() {
    assert!(
        aggregator_config(
            &json!({"metadata": {}, "spec": {"aggregator": {"template": template("di-container")}}})
        )
        .is_ok()
    );
    assert_eq!(
        summary(&aggregator_config(&json!({"spec": {}})).unwrap_err()),
        "spec.aggregator.template: Required value: the pod that aggregators run in"
    );
}

mod bad;
mod good;
mod robust;
mod updates;
mod warned;
