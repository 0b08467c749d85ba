use std::time::Duration;

use di_api::ReplicaResources;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::*;

fn requester() -> Requester {
    Requester::Coordinator(("default".into(), "j".into()))
}

fn replica_request(count: usize, cpus: &str, gpus: &str, memory: &str) -> ReplicaRequest {
    let quantity = |text: &str| (!text.is_empty()).then(|| Quantity(text.into()));
    ReplicaRequest {
        count,
        resources: ReplicaResources {
            cpus: quantity(cpus),
            gpus: quantity(gpus),
            memory: quantity(memory),
        },
    }
}

#[test]
fn add_requests_parse_as_clients_send_them() {
    let none = ReplicaRequest::default();
    for (body, collectors, learners) in [
        // The DI-engine coordinator when it starts.
        (
            r#"{"collectors":{"replicas":2},"learners":{"gpus":"0","replicas":1},"namespace":"default","coordinator":"j-coordinator"}"#,
            replica_request(2, "", "", ""),
            replica_request(1, "", "", ""),
        ),
        // The DI-engine command line.
        (
            r#"{"namespace":"default","coordinator":"j-coordinator","collectors":{"replicas":1,"cpus":2,"gpus":1,"memory":"1Gi"}}"#,
            replica_request(1, "2", "1", "1Gi"),
            none.clone(),
        ),
        // Older clients.
        (
            r#"{"namespace":"default","coordinator":"j-coordinator","learners":{"replicas":3.0,"cpu":"500m","gpu":"1","memory":""},"extra":[1]}"#,
            none.clone(),
            replica_request(3, "500m", "1", ""),
        ),
        (
            r#"{"namespace":"default","coordinator":"j-coordinator","collectors":{"replicas":1,"cpus":0.5,"cpu":9,"gpus":0,"memory":null},"learners":null}"#,
            replica_request(1, "0.5", "", ""),
            none.clone(),
        ),
        // Memory as a number is in bytes.
        (
            r#"{"namespace":"default","coordinator":"j-coordinator","collectors":{"replicas":1,"memory":1073741824},"learners":{"replicas":1,"memory":1.5e9}}"#,
            replica_request(1, "", "", "1073741824"),
            replica_request(1, "", "", "1500000000.0"),
        ),
        (
            r#"{"namespace":"default","coordinator":"j-coordinator"}"#,
            none.clone(),
            none,
        ),
    ] {
        let unknown_fields = body.contains("extra").then_some("unknown field extra");
        let expected = AddRequest {
            requester: requester(),
            collectors,
            learners,
            unknown_fields: unknown_fields.map(str::to_owned),
        };
        assert_eq!(
            AddRequest::parse(body.as_bytes(), 1000).unwrap(),
            expected,
            "{body}"
        );
    }
}

