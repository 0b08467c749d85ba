//! Jobs of the same name in two namespaces, and who claims to be of one.

use serde_json::json;

use crate::{Settings, fixture::*, routes::VERSIONS};

/// Namespace and coordinator of each record that a list has.
async fn seen(fixture: &Fixture, from: &str, query: &str) -> Vec<String> {
    let path = format!("/v1alpha2/replicas{query}");
    let answer = send_request(fixture, from, "GET", &path, "").await;
    assert_eq!(answer.code, 200, "{query}: {}", answer.body);
    let all = answer.body["data"].as_array().unwrap().iter();
    let name = |record: &serde_json::Value| {
        let of = |field: &str| record[field].as_str().unwrap().to_owned();
        format!("{}/{}", of("namespace"), of("coordinator"))
    };
    all.map(name).collect()
}

#[tokio::test]
async fn of_all_namespaces_a_pod_sees_its_own_and_who_may_see_all_sees_all() {
    let closed = fixture(short_waits());
    let of_rl = ["rl/a-coordinator", "rl/b-coordinator"];
    let of_lab = ["lab/a-coordinator"];
    assert_eq!(seen(&closed, COORDINATOR, "").await, of_rl);
    assert_eq!(seen(&closed, OTHER_NAMESPACE, "").await, of_lab);
    let open = fixture(Settings {
        allow_anonymous: true,
        ..short_waits()
    });
    let all = [of_lab[0], of_rl[0], of_rl[1]];
    assert_eq!(seen(&open, UNKNOWN, "").await, all);
    assert_eq!(seen(&open, UNKNOWN, "?namespace=lab").await, of_lab);
    assert_eq!(
        seen(&open, OTHER_NAMESPACE, "").await,
        of_lab,
        "it is known"
    );
}

#[tokio::test]
async fn the_job_of_the_same_name_in_another_namespace_is_closed() {
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
                let answer = send_request(&fixture, from, method, &path, body).await;
                assert_eq!(answer.code, 403, "{method} {path}: {}", answer.body);
            }
        }
    }
}

/// Labels claim a job. Whether it was made anew, so that its owner is right after all, only the API server can tell.
#[tokio::test]
async fn who_has_the_labels_of_a_job_and_another_owner_learns_nothing() {
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
            let answer = send_request(&fixture, IMPOSTOR, method, &path, body).await;
            assert_eq!(
                (answer.code, &answer.body["data"]),
                (code, &json!(null)),
                "{method} {path}"
            );
        }
    }
}
