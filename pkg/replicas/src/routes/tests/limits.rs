use di_api::Role;
use serde_json::json;

use crate::{Settings, error::Error, fixture::*};

#[tokio::test]
async fn too_many_changes_of_one_job_are_told_to_come_again() {
    let fixture = fixture(Settings {
        max_changes_per_job: 2,
        ..short_waits()
    });
    let key = ("rl".to_owned(), "a".to_owned());
    let _served = fixture.state.lock_job(&key).await.unwrap();
    let waiting = fixture.state.lock_job(&key);
    tokio::pin!(waiting);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    let body =
        json!({"namespace": "rl", "coordinator": "a-coordinator", "collectors": {"replicas": 1}});
    for (version, code, retry_after) in [("v1alpha1", 200, false), ("v1alpha2", 429, true)] {
        for method in ["POST", "DELETE"] {
            let path = format!("/{version}/replicas");
            let answer =
                send_request(&fixture, COORDINATOR, method, &path, &body.to_string()).await;
            assert_eq!((answer.code, answer.retry_after), (code, retry_after));
            assert_eq!(answer.body["success"], false);
        }
    }
    let list = "/v1alpha2/replicas?namespace=rl&coordinator=a-coordinator";
    assert_eq!(
        send_request(&fixture, COORDINATOR, "GET", list, "")
            .await
            .code,
        200
    );
    let other = json!({"namespace": "rl", "coordinator": "b-coordinator"}).to_string();
    let other = send_request(&fixture, OTHER_JOB, "DELETE", "/v1alpha2/replicas", &other).await;
    assert_eq!(other.code, 200, "{:?}", other.body);
}

#[tokio::test]
async fn a_job_has_no_more_replicas_than_it_may() {
    // Four of its five are wanted.
    let fixture = fixture(Settings {
        max_replicas_per_job: 5,
        ..short_waits()
    });
    let body = json!({
        "namespace": "rl", "coordinator": "a-coordinator",
        "collectors": {"replicas": 1}, "learners": {"replicas": 1, "gpus": 1},
    });
    for version in ["v1alpha1", "v1alpha2"] {
        let path = format!("/{version}/replicas");
        let answer = send_request(&fixture, COORDINATOR, "POST", &path, &body.to_string()).await;
        assert_eq!(
            (answer.code, answer.body["message"].as_str().unwrap()),
            (400, "DIJob a has 4 replicas and may have at most 5")
        );
    }
}

/// DI-engine ends by a refusal, and what it is refused for may have passed: the cache without_api_server does not refuse.
#[tokio::test]
async fn where_no_api_server_is_nobody_is_refused_for_what_the_job_is() {
    let fixture = without_api_server(Settings {
        max_replicas_per_job: 4,
        ..short_waits()
    });
    let body =
        json!({"namespace": "rl", "coordinator": "a-coordinator", "collectors": {"replicas": 1}});
    for (version, code) in [("v1alpha1", 200), ("v1alpha2", 503)] {
        let path = format!("/{version}/replicas");
        let answer = send_request(&fixture, COORDINATOR, "POST", &path, &body.to_string()).await;
        assert_eq!(
            (answer.code, &answer.body["success"]),
            (code, &json!(false))
        );
    }
}

#[tokio::test]
async fn those_that_have_done_their_work_make_room() {
    for (is_done, code) in [(false, 400), (true, 503)] {
        let plan = json!([
            {"name": "a-collector-run", "type": "Collector", "origin": "Requested", "index": 0},
            {"name": "a-collector-end", "type": "Collector", "origin": "Requested", "index": 1, "done": is_done},
        ]);
        let settings = Settings {
            max_replicas_per_job: 2,
            ..short_waits()
        };
        let job = job("a", &json!({"phase": "Running", "plan": plan}));
        let coordinator = pod(
            "a",
            Role::Coordinator,
            "a-coordinator",
            "a-uid",
            COORDINATOR,
        );
        let fixture = fixture_with(settings, [job], [coordinator]);
        let body = json!({"namespace": "rl", "coordinator": "a-coordinator", "collectors": {"replicas": 1}});
        let path = "/v1alpha2/replicas";
        let answer = send_request(&fixture, COORDINATOR, "POST", path, &body.to_string()).await;
        // The API server takes no writes.
        assert_eq!(answer.code, code, "{:?}", answer.body);
    }
}

#[test]
fn f30_what_the_api_server_says_keeps_its_meaning() {
    for (said, code) in [
        (400, 400),
        (401, 503),
        (403, 503),
        (404, 404),
        (409, 503),
        (413, 400),
        (422, 400),
        (429, 503),
        (500, 503),
        (504, 503),
    ] {
        let reason = if said == 404 { "NotFound" } else { "Reason" };
        let status = kube::core::Status::failure("why", reason).with_code(said);
        let error = Error::Api {
            doing: "write",
            source: Box::new(kube::Error::Api(Box::new(status))),
        };
        assert_eq!(error.display_status(), code, "{said}");
        assert!(error.to_string().contains("why"), "{error}");
    }
    let unreadable = serde_json::from_str::<u8>("what").unwrap_err();
    let error = Error::Api {
        doing: "write",
        source: Box::new(kube::Error::SerdeError(unreadable)),
    };
    assert_eq!(error.display_status(), 500, "another try brings the same");
    let said = error.to_string();
    assert!(said.contains("its answer cannot be read"), "{said}");
}
