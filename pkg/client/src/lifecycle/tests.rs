use di_fixtures::{ApiServerMock, Reply};
use http::StatusCode;
use kube::core::Status;
use serde_json::{Value, json};

use super::*;

fn parsed_text(status: u16, body: &str) -> String {
    let status = StatusCode::from_u16(status).unwrap();
    match parse_response(status, body.as_bytes(), 22270) {
        Ok(CallResult::Status(lifecycle)) => format!("{} {}", lifecycle.status, lifecycle.samples),
        Ok(CallResult::NoReport(reason) | CallResult::Unreachable(reason)) => reason,
        Ok(CallResult::NotCalled) => unreachable!("every response has a result"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn worker_responses_differ_from_other_servers() {
    let lifecycle =
        json!({"status": "paused", "running": false, "samples": 7, "stats": {"loss": 0.5}});
    let done = json!({"success": true, "code": 0, "message": "", "data": lifecycle}).to_string();
    assert_eq!(parsed_text(200, &done), "paused 7");
    let refused = json!({"success": false, "code": 1, "message": "it is new", "data": lifecycle});
    assert_eq!(parsed_text(409, &refused.to_string()), "refused: it is new");
    let other = json!({"success": false, "code": 1, "message": "no such path", "data": null});
    for (status, body, expected) in [
        (404, "", "404 Not Found"),
        (404, "404 page not found", "404 Not Found"),
        (405, "", "405 Method Not Allowed"),
        (200, "<html>", "200 OK"),
        (404, &other.to_string(), "404 Not Found"),
        (503, r#"{"error": "busy"}"#, "503 Service Unavailable"),
    ] {
        let expected = format!("does not serve the life-cycle API (HTTP status {expected})");
        assert_eq!(parsed_text(status, body), expected, "{body}");
    }
}

#[test]
fn api_server_errors_are_recognized() {
    let server_status = |code: u16, reason: &str, message: &str| {
        let status = Status::failure(message, reason).with_code(code);
        parsed_text(code, &json!(status).to_string())
    };
    let refused = "error trying to reach service: dial tcp 10.1.2.3:22270: connect: refused";
    let expected = format!("does not answer on port 22270: {refused}");
    assert_eq!(server_status(503, "ServiceUnavailable", refused), expected);
    assert_eq!(parsed_text(503, &format!("{refused}\n")), expected);
    assert_eq!(
        server_status(404, "NotFound", "pods \"x\" not found"),
        "was deleted"
    );
    let forbidden = "pods \"x\" is forbidden: User \"u\" cannot get resource \"pods/proxy\"";
    assert_eq!(
        server_status(403, "Forbidden", forbidden),
        format!("Error from server (Forbidden): {forbidden}")
    );
}

#[test]
fn just_started_container_is_recognized() {
    let now = "2026-01-31T12:00:00Z".parse().unwrap();
    for (started, wanted) in [
        (json!("2026-01-31T11:59:59Z"), true),
        (json!("2026-01-31T11:59:29Z"), false),
        (json!(null), false),
    ] {
        let mut pod = pod("j-coordinator", "coordinator", "Running");
        pod["status"]["containerStatuses"] =
            json!([{"name": "di-container", "state": {"running": {"startedAt": started}}}]);
        assert_eq!(
            has_just_started(&serde_json::from_value(pod).unwrap(), now),
            wanted
        );
    }
}

/// A cluster with these pods, whose workers send this reply.
fn mock_cluster(pods: &[Value], worker: Reply) -> (ApiServerMock, Cluster) {
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods});
    let (mock, client) = ApiServerMock::new(move |request| {
        if request.path.contains("/proxy/") {
            worker.clone()
        } else {
            Reply::Object(200, list.clone())
        }
    });
    (mock, Cluster::for_test_client(client))
}

/// The reply of a worker with this life-cycle status.
fn worker(status: &str) -> Reply {
    Reply::Object(200, json!({"success": true, "data": {"status": status}}))
}

/// Calls the replicas with a timeout of a second.
async fn call(
    cluster: &Cluster,
    job: &Job,
    request: LifecycleRequest,
    dry_run: DryRun,
) -> Result<Vec<ReplicaReply>> {
    call_replicas(cluster, job, request, dry_run, Duration::from_secs(1)).await
}

fn pod(name: &str, role: &str, phase: &str) -> Value {
    let ports = json!([{"name": "di-port", "containerPort": 80}]);
    di_fixtures::Pod::test(name, role)
        .spec(json!({"containers": [{"name": "di-container", "ports": ports}]}))
        .phase(phase)
        .json()
}

fn job(phase: &str) -> Job {
    let plan = json!([
        {"name": "j-collector-aaaaa", "type": "Collector", "origin": "Declared", "index": 0},
        {"name": "j-collector-bbbbb", "type": "Collector", "origin": "Declared", "index": 1},
        {"name": "j-collector-ccccc", "type": "Collector", "origin": "Declared", "index": 2, "state": "Removing"},
        {"name": "j-collector-ddddd", "type": "Collector", "origin": "Declared", "index": 3},
        {"name": "j-collector-eeeee", "type": "Collector", "origin": "Declared", "index": 4},
    ]);
    let job = di_fixtures::Job::test().status(json!({"phase": phase, "plan": plan}));
    Job::from(job.json())
}

#[tokio::test]
async fn active_replicas_are_called_and_others_explained() {
    let mut terminating = pod("j-collector-eeeee", "collector", "Running");
    terminating["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z".into();
    let pods = [
        pod("j-coordinator", "coordinator", "Running"),
        pod("j-collector-aaaaa", "collector", "Pending"),
        pod("j-collector-ccccc", "collector", "Running"),
        pod("j-collector-ddddd", "collector", "Succeeded"),
        terminating,
    ];
    let (mock, cluster) = mock_cluster(&pods, worker("paused"));
    let request = LifecycleRequest::Pause;
    let called = call(&cluster, &job("Running"), request, DryRun::None).await;
    let replies: Vec<_> = called
        .unwrap()
        .into_iter()
        .map(|one| {
            let status = one.lifecycle.map(|lifecycle| lifecycle.status);
            (one.name, status.or(one.message).unwrap())
        })
        .collect();
    let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(
        replies,
        [
            pair("j-coordinator", "paused"),
            pair("j-collector-aaaaa", "does not run yet (Pending)"),
            pair("j-collector-bbbbb", "has no pod yet"),
            pair("j-collector-eeeee", "is terminating"),
        ]
    );
    let requests = mock.requests();
    assert_eq!(requests.len(), 2, "one list and one call");
    assert_eq!(requests[1].method, Method::POST);
    assert_eq!(
        requests[1].path,
        "/api/v1/namespaces/rl/pods/j-coordinator:80/proxy/lifecycle/pause"
    );
}

fn exited(mut pod: Value, code: i32, reason: &str) -> Value {
    let state = json!({"terminated": {"exitCode": code, "reason": reason}});
    pod["status"]["containerStatuses"] = json!([{"name": "di-container", "state": state}]);
    pod
}

#[tokio::test]
async fn status_lists_ended_replicas_with_result() {
    let mut job = job("Running");
    job.status.plan[1].done = true;
    let evicted = json!({"phase": "Failed", "reason": "Evicted"});
    let mut pods = [
        pod("j-coordinator", "coordinator", "Running"),
        exited(pod("j-collector-aaaaa", "collector", "Failed"), 1, "Error"),
        pod("j-collector-ccccc", "collector", "Succeeded"),
        pod("j-collector-ddddd", "collector", "Succeeded"),
        pod("j-collector-eeeee", "collector", "Failed"),
        exited(pod("j-learner", "learner", "Failed"), 137, "OOMKilled"),
    ];
    pods[4]["status"] = evicted;
    let (mock, cluster) = mock_cluster(&pods, worker("running"));
    let call = async |request, dry_run| {
        let called = call(&cluster, &job, request, dry_run).await;
        let all = called.unwrap().into_iter().map(|one| {
            let one = json!(one);
            ["name", "status", "message"].map(|field| one[field].as_str().unwrap_or("").to_owned())
        });
        all.collect::<Vec<_>>()
    };
    let failed = "has failed (exit code 1)";
    let killed = "has failed (exit code 137, OOMKilled)";
    assert_eq!(
        call(LifecycleRequest::Status, DryRun::None).await,
        [
            ["j-coordinator", "running", ""],
            ["j-collector-aaaaa", "error", failed],
            ["j-collector-bbbbb", "completed", ""],
            ["j-collector-ddddd", "completed", ""],
            ["j-collector-eeeee", "error", "has failed (Evicted)"],
            ["j-learner", "error", killed],
        ]
    );
    assert_eq!(
        call(LifecycleRequest::Pause, DryRun::Client).await,
        [
            ["j-coordinator", "", ""],
            ["j-collector-aaaaa", "", failed],
            ["j-collector-eeeee", "", "has failed (Evicted)"],
            ["j-learner", "", killed],
        ],
        "completed replicas are left out"
    );
    assert_eq!(mock.requests().len(), 3, "two lists and one call");
}

#[tokio::test]
async fn unresponsive_replica_times_out() {
    let pods = [pod("j-coordinator", "coordinator", "Running")];
    let (_, cluster) = mock_cluster(&pods, Reply::Hang);
    let request = LifecycleRequest::Status;
    let called = call(&cluster, &job("Running"), request, DryRun::None).await;
    assert_eq!(
        called.unwrap()[0].message.as_deref(),
        Some("did not answer within 1s")
    );
}

#[tokio::test]
async fn ended_or_suspended_job_is_not_called() {
    let (mock, cluster) = mock_cluster(&[], Reply::Hang);
    let mut to_suspend = job("Running");
    to_suspend.object["spec"]["suspend"] = true.into();
    for (job, request, requests, message) in [
        (
            job("Succeeded"),
            LifecycleRequest::Start,
            0,
            "job \"j\" has ended (Succeeded)",
        ),
        (
            job("Suspended"),
            LifecycleRequest::Start,
            1,
            "job \"j\" has no pods (Suspended)",
        ),
        (
            to_suspend,
            LifecycleRequest::Pause,
            1,
            "job \"j\" is suspended and has no pods; to start it: kubectl di resume j",
        ),
    ] {
        let result = call(&cluster, &job, request, DryRun::None).await;
        assert_eq!(result.unwrap_err().to_string(), message);
        assert_eq!(mock.requests().len(), requests, "{message}");
    }
}

#[tokio::test]
async fn dry_run_does_not_change_replicas() {
    let status_path = "/api/v1/namespaces/rl/pods/j-coordinator:80/proxy/lifecycle";
    for (dry_run, expected) in [
        (DryRun::Client, None),
        (DryRun::Server, Some((Method::GET, status_path.to_owned()))),
    ] {
        let pods = [pod("j-coordinator", "coordinator", "Running")];
        let (mock, cluster) = mock_cluster(&pods, worker("running"));
        let request = LifecycleRequest::Pause;
        let called = call(&cluster, &job("Running"), request, dry_run).await;
        let coordinator = &called.unwrap()[0];
        assert_eq!(coordinator.message, None);
        assert_eq!(coordinator.lifecycle.is_some(), expected.is_some());
        let mut requests = mock.requests().into_iter().skip(1);
        let sent = requests.next().map(|sent| (sent.method, sent.path));
        assert_eq!((sent, requests.len()), (expected, 0));
    }
}
