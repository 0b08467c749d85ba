use serde_json::{Value, json};

use super::*;
use crate::{cluster_queue, local_queue};

const NOW: &str = "2026-01-01T00:01:00Z";

/// Returns the status patch of a Workload with this spec and status, in a queue with 4 GPUs.
fn patch(spec: &Value, conditions: &Value) -> Option<Value> {
    let mut object = json!({
        "metadata": {"name": "a", "namespace": "ns", "resourceVersion": "7", "generation": 1},
        "spec": {
            "queueName": "team",
            "podSets": [{
                "name": "main", "count": 2,
                "template": {"spec": {"containers": [
                    {"resources": {"requests": {"nvidia.com/gpu": "1"}}},
                ]}},
            }],
        },
        "status": {
            "conditions": conditions,
            "admissionChecks": [{"name": "check", "state": "Ready"}],
            "reclaimablePods": [{"name": "main", "count": 0}],
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    let listed = Listed {
        workloads: vec![serde_json::from_value(object).unwrap()],
        local_queues: vec![
            local_queue("ns", "team", "all"),
            local_queue("ns", "lost", "none"),
        ],
        cluster_queues: vec![cluster_queue(
            "all",
            &[("default", &[("nvidia.com/gpu", "4")])],
            false,
        )],
    };
    let mut drafts = plan_round(&listed, NOW.parse().unwrap());
    drafts.remove("a")?.into_patch("v1beta2")
}

fn old_condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// Lists the conditions of a patch as `type=status reason`.
fn describe(patch: &Value) -> Vec<String> {
    let conditions = patch["status"]["conditions"].as_array().unwrap().iter();
    let texts = conditions.map(|condition| {
        let text = |field: &str| condition[field].as_str().unwrap();
        format!("{}={} {}", text("type"), text("status"), text("reason"))
    });
    texts.collect()
}

#[test]
fn workload_that_fits_is_admitted() {
    let conditions = json!([
        old_condition("Evicted", "True", "Preempted", "why"),
        old_condition("Requeued", "True", "Preempted", "why"),
        old_condition("QuotaReserved", "False", "Pending", "why"),
    ]);
    let patch = patch(&json!({}), &conditions).unwrap();
    assert_eq!(
        describe(&patch),
        [
            "Evicted=False QuotaReserved",
            "QuotaReserved=True QuotaReserved",
            "Admitted=True Admitted"
        ]
    );
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(patch["status"]["admissionChecks"][0]["name"], "check");
    assert_eq!(patch["status"].get("reclaimablePods"), None);
    let evicted = &patch["status"]["conditions"][0];
    assert_eq!(evicted["message"], "Previously: why");
    assert_eq!(evicted["lastTransitionTime"], NOW);
    let assignment = json!({
        "name": "main", "count": 2,
        "flavors": {"nvidia.com/gpu": "default"}, "resourceUsage": {"nvidia.com/gpu": "2"},
    });
    assert_eq!(
        patch["status"]["admission"],
        json!({"clusterQueue": "all", "podSetAssignments": [assignment]})
    );
}

#[test]
fn missing_queue_is_reported_once() {
    for (queue, message) in [
        ("team-x", "LocalQueue team-x doesn't exist"),
        ("lost", "ClusterQueue none doesn't exist"),
    ] {
        let spec = json!({"queueName": queue});
        let written = patch(&spec, &json!([])).unwrap();
        assert_eq!(describe(&written), ["QuotaReserved=False Inadmissible"]);
        let conditions = &written["status"]["conditions"];
        assert_eq!(conditions[0]["message"], message);
        assert_eq!(patch(&spec, conditions), None);
    }
}

#[test]
fn deactivated_workload_is_evicted() {
    let spec = json!({"active": false});
    let written = patch(&spec, &json!([])).unwrap();
    assert_eq!(describe(&written), ["Evicted=True Deactivated"]);
    assert_eq!(patch(&spec, &written["status"]["conditions"]), None);
}

#[test]
fn workload_in_backoff_is_requeued_after_a_second() {
    let mut requeued = old_condition("Requeued", "False", "PodsReadyTimeout", "why");
    let written = patch(&json!({}), &json!([requeued])).unwrap();
    assert_eq!(describe(&written), ["Requeued=True BackoffFinished"]);
    requeued["lastTransitionTime"] = NOW.into();
    assert_eq!(patch(&json!({}), &json!([requeued])), None);
}

#[test]
fn finished_or_admitted_workload_is_not_written() {
    for kind in ["Finished", "QuotaReserved"] {
        let conditions = json!([old_condition(kind, "True", "Any", "why")]);
        assert_eq!(patch(&json!({}), &conditions), None, "{kind}");
    }
}
