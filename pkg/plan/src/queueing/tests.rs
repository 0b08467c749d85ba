use std::collections::BTreeMap;

use di_api::{DIJob, PlanEntry};
use di_fixtures::Job;
use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::*;
use crate::{names::job_object_name, view::WorkloadView};

fn job() -> DIJob {
    Job::test().collectors(2).learners(1).build()
}

fn entry(role: &str, resources: &Value) -> PlanEntry {
    let entry = json!({"name": "j-x", "type": role, "origin": "Declared", "index": 3, "resources": resources});
    serde_json::from_value(entry).unwrap()
}

fn view(spec: &Value, status: &Value) -> WorkloadView {
    let object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "w", "namespace": "rl", "uid": "u", "resourceVersion": "7", "labels": {"dijob-name": "j"}},
        "spec": spec, "status": status,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    WorkloadView::new(&object).unwrap()
}

#[test]
fn workload_names_are_short_and_stable() {
    let uid = "1f2e3abc-0000-4000-8000-000000000000";
    assert_eq!(job_object_name("cartpole", uid), "dijob-cartpole-1f2e3");
    let base = job_object_name(&"a-".repeat(20), uid);
    let mut owner = entry("Aggregator", &json!({}));
    owner.index = 1999;
    let name = replica_workload_name(&base, &owner);
    assert!(
        name.len() <= 63 && name.ends_with("a-1f2e3-aggregator-1999"),
        "{name}"
    );
}

#[test]
fn pod_set_name_is_a_dns_label() {
    // The dash before the GPUs is the 63rd character.
    let cpus = "1".repeat(48);
    let long = entry("Collector", &json!({"cpus": cpus, "gpus": "4"}));
    assert_eq!(pod_set_name(&long), format!("collector-cpu-{cpus}"));
    let exponent = entry("Collector", &json!({"memory": "1E+3"}));
    assert_eq!(pod_set_name(&exponent), "collector-memory-1e-3");
}

#[test]
fn pods_with_same_resources_share_a_pod_set() {
    let gpus = json!({"gpus": "4", "cpus": "1.5"});
    for (entry, name) in [
        (entry("Collector", &json!({})), "collector"),
        (
            entry("Collector", &json!({"memory": "4Gi"})),
            "collector-memory-4gi",
        ),
        (entry("Aggregator", &gpus), "aggregator"),
        (entry("DDPLearner", &gpus), "ddp-learner-cpu-1-5-gpu-4"),
    ] {
        assert_eq!(pod_set_name(&entry), name);
    }
    let large = entry("Collector", &json!({"cpus": "9"}));
    let entries = [
        entry("Learner", &json!({})),
        entry("Collector", &json!({})),
        large,
        entry("Collector", &json!({})),
    ];
    let sets = build_pod_sets(&job(), true, &entries, None).unwrap();
    let summary: Vec<_> = sets
        .iter()
        .map(|set| (set.name.as_str(), set.count))
        .collect();
    assert_eq!(
        summary,
        [
            ("coordinator", 1),
            ("collector", 2),
            ("collector-cpu-9", 1),
            ("learner", 1)
        ]
    );
    let container = &sets[2].template["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"]["cpu"], "9");
    assert!(
        sets.iter()
            .all(|set| !set.template.to_string().contains("\"env\""))
    );
    assert_eq!(
        build_pod_sets(&job(), true, &[entry("Aggregator", &json!({}))], None),
        None
    );
}

#[test]
fn priority_follows_the_version() {
    let draft = WorkloadDraft {
        name: "w".into(),
        queue: "team".into(),
        index: Some(2),
        workload_class: Some("high".into()),
        pod_class: None,
        pod_sets: Vec::new(),
    };
    let class = Some(("kueue.x-k8s.io", "WorkloadPriorityClass", "high".to_owned()));
    let priority = Priority { class, value: 5 };
    let spec = |version, priority: &Priority| {
        new_workload(&job(), &draft, version, priority).data["spec"].clone()
    };
    let reference =
        json!({"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"});
    assert_eq!(
        spec(KueueVersion::V1beta2, &priority),
        json!({"queueName": "team", "podSets": [], "priority": 5, "priorityClassRef": reference})
    );
    assert_eq!(
        spec(KueueVersion::V1beta1, &priority),
        json!({"queueName": "team", "podSets": [], "priority": 5, "priorityClassName": "high",
            "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"})
    );
    let none = Priority::default();
    assert_eq!(
        spec(KueueVersion::V1beta2, &none),
        json!({"queueName": "team", "podSets": [], "priority": 0})
    );
    let patch = updated_workload(&draft, KueueVersion::V1beta2, &none, "7");
    assert_eq!(
        patch["spec"]["priorityClassRef"],
        Value::Null,
        "a merge patch removes it"
    );
    let created = new_workload(&job(), &draft, KueueVersion::V1beta2, &none);
    let created: DynamicObject = serde_json::from_value(json!(created)).unwrap();
    let view = WorkloadView::new(&created).unwrap();
    assert_eq!(
        (view.summary, view.owner.as_deref()),
        (draft.summary(), Some("u"))
    );
}

