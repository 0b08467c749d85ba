//! Authentication and authorization at the endpoint: by pod IP and by token.

use std::{collections::BTreeMap, net::IpAddr};

use di_api::names::labels;
use di_apiserver_tests::{
    Account, Answer, Caller, Endpoint, Job, Kubelet, Space, eventually, give_address, remove,
    template,
};
use di_replicas::Settings;
use kube::api::PostParams;
use reqwest::Method;
use serde_json::json;

const OWN_IP: &str = "127.0.7.1";
const OTHER_IP: &str = "127.0.7.2";
const NODE_IP: &str = "127.0.7.3";
const FAKE_IP: &str = "127.0.7.5";
const UNKNOWN_IP: &str = "127.0.7.9";

/// Starts an endpoint without anonymous access, and two jobs with a running coordinator each.
async fn start_guarded_endpoint(space: &Space) -> Endpoint {
    let settings = Settings {
        kubelet_wait: std::time::Duration::ZERO,
        scheduling_wait: std::time::Duration::ZERO,
        ..Settings::default()
    };
    let endpoint = Endpoint::start_with(space, "endpoint", settings).await;
    for (job, address) in [("own", OWN_IP), ("other", OTHER_IP)] {
        space.create(&Job::new(job, 0)).await;
        space.until_settled(job).await;
        give_address(&space.pods(), &format!("{job}-coordinator"), address).await;
    }
    endpoint
}

fn caller_from(endpoint: &Endpoint, address: &str) -> Caller {
    endpoint.with_source_ip(address.parse::<IpAddr>().unwrap())
}

/// Waits until the endpoint's caches have seen the last change.
async fn wait_for_status(description: &str, code: u16, ask: impl AsyncFn() -> Answer) {
    eventually(&format!("{description}: {code}"), async || {
        let answer = ask().await;
        if answer.status == code {
            Ok(())
        } else {
            Err(format!("{answer:?}"))
        }
    })
    .await;
}

/// Returns the status code of each way to change a job.
async fn change_statuses(caller: &Caller, job: &str) -> [u16; 3] {
    let reported = format!("{job}-coordinator");
    [
        caller.add(job, 1, None).await.status,
        caller.remove(job, 1).await.status,
        caller.report_failed(job, &reported).await.status,
    ]
}

#[tokio::test]
async fn f16_pod_changes_only_its_job_and_reads_its_namespace() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = start_guarded_endpoint(&space).await;
    let own = caller_from(&endpoint, OWN_IP);
    let other = caller_from(&endpoint, OTHER_IP);
    wait_for_status("its own job", 200, async || own.list("own").await).await;
    wait_for_status("another of the namespace", 200, async || {
        other.list("own").await
    })
    .await;
    assert_eq!(own.list_in("kube-system", "own").await.status, 403);
    let elsewhere = own.with_namespace("kube-system");
    assert_eq!(change_statuses(&elsewhere, "own").await, [403; 3]);

    let theirs = other.add("other", 1, None).await.pods();
    assert_eq!(own.add("other", 1, None).await.status, 403);
    assert_eq!(own.remove("other", 1).await.status, 403);
    assert_eq!(own.report_failed("other", &theirs[0]).await.status, 403);
    // A request for its own job cannot replace pods of another job.
    for pod in [&theirs[0], "other-coordinator", "own-coordinator"] {
        assert!(
            own.report_failed("own", pod).await.pods().is_empty(),
            "{pod}"
        );
    }
    other.until_listed("other", &theirs).await;
    assert_eq!(own.add("own", 1, None).await.pods().len(), 1);
    manager.stop().await;
}

#[tokio::test]
async fn pod_of_previous_job_is_forbidden_for_new_job() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = start_guarded_endpoint(&space).await;
    let own = caller_from(&endpoint, OWN_IP);
    wait_for_status("its own job", 200, async || own.list("own").await).await;
    // No garbage collector deletes the old pod.
    remove(&space.jobs(), "own").await;
    space.create(&Job::new("own", 0)).await;
    wait_for_status("another's job", 403, async || own.list("own").await).await;
    let refused = own.add("own", 1, None).await;
    assert_eq!(refused.status, 403);
    let message = refused.body["message"].as_str().unwrap();
    assert!(
        message.contains("does not belong to the current DIJob own"),
        "{message}"
    );
    manager.stop().await;
}

