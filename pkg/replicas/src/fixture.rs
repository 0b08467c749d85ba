//! Test fixture: caches with a few jobs. The API server behind them returns these jobs and rejects
//! writes, or is unreachable.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
    http::header,
};
use di_api::Role;
use di_cache::{JobCache, JobView, PodCache, WatchedJob};
use di_fixtures::{ApiServerMock, Job, Reply};
use di_plan::{PodPhase, PodView, RestartPolicy};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    runtime::{reflector, reflector::store::Writer, watcher::Event},
};
use serde_json::{Value, json};

use crate::{Endpoint, Metrics, Settings, State};

pub(crate) const COORDINATOR: &str = "10.0.0.1";
pub(crate) const COLLECTOR: &str = "10.0.0.2";
pub(crate) const OTHER_JOB: &str = "10.0.0.3";
pub(crate) const IMPOSTOR: &str = "10.0.0.4";
/// The coordinator of a job in another namespace with the name of a job in `rl`.
pub(crate) const OTHER_NAMESPACE: &str = "10.0.0.5";
pub(crate) const UNKNOWN: &str = "10.9.9.9";

pub(crate) struct Fixture {
    pub(crate) state: State,
    /// Keeps the store of the job cache open.
    pub(crate) _writer: Writer<WatchedJob<JobView>>,
}

pub(crate) fn pod(job: &str, role: Role, name: &str, owner: &str, ip: &str) -> PodView {
    PodView {
        name: name.into(),
        namespace: "rl".into(),
        uid: format!("{name}-uid"),
        job: job.into(),
        owner: Some(owner.into()),
        role: Some(role),
        index: None,
        group: None,
        in_gang: false,
        ddp: None,
        unit: None,
        phase: PodPhase::Running,
        end: None,
        ready: true,
        restarts: 0,
        restart_policy: RestartPolicy::Never,
        deadline_requested: false,
        scheduled: Ok(true),
        scheduled_at: None,
        waiting: None,
        crash_loop: None,
        deleting: false,
        finalizers: None,
        disrupted: false,
        exceeded_disk_limit: false,
        node: None,
        memory: None,
        ips: Some([ip.parse().unwrap()].into()),
        port: role.default_port(),
        created: None,
        started: None,
    }
}

pub(crate) fn job(name: &str, status: &Value) -> Value {
    let container = |fields: Value| json!({"template": {"spec": {"containers": [fields]}}});
    Job::test()
        .named(name)
        .metadata(json!({"uid": format!("{name}-uid"), "resourceVersion": "5"}))
        .spec(json!({
            "collector": container(json!({"name": "di-container", "ports": [{"name": "di-port", "containerPort": 4000}]})),
            "learner": container(json!({"name": "di-container", "resources": {"limits": {"nvidia.com/gpu": "2"}}})),
        }))
        .status(status.clone())
        .json()
}

pub(crate) fn fixture(settings: Settings) -> Fixture {
    let (jobs, pods) = default_objects();
    fixture_with(settings, jobs, pods)
}

