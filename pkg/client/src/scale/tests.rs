use super::*;

fn job(spec: &Value, status: &Value) -> Job {
    Job::from(json!({
        "metadata": {"name": "j", "namespace": "rl", "resourceVersion": "7"},
        "spec": spec,
        "status": status,
    }))
}

fn by(collectors: i32, learners: i32) -> Counts {
    Counts {
        collectors,
        learners,
    }
}

#[test]
fn both_counts_change_in_one_guarded_patch() {
    let job = job(
        &json!({"collector": {"replicas": 2}, "learner": {}}),
        &json!({"phase": "Running"}),
    );
    let changes = changes(&job, by(1, 1)).unwrap();
    let told: Vec<_> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["collectors 2 -> 3", "learners 0 -> 1"]);
    assert_eq!(
        serde_json::to_value(patch(&job, &changes)).unwrap(),
        json!([
            {"op": "test", "path": "/spec/collector/replicas", "value": 2},
            {"op": "add", "path": "/spec/collector/replicas", "value": 3},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "add", "path": "/spec/learner/replicas", "value": 1},
        ])
    );
}

#[test]
fn what_cannot_be_is_said_and_why() {
    let plan = json!([
        {"name": "a", "type": "Collector", "origin": "Requested", "index": 0},
        {"name": "b", "type": "Collector", "origin": "Requested", "index": 1, "state": "Removing"},
        {"name": "c", "type": "Learner", "origin": "Requested", "index": 0},
    ]);
    let spec = json!({"collector": {"replicas": 2}});
    let table = [
        (
            json!({"plan": plan}),
            by(-3, 0),
            "cannot delete 3 collectors of job \"j\": spec.collector.replicas declares 2; 1 more were requested by the coordinator, which alone can let them go",
        ),
        (
            json!({}),
            by(-3, 0),
            "cannot delete 3 collectors of job \"j\": spec.collector.replicas declares 2",
        ),
        (
            json!({}),
            by(0, 1),
            "job \"j\" has no learners: spec.learner is not set, so there is no template to make them from",
        ),
        (
            json!({"phase": "Succeeded"}),
            by(1, 0),
            "job \"j\" has ended (Succeeded)",
        ),
        (
            json!({}),
            by(i32::MAX, 0),
            "2147483649 collectors are more than can be counted",
        ),
    ];
    for (status, by, told) in table {
        assert_eq!(changes(&job(&spec, &status), by).unwrap_err(), told);
    }
}
