use di_api::names;
use serde_json::{Value, json};

use super::*;
use crate::{Counts, ReplicaGroupRef};

fn job(spec: Value, status: Value) -> Job {
    let job = di_fixtures::Job::test().metadata(json!({"resourceVersion": "7"}));
    Job::from(job.spec(spec).status(status).json())
}

fn change_by(collectors: i32, learners: i32) -> ScaleRequest {
    ScaleRequest::By {
        counts: Counts {
            collectors,
            learners,
        },
        selector: ReplicaGroupRef::default(),
    }
}

fn outcome_texts(patch: &GuardedPatch<Vec<ScaledCount>>) -> Vec<String> {
    patch.outcome.iter().map(ToString::to_string).collect()
}

fn rejection(job: &Job, request: &ScaleRequest) -> String {
    match compute_patch(job, request) {
        Ok(patch) => panic!("{:?}", outcome_texts(&patch)),
        Err(message) => message,
    }
}

#[test]
fn both_counts_change_in_one_guarded_patch() {
    let job = job(
        json!({"collector": {"replicas": 2}, "learner": {}}),
        json!({"phase": "Running"}),
    );
    let patch = compute_patch(&job, &change_by(1, 1)).unwrap();
    assert_eq!(
        outcome_texts(&patch),
        ["collectors 2 -> 3", "learners 0 -> 1"]
    );
    assert_eq!(
        patch.operations,
        [
            json!({"op": "test", "path": "/spec/collector/replicas", "value": 2}),
            json!({"op": "add", "path": "/spec/collector/replicas", "value": 3}),
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}),
            json!({"op": "add", "path": "/spec/learner/replicas", "value": 1}),
        ]
    );
}

#[test]
fn unchanged_counts_make_no_operations() {
    let job = job(
        json!({"collector": {"replicas": 2}, "learner": {}}),
        json!({}),
    );
    let set_to = |collectors, learners| ScaleRequest::To {
        counts: Counts {
            collectors,
            learners,
        },
        selector: ReplicaGroupRef::default(),
    };
    assert!(
        compute_patch(&job, &set_to(Some(2), Some(0)))
            .unwrap()
            .operations
            .is_empty()
    );
    let patch = compute_patch(&job, &set_to(Some(5), None)).unwrap();
    assert_eq!(outcome_texts(&patch), ["collectors 2 -> 5"]);
}

#[test]
fn impossible_scale_request_explains_reason() {
    let plan = json!([
        {"name": "a", "type": "Collector", "origin": "Requested", "index": 0},
        {"name": "b", "type": "Collector", "origin": "Requested", "index": 1, "state": "Removing"},
        {"name": "c", "type": "Learner", "origin": "Requested", "index": 0},
    ]);
    let spec = json!({"collector": {"replicas": 2, "groups": [{"name": "big", "replicas": 3}]}});
    let grouped = |group: &str, collectors| ScaleRequest::By {
        counts: Counts {
            collectors,
            learners: 0,
        },
        selector: ReplicaGroupRef {
            group: Some(group.to_owned()),
            ..ReplicaGroupRef::default()
        },
    };
    let table = [
        (
            json!({"plan": plan}),
            change_by(-3, 0),
            "cannot delete 3 collectors of job \"j\": spec.collector.replicas declares 2; 3 more are in groups, use --group; 1 more were requested through the replica endpoint or adopted, and only the endpoint removes them",
        ),
        (
            json!({}),
            grouped("big", -4),
            "cannot delete 4 collectors of job \"j\": group \"big\" of spec.collector.groups declares 3",
        ),
        (
            json!({}),
            grouped("small", 1),
            "job \"j\" has no group \"small\" of collectors: it has big",
        ),
        (
            json!({}),
            change_by(0, 1),
            "job \"j\" has no learners: spec.learner is not set, so there is no pod template for them",
        ),
        (
            json!({}),
            change_by(i32::MAX, 0),
            "2147483649 collectors exceed the maximum count 2147483647",
        ),
        (
            json!({"plan": plan}),
            ScaleRequest::RemoveNamed(vec!["a".into()]),
            "replica a was requested through the replica endpoint or adopted, and only the endpoint removes it; to replace it: kubectl di replicas restart j a",
        ),
        (
            json!({"plan": plan}),
            ScaleRequest::RemoveNamed(vec!["b".into()]),
            "replica b is being removed already",
        ),
        (
            json!({"plan": plan}),
            ScaleRequest::RemoveNamed(vec!["j-coordinator".into()]),
            "j-coordinator is the coordinator; to restart it: kubectl di restart j",
        ),
        (
            json!({"plan": plan}),
            ScaleRequest::RemoveNamed(vec!["coordinator".into()]),
            "j-coordinator is the coordinator; to restart it: kubectl di restart j",
        ),
        (
            json!({"plan": plan}),
            ScaleRequest::RemoveNamed(vec!["x".into()]),
            "job \"j\" has no replica \"x\"",
        ),
    ];
    for (status, request, expected) in table {
        assert_eq!(rejection(&job(spec.clone(), status), &request), expected);
    }
}

