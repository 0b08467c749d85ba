use di_fixtures::{Job, template};
use serde_json::{Value, json};

use super::*;
use crate::DIJob;

fn valid_job() -> Value {
    Job::new("cartpole", 2).in_namespace("rl").json()
}

fn template_with_gpus(gpus: &str) -> Value {
    let mut template = template();
    template["spec"]["containers"][0]["resources"] = json!({"limits": {"nvidia.com/gpu": gpus}});
    template
}

fn with_port(mut template: Value, port: i32) -> Value {
    template["spec"]["containers"][0]["ports"] =
        json!([{"name": "di-port", "containerPort": port}]);
    template
}

#[test]
fn valid_job_passes() {
    assert_eq!(
        validate_dijob(&valid_job())
            .unwrap()
            .object
            .spec
            .collector
            .unwrap()
            .replicas,
        2
    );
}

#[test]
fn fault_message_names_field_and_fix() {
    let table = [
        (
            "/spec/learner",
            json!({"template": template_with_gpus("2000"), "replicas": 1}),
            "spec.learner.template.spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: 2000: must be no more than 1024 GPUs per learner",
        ),
        (
            "/spec/learner",
            json!({"template": with_port(template_with_gpus("1"), 65533), "groups": [{"name": "g", "resources": {"gpus": "4"}}]}),
            "spec.learner.groups[0].resources.gpus: Invalid value: 4: a learner uses one port per GPU, starting at di-port 65533, and the last one would exceed 65535; choose a lower di-port",
        ),
    ];
    for (path, value, message) in table {
        let mut job = valid_job();
        set(&mut job, path, value.clone());
        let faults = validate_dijob(&job).expect_err(message);
        assert_eq!(summarize_faults(&faults), message, "{path} = {value}");
    }
}

fn set(object: &mut Value, path: &str, value: Value) {
    let (parent, key) = path.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
}

mod limits;
mod samples;
mod updates;
mod warnings;
