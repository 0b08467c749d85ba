use http::StatusCode;
use kube::core::Status;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;

fn judged(status: u16, body: &str) -> String {
    let status = StatusCode::from_u16(status).unwrap();
    match judge(status, body.as_bytes(), 22270) {
        Ok(CallResult::LifecycleStatus(life)) => format!("{} {}", life.status, life.samples),
        Ok(CallResult::Silent(why) | CallResult::Unreached(why)) => why,
        Ok(CallResult::Nothing) => unreachable!("every answer tells something"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn answers_are_told_apart() {
    let life = json!({"status": "paused", "running": false, "samples": 7, "stats": {"loss": 0.5}});
    let done = json!({"success": true, "code": 0, "message": "", "data": life}).to_string();
    assert_eq!(judged(200, &done), "paused 7");
    let refused = json!({"success": false, "code": 1, "message": "it is new", "data": life});
    assert_eq!(judged(409, &refused.to_string()), "refused: it is new");
    let other = json!({"success": false, "code": 1, "message": "no such path", "data": null});
    for (status, body, told) in [
        (404, "", "404 Not Found"),
        (404, "404 page not found", "404 Not Found"),
        (405, "", "405 Method Not Allowed"),
        (200, "<html>", "200 OK"),
        (404, &other.to_string(), "404 Not Found"),
        (503, r#"{"error": "busy"}"#, "503 Service Unavailable"),
    ] {
        let told = format!("has no life-cycle handles (it answers {told})");
        assert_eq!(judged(status, body), told, "{body}");
    }
}

#[test]
fn the_api_servers_own_words_are_known() {
    let said = |code: u16, reason: &str, message: &str| {
        let status = Status::failure(message, reason).with_code(code);
        judged(code, &json!(status).to_string())
    };
    let refused = "error trying to reach service: dial tcp 10.1.2.3:22270: connect: refused";
    let told = format!("does not answer on port 22270: {refused}");
    assert_eq!(said(503, "ServiceUnavailable", refused), told);
    assert_eq!(judged(503, &format!("{refused}\n")), told);
    assert_eq!(said(404, "NotFound", "pods \"x\" not found"), "is gone");
    let forbidden = "pods \"x\" is forbidden: User \"u\" cannot get resource \"pods/proxy\"";
    assert_eq!(
        said(403, "Forbidden", forbidden),
        format!("Error from server (Forbidden): {forbidden}")
    );
}

#[test]
fn what_has_just_started_may_not_listen_yet() {
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
        assert_eq!(is_new(&serde_json::from_value(pod).unwrap(), now), wanted);
    }
}

/// A server that answers one request after another, and tells what was asked for.
async fn served(server: &TcpListener, answers: &[Value]) -> Vec<String> {
    let mut asked = Vec::new();
    for answer in answers {
        let (mut stream, _) = server.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        asked.push(request.lines().next().unwrap().to_owned());
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
        let answer = answer.to_string();
        let length = answer.len();
        let whole = format!("{head}\r\ncontent-length: {length}\r\n\r\n{answer}");
        stream.write_all(whole.as_bytes()).await.unwrap();
    }
    asked
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
async fn every_replica_that_is_wanted_is_called() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut going = pod("j-collector-eeeee", "collector", "Running");
    going["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z".into();
    let cluster = Cluster::for_test_server(&server).await;
    let pods = [
        pod("j-coordinator", "coordinator", "Running"),
        pod("j-collector-aaaaa", "collector", "Pending"),
        pod("j-collector-ccccc", "collector", "Running"),
        pod("j-collector-ddddd", "collector", "Succeeded"),
        going,
    ];
    let paused = json!({"success": true, "data": {"status": "paused", "samples": 3}});
    let answers = [list(&pods), paused];
    let answered = tokio::spawn(async move { served(&server, &answers).await });
    let limit = Duration::from_secs(60);
    let called = call_replicas(
        &cluster,
        &job("Running"),
        LifecycleRequest::Pause,
        DryRun::None,
        limit,
    )
    .await;
    let told: Vec<_> = called
        .unwrap()
        .into_iter()
        .map(|one| {
            let status = one.life.map(|life| life.status);
            (one.name, status.or(one.message).unwrap())
        })
        .collect();
    let pair = |name: &str, told: &str| (name.to_owned(), told.to_owned());
    assert_eq!(
        told,
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
async fn who_looks_is_told_how_those_that_have_ended_did() {
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
    let answered = tokio::spawn(async move { served(&server, &answers).await });
    let call = async |handle, dry_run| {
        let limit = Duration::from_secs(60);
        let called = call_replicas(&cluster, &job, handle, dry_run, limit).await;
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
        "what is done has nothing left to be told"
    );
    answered.await.unwrap();
}

#[tokio::test]
async fn one_that_does_not_answer_holds_up_no_other_for_ever() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = Cluster::for_test_server(&server).await;
    let pods = [pod("j-coordinator", "coordinator", "Running")];
    let silent = tokio::spawn(async move {
        served(&server, &[list(&pods)]).await;
        // Taken, and never answered.
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
async fn a_job_that_has_nothing_to_be_called_says_so() {
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
    let answered = tokio::spawn(async move { served(&server, &[list(&[])]).await });
    let held = call_replicas(
        &cluster,
        &job("Suspended"),
        LifecycleRequest::Start,
        DryRun::None,
        limit,
    )
    .await;
    assert_eq!(
        held.unwrap_err().to_string(),
        "job \"j\" has no pods (Suspended)"
    );
    answered.await.unwrap();

    let mut held = job("Running");
    held.object["spec"]["suspend"] = true.into();
    let held = call_replicas(&cluster, &held, LifecycleRequest::Pause, DryRun::None, limit).await;
    assert_eq!(
        held.unwrap_err().to_string(),
        "job \"j\" is suspended, which frees its pods: see resume"
    );
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    for (dry_run, asked) in [
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
        answers.extend(asked.map(|_| running));
        let answered = tokio::spawn(async move { served(&server, &answers).await });
        let limit = Duration::from_secs(60);
        let called = call_replicas(&cluster, &job("Running"), LifecycleRequest::Pause, dry_run, limit).await;
        let coordinator = &called.unwrap()[0];
        assert_eq!(coordinator.message, None);
        assert_eq!(coordinator.life.is_some(), asked.is_some());
        let sent = answered.await.unwrap();
        assert_eq!(sent.get(1).map(String::as_str), asked);
    }
}