/// Returns the same fixture with an unreachable API server.
pub(crate) fn without_api_server(settings: Settings) -> Fixture {
    let (jobs, pods) = default_objects();
    let client = Client::try_from(Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
    fixture_with_client(settings, client, jobs, pods)
}

fn default_objects() -> (Vec<Value>, Vec<PodView>) {
    let plan = json!([
        {"name": "a-collector-run", "type": "Collector", "origin": "Requested", "index": 0},
        {"name": "a-collector-new", "type": "Collector", "origin": "Requested", "index": 1},
        {"name": "a-collector-bad", "type": "Collector", "origin": "Requested", "index": 2},
        {"name": "a-collector-old", "type": "Collector", "origin": "Requested", "index": 3, "state": "Removing"},
        {"name": "a-learner-new", "type": "Learner", "origin": "Declared", "index": 0},
    ]);
    let ended_plan =
        json!([{"name": "o-collector-x", "type": "Collector", "origin": "Requested", "index": 0}]);
    let mut other_namespace_job = job("a", &json!({"phase": "Running"}));
    other_namespace_job["metadata"]["namespace"] = "lab".into();
    other_namespace_job["metadata"]["uid"] = "lab-uid".into();
    let jobs = vec![
        job("a", &json!({"phase": "Running", "plan": plan})),
        job("b", &json!({})),
        job("over", &json!({"phase": "Succeeded", "plan": ended_plan})),
        other_namespace_job,
    ];
    let mut other_namespace = pod(
        "a",
        Role::Coordinator,
        "a-coordinator",
        "lab-uid",
        OTHER_NAMESPACE,
    );
    (other_namespace.namespace, other_namespace.uid) = ("lab".into(), "of-lab-uid".into());
    let mut stuck = pod("a", Role::Collector, "a-collector-bad", "a-uid", "10.0.0.8");
    stuck.scheduled = Err("0/3 nodes are available".into());
    let pods = vec![
        pod(
            "a",
            Role::Coordinator,
            "a-coordinator",
            "a-uid",
            COORDINATOR,
        ),
        pod("a", Role::Collector, "a-collector-run", "a-uid", COLLECTOR),
        pod("b", Role::Coordinator, "b-coordinator", "b-uid", OTHER_JOB),
        pod("a", Role::Collector, "a-fake", "another-uid", IMPOSTOR),
        stuck,
        other_namespace,
    ];
    (jobs, pods)
}

pub(crate) fn fixture_with(
    settings: Settings,
    jobs: impl IntoIterator<Item = Value>,
    pods: impl IntoIterator<Item = PodView>,
) -> Fixture {
    let jobs: Vec<_> = jobs.into_iter().collect();
    fixture_with_client(settings, read_only_client(jobs.clone()), jobs, pods)
}

/// Returns a client of an API server that has only these jobs and rejects writes.
pub(crate) fn read_only_client(jobs: Vec<Value>) -> Client {
    ApiServerMock::client(move |request| {
        let is_requested = |job: &&Value| {
            let [namespace, name] =
                ["namespace", "name"].map(|field| job["metadata"][field].as_str().unwrap());
            let path = format!("/namespaces/{namespace}/dijobs/{name}");
            request.method == "GET" && request.path.ends_with(&path)
        };
        match jobs.iter().find(is_requested) {
            Some(job) => Reply::Object(200, job.clone()),
            None => Reply::error(503, ""),
        }
    })
}

/// Returns a fixture with one job. Its API server has this job and applies writes of its status.
pub(crate) fn writable_fixture(
    settings: Settings,
    job: Value,
    pods: impl IntoIterator<Item = PodView>,
) -> Fixture {
    let mut stored = job.clone();
    let mut writes = 0;
    let client = ApiServerMock::client(move |request| {
        if request.method == "PATCH" {
            let patch: json_patch::Patch = serde_json::from_value(request.body.clone()).unwrap();
            json_patch::patch(&mut stored, &patch).unwrap();
            writes += 1;
            stored["metadata"]["resourceVersion"] = (100 + writes).to_string().into();
        }
        Reply::Object(200, stored.clone())
    });
    fixture_with_client(settings, client, vec![job], pods)
}

pub(crate) fn fixture_with_client(
    settings: Settings,
    client: Client,
    jobs: Vec<Value>,
    pods: impl IntoIterator<Item = PodView>,
) -> Fixture {
    let (reader, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    for job in jobs {
        let job: WatchedJob<JobView> = serde_json::from_value(job).unwrap();
        writer.apply_watcher_event(&Event::InitApply(job));
    }
    writer.apply_watcher_event(&Event::InitDone);
    let state = State::new(
        client,
        Arc::new(JobCache::new(reader)),
        Arc::new(PodCache::with_objects(pods)),
        settings,
        Metrics::default(),
    );
    Fixture {
        state,
        _writer: writer,
    }
}

pub(crate) fn short_waits() -> Settings {
    Settings {
        kubelet_wait: Duration::from_millis(50),
        sync_wait: Duration::from_millis(50),
        ..Settings::default()
    }
}

pub(crate) struct TestResponse {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) retry_after: bool,
}

pub(crate) async fn send_request(
    fixture: &Fixture,
    from: &str,
    method: &str,
    path: &str,
    body: &str,
) -> TestResponse {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Body::from(body.to_owned())).unwrap();
    send(fixture, from, request).await
}

pub(crate) async fn send(fixture: &Fixture, from: &str, mut request: Request) -> TestResponse {
    let peer = SocketAddr::new(from.parse().unwrap(), 40000);
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = Endpoint::new(fixture.state.clone())
        .handle_request(request)
        .await;
    let code = response.status().as_u16();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    let retry_after = response.headers().contains_key(header::RETRY_AFTER);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let keys: Vec<_> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert_eq!(body["success"], body["code"] == 0);
    assert!(!body["message"].as_str().unwrap().contains(['\'', '"']));
    TestResponse {
        code,
        body,
        retry_after,
    }
}