#[test]
fn invalid_add_requests_name_the_wrong_field() {
    let body_with = |collectors: serde_json::Value| {
        json!({"namespace": "default", "coordinator": "j-coordinator", "collectors": collectors})
            .to_string()
    };
    for (body, message) in [
        (String::new(), "the body is not JSON: "),
        (
            r#"{"namespace":"a","coordinator":"b"} more"#.into(),
            "the body is not JSON: ",
        ),
        ("[]".into(), "the body must be a JSON object"),
        ("{}".into(), "namespace is missing"),
        (r#"{"namespace":"a"}"#.into(), "coordinator is missing"),
        (
            r#"{"namespace":"../x","coordinator":"b"}"#.into(),
            "namespace is not a valid Kubernetes name",
        ),
        (
            r#"{"namespace":"a","coordinator":7}"#.into(),
            "coordinator must be a string",
        ),
        (body_with(json!(3)), "collectors must be a JSON object"),
        (
            body_with(json!({"replicas": -1})),
            "collectors.replicas must be an integer between 0 and 1000",
        ),
        (
            body_with(json!({"replicas": 1.5})),
            "collectors.replicas must be an integer between 0 and 1000",
        ),
        (
            body_with(json!({"replicas": 1_000_000})),
            "collectors.replicas must be an integer between 0 and 1000",
        ),
        (
            body_with(json!({"replicas": 1, "cpus": "-1"})),
            "collectors.cpus must be a quantity, such as 500m, 2 or 1Gi",
        ),
        (
            body_with(json!({"replicas": 1, "cpus": true})),
            "collectors.cpus must be a quantity",
        ),
        (
            body_with(json!({"replicas": 1, "gpus": 0.5})),
            "collectors.gpus must be an integer",
        ),
        (
            body_with(json!({"replicas": 1, "gpus": -1})),
            "collectors.gpus must be an integer",
        ),
    ] {
        let error = AddRequest::parse(body.as_bytes(), 1000).unwrap_err();
        assert_eq!(error.status_code(), 400);
        assert!(error.to_string().starts_with(message), "{body}: {error}");
    }
}

#[test]
fn equal_add_requests_have_one_canonical_form() {
    let canonical_form = |cpus: Value, memory: &str| {
        let body = json!({
            "namespace": "ns", "coordinator": "j-coordinator",
            "collectors": {"replicas": 2, "cpus": cpus, "memory": memory},
            "learners": {"replicas": 0, "gpus": 1},
        });
        let request = AddRequest::parse(body.to_string().as_bytes(), 1000);
        request.unwrap().description()
    };
    let expected = "collectors 2 of cpu 1 of memory 1073741824, learners 0";
    assert_eq!(canonical_form(json!(1), "1Gi"), expected);
    assert_eq!(canonical_form(json!(1.0), "1024Mi"), expected);
    assert_eq!(canonical_form(json!("1000m"), "1073741824"), expected);
    assert_ne!(canonical_form(json!("1001m"), "1Gi"), expected);
}

#[test]
fn f31_negative_counts_are_rejected() {
    for count in [json!(-1), json!("-1"), json!(-0.5), json!(i64::MIN)] {
        let body = json!({"namespace": "a", "coordinator": "b-coordinator", "learners": {"replicas": count}});
        let body = body.to_string();
        assert!(AddRequest::parse(body.as_bytes(), 10).is_err(), "{body}");
        assert!(RemoveRequest::parse(body.as_bytes(), 10).is_err(), "{body}");
    }
}

#[test]
fn add_limit_counts_both_roles_together() {
    let body = r#"{"namespace":"a","coordinator":"b-coordinator","collectors":{"replicas":600},"learners":{"replicas":401}}"#;
    let error = AddRequest::parse(body.as_bytes(), 1000).unwrap_err();
    assert_eq!(
        error.to_string(),
        "one request may add at most 1000 replicas"
    );
    assert!(AddRequest::parse(body.as_bytes(), 1001).is_ok());
}

#[test]
fn remove_requests_parse_as_clients_send_them() {
    let body = r#"{"namespace":"default","coordinator":"j-coordinator","collectors":{"replicas":1},"learners":{"replicas":0}}"#;
    let expected = RemoveRequest {
        requester: requester(),
        collectors: 1,
        learners: 0,
        unknown_fields: None,
    };
    assert_eq!(
        RemoveRequest::parse(body.as_bytes(), 5000).unwrap(),
        expected
    );
}

#[test]
fn failed_replicas_parse_as_names_or_urls_once_each() {
    for (collectors, pods) in [
        (json!(["j-collector-aaaaa"]), vec!["j-collector-aaaaa"]),
        (
            json!(["j-collector-aaaaa.default:22270"]),
            vec!["j-collector-aaaaa"],
        ),
        (
            json!([
                "http://j-collector-aaaaa.default:22270/",
                "j-collector-aaaaa",
                "x"
            ]),
            vec!["j-collector-aaaaa", "x"],
        ),
        (json!(["j-collector-aaaaa.other:22270"]), vec![]),
        (json!(null), vec![]),
    ] {
        let body = json!({
            "namespace": "default", "coordinator": "j-coordinator",
            "collectors": collectors, "learners": [],
        });
        let request = FailedRequest::parse(body.to_string().as_bytes()).unwrap();
        assert_eq!(request.pods, pods, "{collectors}");
    }
    let body = r#"{"namespace":"default","coordinator":"j-coordinator","collectors":["a",1]}"#;
    assert!(FailedRequest::parse(body.as_bytes()).is_err());
}

#[test]
fn f27_query_keys_are_parsed_or_rejected() {
    for (uri, expected) in [
        ("/x", Some([None, None, None, None])),
        (
            "/x?namespace=ns&coordinator=j-coordinator",
            Some([Some("ns"), Some("j-coordinator"), None, None]),
        ),
        (
            "/x?Namespace=ns&NAME=a&aggregator=",
            Some([Some("ns"), None, None, Some("a")]),
        ),
        (
            "/x?namespace=ns&aggregator=a",
            Some([Some("ns"), None, Some("a"), None]),
        ),
        ("/x?namespace=ns&job=a", None),
        ("/x?namespace=ns&namespace=other", None),
        ("/x?coordinator=a", None),
        ("/x?namespace=..%2Fkube-system", None),
    ] {
        let query = Query::parse(&uri.parse().unwrap());
        let found = query.ok().map(|query| {
            [
                query.namespace,
                query.coordinator,
                query.aggregator,
                query.name,
            ]
        });
        let expected = expected.map(|all| all.map(|field| field.map(str::to_owned)));
        assert_eq!(found, expected, "{uri}");
    }
}

#[test]
fn poll_parameters_are_parsed_or_rejected() {
    let list = "namespace=ns&coordinator=j-coordinator";
    for (query, expected) in [
        ("", Some((None, None))),
        ("generation=&wait=", Some((None, None))),
        ("generation=17", Some((Some(17), None))),
        ("Generation=17&WAIT=30s", Some((Some(17), Some(30)))),
        ("wait=99999s&generation=0", Some((Some(0), Some(30)))),
        ("wait=30s", None),
        ("generation=17&wait=30", None),
        ("generation=17&wait=1m", None),
        ("generation=17&wait=-1s", None),
        ("generation=%2B17", None),
        ("generation=1e3", None),
        ("generation=9999999999999999999", None),
        ("generation=17&generation=17", None),
        ("generation=17&name=a", None),
        ("generation=17&aggregator=a", None),
    ] {
        let parse = |path: &str| Query::parse(&format!("{path}?{list}&{query}").parse().unwrap());
        let found = parse("/v1alpha2/replicas").ok();
        let seconds = |wait: Duration| wait.as_secs();
        let found = found.map(|query| (query.generation, query.wait.map(seconds)));
        assert_eq!(found, expected, "{query}");
        assert_eq!(parse("/v1alpha1/replicas").is_ok(), query.is_empty());
    }
    let query = "/v1alpha2/replicas?namespace=ns&generation=17";
    assert!(Query::parse(&query.parse().unwrap()).is_err());
}

#[test]
fn failure_messages_omit_characters_that_clients_rewrite() {
    let envelope = Failure::new("it's \"None\"\n\\");
    let json = serde_json::to_value(&envelope).unwrap();
    assert_eq!(
        json,
        json!({"success": false, "code": 1, "message": "it`s `none` /", "data": null})
    );
}
