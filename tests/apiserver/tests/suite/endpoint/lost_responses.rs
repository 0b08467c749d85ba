//! Requests that are sent again because their response was lost.

use std::time::Duration;

use di_api::{DIJobStatus, names};
use di_apiserver_tests::{
    Caller, Endpoint, Job, Kubelet, LossyProxy, Proxy, ProxyAction, RecordedRequest, Space,
    eventually,
};
use di_replicas::Settings;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use reqwest::Method;
use serde_json::{Value, json};

fn open_settings() -> Settings {
    Settings {
        allow_anonymous: true,
        scheduling_wait: Duration::ZERO,
        ..Settings::default()
    }
}

async fn start_endpoint(space: &Space, agent: &str, settings: Settings) -> Endpoint {
    Endpoint::start_with(space, agent, settings).await
}

/// Sends a request until it is answered, as clients do.
async fn send_until_answered(
    caller: &Caller,
    method: Method,
    key: Option<&str>,
    count: usize,
) -> Vec<String> {
    eventually("an answer", async || {
        let body = json!({"collectors": {"replicas": count}});
        let request = caller.change_request(method.clone(), "", "job", key, body);
        match Caller::send(request).await {
            Ok(answer) if answer.status == 200 => Ok(answer.pods()),
            Ok(answer) if answer.status == 503 => Err(format!("{answer:?}")),
            Ok(answer) => panic!("{answer:?}"),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}

#[tokio::test]
async fn keyed_request_is_served_once_despite_lost_responses() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let one = start_endpoint(&space, "one", open_settings()).await;
    let two = start_endpoint(&space, "two", open_settings()).await;
    space.create(&Job::new("job", 2)).await;
    space.until_settled("job").await;
    let lossy = async |endpoint: &Endpoint| LossyProxy::start(endpoint.address(), 3).await;

    let proxy = lossy(&one).await;
    let added = send_until_answered(
        &one.with_address(proxy.address),
        Method::POST,
        Some("add"),
        4,
    )
    .await;
    assert_eq!(added.len(), 4);
    // The client may reach another endpoint, which knows the key, too.
    assert_eq!(
        send_until_answered(&two, Method::POST, Some("add"), 4).await,
        added
    );
    assert_eq!(space.until_settled("job").await.collectors, 6);

    let proxy = lossy(&two).await;
    let gone = send_until_answered(
        &two.with_address(proxy.address),
        Method::DELETE,
        Some("less"),
        5,
    )
    .await;
    assert_eq!(gone.len(), 5, "four requested ones, and one declared");
    // The same key for another method is another request.
    let again = send_until_answered(&one, Method::POST, Some("less"), 1).await;
    assert_eq!(again.len(), 1);
    eventually("all removed replicas are gone", async || {
        let plan = space.jobs().get("job").await.unwrap().status.unwrap().plan;
        if plan.len() == 2 {
            Ok(())
        } else {
            Err(format!("{plan:?}"))
        }
    })
    .await;
    // The replicas are no longer in the plan, but the request history still has the key.
    assert_eq!(
        send_until_answered(&two, Method::DELETE, Some("less"), 5).await,
        gone
    );
    assert_eq!(
        send_until_answered(&one, Method::POST, Some("add"), 4).await,
        Vec::<String>::new()
    );
    let job = space.jobs().get("job").await.unwrap();
    assert_eq!(job.spec.collector.unwrap().replicas, 1);
    assert_eq!(space.until_settled("job").await.collectors, 2);
    manager.stop().await;
}

/// Without a key, a retry looks like a request for more. See docs/decisions/0009.
#[tokio::test]
async fn unkeyed_retry_after_lost_response_adds_again() {
    let space = Space::new().await;
    let space = space.without_random_faults("one answer is lost, and no other");
    let endpoint = start_endpoint(&space, "endpoint", open_settings()).await;
    space.create(&Job::new("job", 0)).await;
    let proxy = LossyProxy::start(endpoint.address(), 1).await;
    let added =
        send_until_answered(&endpoint.with_address(proxy.address), Method::POST, None, 2).await;
    let status = space.jobs().get("job").await.unwrap().status.unwrap();
    assert_eq!((added.len(), status.collectors), (2, 4));
}

#[tokio::test]
async fn unkeyed_retry_after_disconnect_returns_same_replicas() {
    let space = Space::new().await;
    let space = space.without_random_faults(
        "the client hangs up when all is written, and before it is answered",
    );
    let settings = Settings {
        // No pod runs, so the endpoint waits before it responds.
        scheduling_wait: Duration::from_secs(10),
        ..open_settings()
    };
    let endpoint = start_endpoint(&space, "endpoint", settings).await;
    space.create(&Job::new("job", 0)).await;
    let body = json!({"collectors": {"replicas": 3}});
    let request = || endpoint.change_request(Method::POST, "", "job", None, body.clone());
    let is_planned = |status: &DIJobStatus| status.collectors == 3;
    let planned = tokio::select! {
        biased;
        planned = space.until("job", "planned", is_planned) => planned,
        answer = request().send() => panic!("{answer:?}"),
    };
    // The next request makes the endpoint notice the closed connection.
    endpoint.list("job").await;
    space.until("job", "still planned", is_planned).await;
    let mut planned: Vec<_> = planned.plan.into_iter().map(|e| e.name).collect();
    planned.sort();
    assert_eq!(Caller::send(request()).await.unwrap().pods(), planned);
    // The retry was answered, so the next request is a new one.
    assert_eq!(Caller::send(request()).await.unwrap().pods().len(), 3);
    let status = space.jobs().get("job").await.unwrap().status.unwrap();
    assert_eq!(status.collectors, 6);
}

/// The first write succeeds without a response, and all later writes hang.
fn outage(request: &RecordedRequest) -> ProxyAction {
    match request.write {
        0 => ProxyAction::Served,
        1 => ProxyAction::Unanswered,
        _ => ProxyAction::Hung,
    }
}

#[tokio::test]
async fn unkeyed_retry_after_outage_adds_once() {
    let space = Space::new().await;
    let client = space.server.client_of_manager("endpoint", &space.namespace);
    let proxy = Proxy::start(client);
    proxy.set_rule(outage);
    let settings = Settings {
        request_timeout: Duration::from_secs(1),
        ..open_settings()
    };
    let endpoint = Endpoint::start_with_client(&space, proxy.client(), settings).await;
    space.create(&Job::new("job", 0)).await;
    let added = send_until_answered(&endpoint, Method::POST, None, 3).await;
    let status = space.jobs().get("job").await.unwrap().status.unwrap();
    let mut planned: Vec<_> = status.plan.into_iter().map(|e| e.name).collect();
    planned.sort();
    assert_eq!(added, planned);
    assert_eq!(added.len(), 3);
}

#[tokio::test]
async fn declared_count_is_lowered_once_if_second_write_fails() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let groups = json!([{"name": "big", "replicas": 2, "resources": {}}]);
    let job = Job::new("job", 3).spec(json!({"collector": {"groups": groups}}));
    space.create(&job).await;
    let plan = space.until_settled("job").await.plan;
    let mut declared: Vec<_> = plan.into_iter().map(|entry| entry.name).collect();
    declared.sort();
    let client = space.server.client_of_manager("endpoint", &space.namespace);
    let proxy = Proxy::start(client);
    proxy.set_rule(outage);
    let settings = Settings {
        request_timeout: Duration::from_secs(1),
        ..open_settings()
    };
    let dying = Endpoint::start_with_client(&space, proxy.client(), settings).await;
    let body = json!({"collectors": {"replicas": 4}});
    let request = dying.change_request(Method::DELETE, "", "job", Some("less"), body);
    assert_eq!(Caller::send(request).await.unwrap().status, 503);
    let two = start_endpoint(&space, "two", open_settings()).await;
    // The manager lowers the plan by itself.
    let left = |status: &DIJobStatus| status.plan.len() == 1;
    let left = space.until("job", "one replica remains", left).await.plan;
    let gone = send_until_answered(&two, Method::DELETE, Some("less"), 4).await;
    declared.retain(|name| *name != left[0].name);
    assert_eq!(gone, declared);
    let collector = space
        .jobs()
        .get("job")
        .await
        .unwrap()
        .spec
        .collector
        .unwrap();
    assert_eq!(collector.replicas + collector.groups[0].replicas, 1);
    manager.stop().await;
}

/// Sets all times in the job's request history to long ago.
async fn age_request_history(space: &Space) {
    let set_old_time = |mut history: Value| {
        for request in history.as_array_mut().unwrap() {
            request["at"] = json!("2020-01-01T00:00:00Z");
        }
        history
    };
    let (jobs, params) = (space.jobs(), PatchParams::default());
    let job = jobs.get("job").await.unwrap();
    // Change the annotation before the status: with the old status the endpoint would still replay.
    let lowered = &job.annotations()[names::SCALE_DOWNS_ANNOTATION];
    let lowered = set_old_time(serde_json::from_str(lowered).unwrap()).to_string();
    let patch = json!({"metadata": {"annotations": {names::SCALE_DOWNS_ANNOTATION: lowered}}});
    jobs.patch("job", &params, &Patch::Merge(patch))
        .await
        .unwrap();
    let requests = set_old_time(json!(job.status.unwrap().requests));
    let patch = json!({"status": {"requests": requests}});
    jobs.patch_status("job", &params, &Patch::Merge(patch))
        .await
        .unwrap();
}

#[tokio::test]
async fn expired_key_removes_again() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = start_endpoint(&space, "endpoint", open_settings()).await;
    space.create(&Job::new("job", 3)).await;
    space.until_settled("job").await;
    let nightly = async || send_until_answered(&endpoint, Method::DELETE, Some("nightly"), 1).await;
    let first = nightly().await;
    assert_eq!((first.len(), &nightly().await), (1, &first));
    age_request_history(&space).await;
    let second = eventually("another one goes", async || {
        let gone = nightly().await;
        if gone == first {
            Err(format!("{gone:?}"))
        } else {
            Ok(gone)
        }
    })
    .await;
    assert_eq!((second.len(), &nightly().await), (1, &second));
    let job = space.jobs().get("job").await.unwrap();
    assert_eq!(job.spec.collector.unwrap().replicas, 1);
    manager.stop().await;
}
