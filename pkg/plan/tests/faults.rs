//! Faults of an earlier orchestrator in names and pods that must not come back.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::collections::HashMap;

use di_api::{DIJob, Origin, PlanEntry, Role};
use di_fixtures::Job;
use di_plan::{BuildSettings, Request, Suffixes, build_pod, plan_request, replace};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use serde_json::{Value, json};

/// Returns the given suffixes in order.
struct FixedSuffixes(Vec<&'static str>);

impl Suffixes for FixedSuffixes {
    fn next_suffix(&mut self) -> String {
        self.0.remove(0).to_owned()
    }
}

fn job_with_collector(collector: &Value) -> DIJob {
    Job::test()
        .spec(json!({
            "collector": {"template": collector},
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "more", "emptyDir": {}}],
        }))
        .build()
}

fn collector_template() -> Value {
    json!({
        "metadata": {"annotations": {"user": "kept"}, "labels": {"team": "rl"}},
        "spec": {
            "volumes": [{"name": "data", "hostPath": {"path": "/mnt"}}],
            "initContainers": [{"name": "first"}],
            "containers": [
                {"name": "di-container", "env": [
                    {"name": "DI_REPLICA_INDEX", "value": "9"}, {"name": "MINE", "value": "$(DI_REPLICA_INDEX)"},
                ]},
                {"name": "sidecar"},
            ],
        },
    })
}

fn build_collector(name: &str) -> Pod {
    let entry = PlanEntry::new(name.to_owned(), Role::Collector, Origin::Requested, 3);
    build_pod(
        &job_with_collector(&collector_template()),
        &entry,
        None,
        &BuildSettings::default(),
    )
    .unwrap()
    .decode()
    .unwrap()
}

#[test]
fn f22_used_name_is_never_allocated_again() {
    let job = job_with_collector(&collector_template());
    let mut plan = Vec::new();
    let request = Request {
        count: 2,
        ..Request::default()
    };
    let mut suffixes = FixedSuffixes(vec!["aaaaa", "aaaaa", "bbbbb", "bbbbb", "aaaaa", "ccccc"]);
    let now = Timestamp::now();
    let names = plan_request(
        &job,
        &mut plan,
        Role::Collector,
        &request,
        |_| false,
        &mut suffixes,
        now,
    );
    assert_eq!(names, ["j-collector-aaaaa", "j-collector-bbbbb"]);
    let replacement = replace(&job, &mut plan, &names[0], None, &mut suffixes, now);
    assert_eq!(replacement.as_deref(), Some("j-collector-ccccc"));
}

#[test]
fn f38_replacement_is_built_from_template() {
    let (first, next) = (
        build_collector("j-collector-aaaaa"),
        build_collector("j-collector-bbbbb"),
    );
    assert_eq!(next.metadata.annotations.as_ref().unwrap()["user"], "kept");
    assert_eq!(next.metadata.labels.as_ref().unwrap()["team"], "rl");
    let text = |pod: &Pod| serde_json::to_string(pod).unwrap();
    assert_eq!(text(&first).replace("aaaaa", "bbbbb"), text(&next));
    assert!(next.status.is_none() && next.spec.unwrap().node_name.is_none());
}

#[test]
fn f39_variables_have_fixed_order_and_can_be_overridden() {
    let spec = build_collector("j-collector-aaaaa").spec.unwrap();
    let names = |env: &[EnvVar]| env.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    let init = spec.init_containers.unwrap()[0].env.clone().unwrap();
    let main = spec.containers[0].env.clone().unwrap();
    let side = spec.containers[1].env.clone().unwrap();
    assert_eq!(names(&init), names(&side));
    assert_eq!(names(&main)[..side.len()], names(&side));
    assert_eq!(names(&main)[side.len()..], ["DI_REPLICA_INDEX", "MINE"]);
    // Kubernetes uses the last variable of a name.
    let last: HashMap<_, _> = main.into_iter().map(|e| (e.name, e.value)).collect();
    assert_eq!(last["DI_REPLICA_INDEX"].as_deref(), Some("9"));
    for _ in 0..20 {
        assert_eq!(
            build_collector("j-collector-aaaaa"),
            build_collector("j-collector-aaaaa")
        );
    }
}

#[test]
fn f40_template_volume_overrides_job_volume() {
    let volumes = build_collector("j-collector-aaaaa")
        .spec
        .unwrap()
        .volumes
        .unwrap();
    let names: Vec<_> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["data", "more"]);
    assert!(volumes[0].host_path.is_some());
}
