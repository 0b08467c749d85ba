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

#[test]
fn a_good_job_passes() {
    assert_eq!(dijob(&good()).unwrap().spec.collector.unwrap().replicas, 2);
}

#[test]
fn each_fault_names_its_field_and_remedy() {
    let table = [
        (
            "/spec/learner",
            json!({"template": with_gpus("2"), "replicas": 1}),
            "spec.learner.replicas: Invalid value: 1: learners of several GPUs are not supported yet; use several learners of one GPU each",
        ),
        (
            "/spec/learner",
            json!({"template": with_gpus("1"), "groups": [{"name": "g", "resources": {"gpus": "4"}}]}),
            r#"spec.learner.groups[0].resources.gpus: Invalid value: "4": learners of several GPUs are not supported yet; use several learners of one GPU each"#,
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

mod good;
mod updates;
mod warned;
