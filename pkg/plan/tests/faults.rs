//! Faults of an earlier orchestrator in names and pods that must not come back.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::collections::HashMap;

use di_api::{DIJob, Origin, PlanEntry, Role};
use di_plan::{BuildSettings, Request, Suffixes, pod, replace, request};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EnvVar, Pod};
use serde_json::{Value, json};

/// Draws what it is told to.
struct Drawn(Vec<&'static str>);

impl Suffixes for Drawn {
    fn suffix(&mut self) -> String {
        self.0.remove(0).to_owned()
    }
}

fn job(collector: &Value) -> DIJob {
    serde_json::from_value(json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {
            "coordinator": {"template": {}},
            "collector": {"template": collector},
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "more", "emptyDir": {}}],
        },
    }))
    .unwrap()
}

fn template() -> Value {
    json!({
        "metadata": {"annotations": {"theirs": "kept"}, "labels": {"team": "rl"}},
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

fn built(name: &str) -> Pod {
    let entry = PlanEntry::new(name.to_owned(), Role::Collector, Origin::Requested, 3);
    pod(&job(&template()), &entry, &BuildSettings::default()).unwrap()
}

#[test]
fn f22_a_name_that_is_in_use_is_never_drawn_again() {
    let job = job(&template());
    let mut plan = Vec::new();
    let wish = Request {
        count: 2,
        ..Request::default()
    };
    let mut drawn = Drawn(vec!["aaaaa", "aaaaa", "bbbbb", "bbbbb", "aaaaa", "ccccc"]);
    let now = Timestamp::now();
    let names = request(
        &job,
        &mut plan,
        Role::Collector,
        &wish,
        |_| false,
        &mut drawn,
        now,
    );
    assert_eq!(names, ["j-collector-aaaaa", "j-collector-bbbbb"]);
    let fresh = replace(&job, &mut plan, &names[0], None, &mut drawn, now);
    assert_eq!(fresh.as_deref(), Some("j-collector-ccccc"));
}

#[test]
fn f38_a_replacement_is_built_from_the_template_like_any_other() {
    let (first, next) = (built("j-collector-aaaaa"), built("j-collector-bbbbb"));
    assert_eq!(
        next.metadata.annotations.as_ref().unwrap()["theirs"],
        "kept"
    );
    assert_eq!(next.metadata.labels.as_ref().unwrap()["team"], "rl");
    let text = |pod: &Pod| serde_json::to_string(pod).unwrap();
    assert_eq!(text(&first).replace("aaaaa", "bbbbb"), text(&next));
    assert!(next.status.is_none() && next.spec.unwrap().node_name.is_none());
}

#[test]
fn f39_variables_have_an_order_and_users_override_them() {
    let spec = built("j-collector-aaaaa").spec.unwrap();
    let names = |env: &[EnvVar]| env.iter().map(|e| e.name.clone()).collect::<Vec<_>>();
    let init = spec.init_containers.unwrap()[0].env.clone().unwrap();
    let main = spec.containers[0].env.clone().unwrap();
    let side = spec.containers[1].env.clone().unwrap();
    assert_eq!(names(&init), names(&side));
    assert_eq!(names(&main)[..side.len()], names(&side));
    assert_eq!(names(&main)[side.len()..], ["DI_REPLICA_INDEX", "MINE"]);
    // As Kubernetes reads the list: the last of a name counts.
    let last: HashMap<_, _> = main.into_iter().map(|e| (e.name, e.value)).collect();
    assert_eq!(last["DI_REPLICA_INDEX"].as_deref(), Some("9"));
    for _ in 0..20 {
        assert_eq!(built("j-collector-aaaaa"), built("j-collector-aaaaa"));
    }
}

#[test]
fn f40_a_volume_of_the_template_wins_over_the_jobs_of_the_same_name() {
    let volumes = built("j-collector-aaaaa").spec.unwrap().volumes.unwrap();
    let names: Vec<_> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["data", "more"]);
    assert!(volumes[0].host_path.is_some());
}