#[test]
fn ended_job_cannot_be_scaled() {
    let ended = job(json!({}), json!({"phase": "Succeeded"}));
    assert_eq!(
        refuse_ended(&ended, "").unwrap_err().to_string(),
        "job \"j\" has ended (Succeeded)"
    );
}

fn add_learners(gpus: &str, group: Option<&str>) -> ScaleRequest {
    ScaleRequest::By {
        counts: Counts {
            collectors: 0,
            learners: 2,
        },
        selector: group_ref(&json!({"gpus": gpus, "memory": "1.5Gi"}), group),
    }
}

fn group_ref(resources: &Value, group: Option<&str>) -> ReplicaGroupRef {
    ReplicaGroupRef {
        group: group.map(str::to_owned),
        resources: serde_json::from_value(resources.clone()).unwrap(),
    }
}

#[test]
fn gpus_of_group_ref_apply_to_learners_only() {
    let plain = job(
        json!({"collector": {"replicas": 2}, "learner": {"replicas": 1}}),
        json!({}),
    );
    let both = |resources: &Value| {
        let counts = Counts {
            collectors: 1,
            learners: 1,
        };
        let selector = group_ref(resources, None);
        outcome_texts(&compute_patch(&plain, &ScaleRequest::By { counts, selector }).unwrap())
    };
    assert_eq!(
        both(&json!({"gpus": "2"})),
        ["collectors 2 -> 3", "learners of group gpus-2 0 -> 1"]
    );
    assert_eq!(
        both(&json!({"gpus": "2", "cpus": "4"})),
        [
            "collectors of group cpus-4 0 -> 1",
            "learners of group cpus-4-gpus-2 0 -> 1"
        ]
    );
}

#[test]
fn resources_select_matching_group() {
    let two = json!({"name": "two", "replicas": 2, "resources": {"gpus": "2"}});
    let job = job(
        json!({"learner": {"replicas": 1, "groups": [two]}}),
        json!({}),
    );
    let with_gpus = |gpus: &str, group| group_ref(&json!({"gpus": gpus}), group);
    let fewer = |selector| ScaleRequest::By {
        counts: Counts {
            collectors: 0,
            learners: -1,
        },
        selector,
    };
    let to = |selector| ScaleRequest::To {
        counts: Counts {
            collectors: None,
            learners: Some(0),
        },
        selector,
    };
    for (request, scaled) in [
        (fewer(with_gpus("2", None)), "learners of group two 2 -> 1"),
        (
            fewer(with_gpus("2", Some("two"))),
            "learners of group two 2 -> 1",
        ),
        (to(with_gpus("2", None)), "learners of group two 2 -> 0"),
    ] {
        assert_eq!(
            outcome_texts(&compute_patch(&job, &request).unwrap()),
            [scaled]
        );
    }
    for (request, message) in [
        (
            fewer(with_gpus("4", None)),
            "job \"j\" has no group of learners with {\"gpus\":\"4\"}: it has two {\"gpus\":\"2\"}",
        ),
        (
            to(with_gpus("4", Some("two"))),
            "group \"two\" of learners has other resources: {\"gpus\":\"2\"}; omit the resources or name another group",
        ),
        (
            to(with_gpus("4", Some("three"))),
            "job \"j\" has no group \"three\" of learners: it has two",
        ),
    ] {
        assert_eq!(rejection(&job, &request), message);
    }
}