#[tokio::test]
async fn spoofed_source_headers_and_labels_are_ignored() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = start_guarded_endpoint(&space).await;
    let own = caller_from(&endpoint, OWN_IP);
    wait_for_status("a pod's own address", 200, async || own.list("own").await).await;

    let unknown = caller_from(&endpoint, UNKNOWN_IP);
    let query = format!("?namespace={}&coordinator=own-coordinator", space.namespace);
    for header in [
        "X-Forwarded-For",
        "X-Real-IP",
        "X-Client-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
    ] {
        let request = unknown.request(Method::GET, &query).header(header, OWN_IP);
        let answer = Caller::send(request).await.unwrap();
        assert_eq!(answer.status, 401, "{header}: {answer:?}");
    }
    let forwarded = format!("for={OWN_IP}");
    let request = unknown.request(Method::GET, &query);
    let answer = Caller::send(request.header("Forwarded", forwarded))
        .await
        .unwrap();
    assert_eq!(answer.status, 401, "{answer:?}");

    // Labels alone do not identify a pod: it must have an owner.
    let labels = [
        (labels::GROUP, labels::GROUP_VALUE),
        (labels::CONTROLLER, labels::CONTROLLER_VALUE),
        (labels::JOB, "own"),
        (labels::ROLE, "collector"),
    ];
    let labels: BTreeMap<_, _> = labels.into_iter().collect();
    let mut fake = template();
    fake["metadata"] = json!({"name": "own-collector-fake", "labels": labels});
    let fake = serde_json::from_value(fake).unwrap();
    let params = PostParams::default();
    space.pods().create(&params, &fake).await.unwrap();
    give_address(&space.pods(), "own-collector-fake", FAKE_IP).await;
    let fake = caller_from(&endpoint, FAKE_IP);
    wait_for_status("labels alone", 403, async || fake.list("own").await).await;
    wait_for_status("all jobs, by labels alone", 403, async || {
        Caller::send(fake.request(Method::GET, "")).await.unwrap()
    })
    .await;
    assert_eq!(fake.add("own", 1, None).await.status, 403);
    assert_eq!(fake.remove("own", 1).await.status, 403);
    let report = fake.report_failed("own", "own-coordinator").await;
    assert_eq!(report.status, 403);

    // A pod with hostNetwork shares the IP of its node, so its IP proves nothing.
    let template = json!({"spec": {"hostNetwork": true}});
    let job = Job::new("hosted", 0).spec(json!({"coordinator": {"template": template}}));
    space.create(&job).await;
    space.until_settled("hosted").await;
    give_address(&space.pods(), "hosted-coordinator", NODE_IP).await;
    let node = caller_from(&endpoint, NODE_IP);
    // Once the later pod is known, so is this one.
    space.create(&Job::new("later", 0)).await;
    space.until_settled("later").await;
    give_address(&space.pods(), "later-coordinator", "127.0.7.4").await;
    let later = caller_from(&endpoint, "127.0.7.4");
    wait_for_status("a later pod", 200, async || later.list("later").await).await;
    assert_eq!(node.list("hosted").await.status, 401);
    manager.stop().await;
}

#[tokio::test]
async fn token_grants_the_permissions_of_its_account() {
    let space = Space::new().await;
    let elsewhere = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = start_guarded_endpoint(&space).await;
    let unknown = caller_from(&endpoint, UNKNOWN_IP);
    wait_for_status("no token", 401, async || unknown.list("own").await).await;
    assert_eq!(unknown.with_token("rubbish").list("own").await.status, 401);

    let engineer = Account::new(&space, "engineer", &["get", "update"]).await;
    let caller = unknown.with_token(&engineer.token("di-server").await);
    // The API server's authorizer learns new permissions by a watch.
    wait_for_status("may read", 200, async || caller.list("own").await).await;
    assert_eq!(caller.add("own", 1, None).await.status, 200);
    assert_eq!(
        caller.list_in(&elsewhere.namespace, "own").await.status,
        403
    );
    let there = caller.with_namespace(&elsewhere.namespace);
    assert_eq!(change_statuses(&there, "own").await, [403; 3]);
    let everywhere = Caller::send(caller.request(Method::GET, "")).await.unwrap();
    assert_eq!(everywhere.status, 403);

    let reader = Account::new(&space, "reader", &["get"]).await;
    let caller = unknown.with_token(&reader.token("di-server").await);
    wait_for_status("may read", 200, async || caller.list("own").await).await;
    assert_eq!(caller.add("own", 1, None).await.status, 403);
    assert_eq!(caller.remove("own", 1).await.status, 403);

    let for_others = engineer.token("https://kubernetes.default.svc").await;
    let wrong = unknown.with_token(&for_others);
    assert_eq!(wrong.list("own").await.status, 401, "another audience");
    let sound = unknown.with_token(&engineer.self_signed_token(600));
    assert_eq!(
        sound.list("own").await.status,
        200,
        "the same but for its end"
    );
    let expired = unknown.with_token(&engineer.self_signed_token(-60));
    assert_eq!(expired.list("own").await.status, 401, "expired");
    assert_eq!(change_statuses(&expired, "own").await, [401; 3]);
    // A token grants a pod more than its IP.
    let both = caller_from(&endpoint, OTHER_IP).with_token(&engineer.token("di-server").await);
    assert_eq!(both.add("own", 1, None).await.status, 200);
    manager.stop().await;
}

#[tokio::test]
async fn anonymous_access_needs_allow_anonymous() {
    let space = Space::new().await;
    let endpoint = Endpoint::start(&space, "open").await;
    space.create(&Job::new("own", 0)).await;
    let unknown = caller_from(&endpoint, UNKNOWN_IP);
    wait_for_status("anonymous", 200, async || unknown.list("own").await).await;
    let wrong = unknown.with_token("rubbish");
    assert_eq!(
        wrong.list("own").await.status,
        401,
        "a wrong token is no token"
    );
}
