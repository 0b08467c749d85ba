use http::StatusCode;
use kube::core::Status;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

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
        pod["status"]["containerStatuses"] = json!([{
            "name": "di-container", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": started}},
        }]);
        assert_eq!(
            has_just_started(&serde_json::from_value(pod).unwrap(), now),
            wanted
        );
    }
}

/// Answers the requests in order and returns their request lines.
async fn serve_responses(server: &TcpListener, answers: &[Value]) -> Vec<String> {
    let mut requests = Vec::new();
    for answer in answers {
        let (mut stream, _) = server.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        requests.push(request.lines().next().unwrap().to_owned());
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        let answer = answer.to_string();
        let length = answer.len();
        let whole = format!("{head}\r\ncontent-length: {length}\r\n\r\n{answer}");
        stream.write_all(whole.as_bytes()).await.unwrap();
    }
    requests
}

fn list(pods: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods})
}

fn pod(name: &str, role: &str, phase: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "n", "labels": {"replica-type": role},
            "ownerReferences": [{"apiVersion": "v", "kind": "DIJob", "name": "j", "uid": "u", "controller": true}],
        },
        "spec": {"containers": [{"name": "di-container", "ports": [{"name": "di-port", "containerPort": 80}]}]},
        "status": {"phase": phase},
    })
}

fn job(phase: &str) -> Job {
    Job::from(json!({
        "metadata": {"name": "j", "namespace": "n", "uid": "u"},
        "status": {"phase": phase, "plan": [
            {"name": "j-collector-aaaaa", "type": "Collector", "origin": "Declared", "index": 0},
            {"name": "j-collector-bbbbb", "type": "Collector", "origin": "Declared", "index": 1},
            {"name": "j-collector-ccccc", "type": "Collector", "origin": "Declared", "index": 2, "state": "Removing"},
            {"name": "j-collector-ddddd", "type": "Collector", "origin": "Declared", "index": 3},
            {"name": "j-collector-eeeee", "type": "Collector", "origin": "Declared", "index": 4},
        ]},
    }))
}

#[tokio::test]
async fn active_replicas_are_called_and_others_explained() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut terminating = pod("j-collector-eeeee", "collector", "Running");
    terminating["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z".into();
    let cluster = Cluster::for_test_server(&server).await;
    let pods = [
        pod("j-coordinator", "coordinator", "Running"),
        pod("j-collector-aaaaa", "collector", "Pending"),
        pod("j-collector-ccccc", "collector", "Running"),
        pod("j-collector-ddddd", "collector", "Succeeded"),
        terminating,
    ];
    let paused = json!({"success": true, "data": {"status": "paused", "samples": 3}});
    let answers = [list(&pods), paused];
    let answered = tokio::spawn(async move { serve_responses(&server, &answers).await });
    let limit = Duration::from_secs(60);
    let called = call_replicas(
        &cluster,
        &job("Running"),
        LifecycleRequest::Pause,
        DryRun::None,
        limit,
    )
    .await;
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
    assert_eq!(
        answered.await.unwrap()[1],
        "POST /api/v1/namespaces/n/pods/j-coordinator:80/proxy/lifecycle/pause HTTP/1.1"
    );
}

fn exited(mut pod: Value, code: i32, reason: &str) -> Value {
    pod["status"]["containerStatuses"] = json!([{
        "name": "di-container", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": reason}},
    }]);
    pod
}

#[tokio::test]
async fn status_lists_ended_replicas_with_result() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = Cluster::for_test_server(&server).await;
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
    let running = json!({"success": true, "data": {"status": "running", "polls": 3}});
    let answers = [list(&pods), running, list(&pods)];
    let answered = tokio::spawn(async move { serve_responses(&server, &answers).await });
    let call = async |request, dry_run| {
        let limit = Duration::from_secs(60);
        let called = call_replicas(&cluster, &job, request, dry_run, limit).await;
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
    answered.await.unwrap();
}

#[tokio::test]
async fn unresponsive_replica_times_out() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = Cluster::for_test_server(&server).await;
    let pods = [pod("j-coordinator", "coordinator", "Running")];
    let silent = tokio::spawn(async move {
        serve_responses(&server, &[list(&pods)]).await;
        // The connection is accepted and never answered.
        let (_stream, _) = server.accept().await.unwrap();
        std::future::pending::<()>().await;
    });
    let limit = Duration::from_secs(1);
    let called = call_replicas(
        &cluster,
        &job("Running"),
        LifecycleRequest::Status,
        DryRun::None,
        limit,
    )
    .await;
    let called = called.unwrap();
    assert_eq!(
        called[0].message.as_deref(),
        Some("did not answer within 1s")
    );
    silent.abort();
}

#[tokio::test]
async fn ended_or_suspended_job_is_not_called() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = Cluster::for_test_server(&server).await;
    let limit = Duration::from_secs(60);
    let ended = call_replicas(
        &cluster,
        &job("Succeeded"),
        LifecycleRequest::Start,
        DryRun::None,
        limit,
    )
    .await;
    assert_eq!(
        ended.unwrap_err().to_string(),
        "job \"j\" has ended (Succeeded)"
    );
    let answered = tokio::spawn(async move { serve_responses(&server, &[list(&[])]).await });
    let suspended = call_replicas(
        &cluster,
        &job("Suspended"),
        LifecycleRequest::Start,
        DryRun::None,
        limit,
    )
    .await;
    assert_eq!(
        suspended.unwrap_err().to_string(),
        "job \"j\" has no pods (Suspended)"
    );
    answered.await.unwrap();

    let mut suspended = job("Running");
    suspended.object["spec"]["suspend"] = true.into();
    let suspended = call_replicas(
        &cluster,
        &suspended,
        LifecycleRequest::Pause,
        DryRun::None,
        limit,
    )
    .await;
    assert_eq!(
        suspended.unwrap_err().to_string(),
        "job \"j\" is suspended and has no pods; to start it: kubectl di resume j"
    );
}

#[tokio::test]
async fn dry_run_does_not_change_replicas() {
    for (dry_run, requests) in [
        (DryRun::Client, None),
        (
            DryRun::Server,
            Some("GET /api/v1/namespaces/n/pods/j-coordinator:80/proxy/lifecycle HTTP/1.1"),
        ),
    ] {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = Cluster::for_test_server(&server).await;
        let pods = [pod("j-coordinator", "coordinator", "Running")];
        let running = json!({"success": true, "data": {"status": "running"}});
        let mut answers = vec![list(&pods)];
        answers.extend(requests.map(|_| running));
        let answered = tokio::spawn(async move { serve_responses(&server, &answers).await });
        let limit = Duration::from_secs(60);
        let called = call_replicas(
            &cluster,
            &job("Running"),
            LifecycleRequest::Pause,
            dry_run,
            limit,
        )
        .await;
        let coordinator = &called.unwrap()[0];
        assert_eq!(coordinator.message, None);
        assert_eq!(coordinator.lifecycle.is_some(), requests.is_some());
        let sent = answered.await.unwrap();
        assert_eq!(sent.get(1).map(String::as_str), requests);
    }
}