#[test]
fn resources_match_independent_of_notation() {
    let big =
        json!({"name": "big", "replicas": 2, "resources": {"cpus": 1, "gpus": 2, "memory": "1Gi"}});
    let job = job(json!({"learner": {"groups": [big]}}), json!({}));
    let more = |cpus: &str, gpus: &str, memory: &str, group| ScaleRequest::By {
        counts: Counts {
            collectors: 0,
            learners: 1,
        },
        selector: group_ref(
            &json!({"cpus": cpus, "gpus": gpus, "memory": memory}),
            group,
        ),
    };
    for (request, scaled) in [
        (more("1", "2", "1Gi", None), "learners of group big 2 -> 3"),
        (
            more("1000m", "2", "1024Mi", None),
            "learners of group big 2 -> 3",
        ),
        (
            more("1.0", "2", "1073741824", Some("big")),
            "learners of group big 2 -> 3",
        ),
        (
            more("1", "2", "1G", None),
            "learners of group cpus-1-gpus-2-memory-1g 0 -> 1",
        ),
    ] {
        assert_eq!(
            outcome_texts(&compute_patch(&job, &request).unwrap()),
            [scaled]
        );
    }
    assert_eq!(
        rejection(&job, &more("1", "1", "1Gi", Some("big"))),
        "group \"big\" of learners has other resources: {\"cpus\":1,\"gpus\":2,\"memory\":\"1Gi\"}; omit the resources or name another group"
    );
    let part = ScaleRequest::To {
        counts: Counts {
            collectors: None,
            learners: Some(0),
        },
        selector: group_ref(&json!({"gpus": "2"}), None),
    };
    assert_eq!(
        rejection(&job, &part),
        "job \"j\" has no group of learners with {\"gpus\":\"2\"}: it has big {\"cpus\":1,\"gpus\":2,\"memory\":\"1Gi\"}"
    );
}

#[test]
fn replicas_with_same_resources_share_group() {
    let plain = job(json!({"learner": {"replicas": 2}}), json!({}));
    let patch = compute_patch(&plain, &add_learners("1", None)).unwrap();
    assert_eq!(
        outcome_texts(&patch),
        ["learners of group gpus-1-memory-1-5gi 0 -> 2"]
    );
    let new = json!({"name": "gpus-1-memory-1-5gi", "replicas": 2, "resources": {"gpus": "1", "memory": "1.5Gi"}});
    assert_eq!(
        patch.operations[1],
        json!({"op": "add", "path": "/spec/learner/groups", "value": [new]})
    );

    let grouped = job(json!({"learner": {"groups": [new]}}), json!({}));
    let patch = compute_patch(&grouped, &add_learners("1", None)).unwrap();
    assert_eq!(
        outcome_texts(&patch),
        ["learners of group gpus-1-memory-1-5gi 2 -> 4"]
    );
    let patch = compute_patch(&grouped, &add_learners("2", Some("big"))).unwrap();
    assert_eq!(patch.operations[1]["path"], "/spec/learner/groups/-");
    let other = rejection(&grouped, &add_learners("2", Some("gpus-1-memory-1-5gi")));
    assert!(other.contains("has other resources"), "{other}");
}

#[test]
fn named_replicas_and_lowered_count_share_patch() {
    let plan = json!([
        {"name": "c1", "type": "Collector", "origin": "Declared", "index": 0},
        {"name": "j-c2", "type": "Collector", "origin": "Declared", "index": 1},
        {"name": "j-big", "type": "Collector", "origin": "Declared", "index": 2, "group": "big"},
        {"name": "a", "type": "Aggregator", "origin": "Declared", "index": 0},
        {"name": "d", "type": "DDPLearner", "origin": "Declared", "index": 0, "ddp": {"aggregator": "a", "worldSize": 2, "startRank": 0}},
    ]);
    let spec = json!({
        "collector": {"replicas": 2, "groups": [{"name": "big", "replicas": 1}]},
        "learner": {"replicas": 1},
    });
    let mut job = job(spec, json!({"plan": plan}));
    let key = names::PODS_TO_DELETE_ANNOTATION.to_owned();
    job.metadata.annotations = Some([(key, "deleted,c1".to_owned())].into());
    job.object["metadata"]["annotations"] = json!(job.metadata.annotations);
    let names = ["c2", "pod/big", "d", "a"].map(str::to_owned).to_vec();
    let patch = compute_patch(&job, &ScaleRequest::RemoveNamed(names)).unwrap();
    assert_eq!(
        outcome_texts(&patch),
        [
            "learners 1 -> 0",
            "collectors 2 -> 1",
            "collectors of group big 1 -> 0"
        ]
    );
    assert_eq!(patch.operations.last().unwrap()["value"], "a,c1,j-big,j-c2");
}