#[test]
fn release_repeats_what_kueue_wrote() {
    let condition = |type_: &str, reason: &str| json!({"type": type_, "status": "True", "reason": reason, "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    for (reason, requeued) in [
        ("Preempted", "True"),
        ("NodeFailures", "True"),
        ("PodsReadyTimeout", "False"),
    ] {
        let status = json!({
            "conditions": [condition("QuotaReserved", "x"), condition("Admitted", "x"), condition("Evicted", reason), condition("Preempted", "InClusterQueue")],
            "admissionChecks": [{"name": "check", "state": "Ready"}],
            "requeueState": {"count": 2},
        });
        let patch = release_quota(&view(&json!({}), &status), Timestamp::UNIX_EPOCH);
        assert_eq!(patch.field_manager, "kueue-admission");
        let body = patch.body(KueueVersion::V1beta1);
        assert_eq!(body["apiVersion"], "kueue.x-k8s.io/v1beta1");
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        assert_eq!(body["status"].get("admission"), None);
        assert_eq!(body["status"]["admissionChecks"][0]["name"], "check");
        assert_eq!(body["status"]["requeueState"]["count"], 2);
        let conditions = body["status"]["conditions"].as_array().unwrap().iter();
        let summary: Vec<_> = conditions
            .map(|c| (c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
            .collect();
        assert_eq!(
            summary,
            [
                ("Evicted", "True"),
                ("Preempted", "True"),
                ("QuotaReserved", "False"),
                ("Admitted", "False"),
                ("Requeued", requeued),
                ("PodsReady", "False")
            ]
        );
    }
}

#[test]
fn placement_unites_flavors_and_checks() {
    let spec = json!({"podSets": [{"name": "collector", "count": 2}]});
    let status = |update: Value| {
        json!({
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "collector", "flavors": {"cpu": "a", "nvidia.com/gpu": "b"}}]},
            "admissionChecks": [{"name": "check", "podSetUpdates": [update]}],
            "reclaimablePods": [{"name": "collector", "count": 1}],
        })
    };
    let flavor = |label: &str| -> FlavorView {
        let flavor = json!({"nodeLabels": {(label): "yes"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]});
        serde_json::from_value(flavor).unwrap()
    };
    let flavors = BTreeMap::from([
        ("a".to_owned(), flavor("fast")),
        ("b".to_owned(), flavor("near")),
    ]);
    let workload = view(
        &spec,
        &status(
            json!({"name": "collector", "nodeSelector": {"zone": "z"}, "annotations": {"k": "v"}}),
        ),
    );
    assert_eq!(workload.capacities()["collector"], 1);
    assert_eq!(
        flavors_of(workload.admission.as_ref().unwrap())
            .into_iter()
            .collect::<Vec<_>>(),
        ["a", "b"]
    );
    let placements = build_placements(&workload, "team", &flavors, |_| None).unwrap();
    let placement = json!(placements[0]);
    assert_eq!(
        placement["nodeSelector"],
        json!({"fast": "yes", "near": "yes", "zone": "z"})
    );
    assert_eq!(placement["tolerations"].as_array().unwrap().len(), 1);
    assert_eq!(
        placement["labels"]["kueue.x-k8s.io/local-queue-name"],
        "team"
    );

    let mut long = workload.clone();
    long.admission.as_mut().unwrap().cluster_queue = "q".repeat(64);
    let placements = build_placements(&long, "team", &flavors, |_| None).unwrap();
    assert!(
        !placements[0]
            .labels
            .contains_key("kueue.x-k8s.io/cluster-queue-name")
    );

    let contradiction = view(
        &spec,
        &status(json!({"name": "collector", "nodeSelector": {"fast": "no"}})),
    );
    let error = build_placements(&contradiction, "team", &flavors, |_| None).unwrap_err();
    assert!(error.0.contains("fast=no"), "{error:?}");
    let mut job = job();
    let template = json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": "other"}}, "spec": {"containers": []}});
    job.spec.coordinator.template = serde_json::from_value(template).unwrap();
    let template = &job.spec.coordinator.template;
    let error = build_placements(&workload, "team", &flavors, |_| Some(template)).unwrap_err();
    assert!(error.0.contains("kueue.x-k8s.io/podset"), "{error:?}");
}
