//! Requests across namespaces with jobs of the same name, and from pods with false labels.

use serde_json::json;

use crate::{Settings, fixture::*, versions::VERSIONS};

/// Lists replicas and returns the namespace and coordinator of each record.
async fn list_coordinators(fixture: &Fixture, from: &str, query: &str) -> Vec<String> {
    let path = format!("/v1alpha2/replicas{query}");
    let response = send_request(fixture, from, "GET", &path, "").await;
    assert_eq!(response.code, 200, "{query}: {}", response.body);
    let all = response.body["data"].as_array().unwrap().iter();
    let name = |record: &serde_json::Value| {
        let text_of = |field: &str| record[field].as_str().unwrap().to_owned();
        format!("{}/{}", text_of("namespace"), text_of("coordinator"))
    };
    all.map(name).collect()
}

#[tokio::test]
async fn lists_without_namespace_hold_authorized_namespaces() {
    let authenticated = fixture(short_waits());
    let rl_records = ["rl/a-coordinator", "rl/b-coordinator"];
    let lab_records = ["lab/a-coordinator"];
    assert_eq!(
        list_coordinators(&authenticated, COORDINATOR, "").await,
        rl_records
    );
    assert_eq!(
        list_coordinators(&authenticated, OTHER_NAMESPACE, "").await,
        lab_records
    );
    let anonymous = fixture(Settings {
        allow_anonymous: true,
        ..short_waits()
    });
    let all = [lab_records[0], rl_records[0], rl_records[1]];
    assert_eq!(list_coordinators(&anonymous, UNKNOWN, "").await, all);
    assert_eq!(
        list_coordinators(&anonymous, UNKNOWN, "?namespace=lab").await,
        lab_records
    );
    assert_eq!(
        list_coordinators(&anonymous, OTHER_NAMESPACE, "").await,
        lab_records,
        "a known pod sees only its namespace"
    );
}

#[tokio::test]
async fn same_named_job_in_another_namespace_is_forbidden() {
    let fixture = fixture(short_waits());
    for (from, other) in [
        (COORDINATOR, "lab"),
        (COLLECTOR, "lab"),
        (OTHER_NAMESPACE, "rl"),
    ] {
        let body = |collectors: serde_json::Value| {
            json!({"namespace": other, "coordinator": "a-coordinator", "collectors": collectors})
                .to_string()
        };
        let one = body(json!({"replicas": 1}));
        let named = body(json!(["a-collector-run"]));
        for version in VERSIONS {
            let list = format!("/replicas?namespace={other}");
            let requests = [
                ("POST", "/replicas".to_owned(), &*one),
                ("DELETE", "/replicas".to_owned(), &*one),
                ("POST", "/replicas/failed".to_owned(), &*named),
                ("GET", list.clone(), ""),
                ("GET", format!("{list}&coordinator=a-coordinator"), ""),
                ("GET", format!("{list}&name=a-collector-run"), ""),
                ("GET", format!("{list}&aggregator=a-aggregator-abcde"), ""),
            ];
            for (method, path, body) in requests {
                let path = format!("{version}{path}");
                let response = send_request(&fixture, from, method, &path, body).await;
                assert_eq!(response.code, 403, "{method} {path}: {}", response.body);
            }
        }
    }
}

/// The labels name the job, but the owner UID differs. The job may have been created again, so the
/// endpoint reads it live.
#[tokio::test]
async fn pod_with_job_labels_and_another_owner_is_rejected() {
    let body =
        json!({"namespace": "rl", "coordinator": "a-coordinator", "collectors": {"replicas": 1}})
            .to_string();
    let list = "/replicas?namespace=rl&coordinator=a-coordinator";
    for (fixture, code) in [
        (fixture(short_waits()), 403),
        (without_api_server(short_waits()), 503),
    ] {
        for (method, path, body) in [
            ("GET", "/replicas", ""),
            ("GET", list, ""),
            ("POST", "/replicas", &*body),
            ("DELETE", "/replicas", &*body),
        ] {
            let path = format!("/v1alpha2{path}");
            let response = send_request(&fixture, IMPOSTOR, method, &path, body).await;
            assert_eq!(
                (response.code, &response.body["data"]),
                (code, &json!(null)),
                "{method} {path}"
            );
        }
    }
}
