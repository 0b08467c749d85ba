use std::net::SocketAddr;

use axum::body::Body;
use di_api::Role;
use di_cache::{JobCache, PodCache, WatchedJob};
use di_plan::{PodPhase, PodView};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    core::DeserializeGuard,
    runtime::{reflector, reflector::store::Writer, watcher::Event},
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use super::*;
use crate::Settings;

const COORDINATOR: &str = "10.0.0.1";
const COLLECTOR: &str = "10.0.0.2";
const OTHER_JOB: &str = "10.0.0.3";
const IMPOSTOR: &str = "10.0.0.4";
const STRANGER: &str = "10.9.9.9";

struct Fixture {
    state: State,
    /// The store ends with it.
    _writer: Writer<WatchedJob>,
}

fn pod(job: &str, role: Role, name: &str, owner: &str, ip: &str) -> PodView {
    PodView {
        name: name.into(),
        namespace: "rl".into(),
        uid: format!("{name}-uid"),
        job: job.into(),
        owner: Some(owner.into()),
        role: Some(role),
        phase: PodPhase::Running,
        end: None,
        ready: true,
        restarts: 0,
        scheduled: Ok(true),
        waiting: None,
        deleting: false,
        disrupted: false,
        node: None,
        ips: vec![ip.parse().unwrap()],
        port: role.default_port(),
        created: None,
        started: None,
    }
}

fn job(name: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
        "metadata": {"name": name, "namespace": "rl", "uid": format!("{name}-uid"), "resourceVersion": "5"},
        "spec": {
            "coordinator": {"template": {}},
            "collector": {"template": {"spec": {"containers": [{
                "name": "di-container", "ports": [{"name": "di-port", "containerPort": 4000}],
            }]}}},
            "learner": {"template": {"spec": {"containers": [{
                "name": "di-container", "resources": {"limits": {"nvidia.com/gpu": "2"}},
            }]}}},
        },
        "status": status,
    })
}

fn fixture(settings: Settings) -> Fixture {
    let (reader, mut writer) = reflector::store();
    writer.apply_watcher_event(&Event::Init);
    let plan = json!([
        {"name": "a-collector-run", "type": "Collector", "origin": "Requested", "index": 0},
        {"name": "a-collector-new", "type": "Collector", "origin": "Requested", "index": 1},
        {"name": "a-collector-bad", "type": "Collector", "origin": "Requested", "index": 2},
        {"name": "a-collector-old", "type": "Collector", "origin": "Requested", "index": 3, "state": "Removing"},
        {"name": "a-learner-new", "type": "Learner", "origin": "Declared", "index": 0},
    ]);
    let over =
        json!([{"name": "o-collector-x", "type": "Collector", "origin": "Requested", "index": 0}]);
    for job in [
        job("a", &json!({"phase": "Running", "plan": plan})),
        job("b", &json!({})),
        job("over", &json!({"phase": "Succeeded", "plan": over})),
    ] {
        let job: WatchedJob = serde_json::from_value::<DeserializeGuard<_>>(job).unwrap();
        writer.apply_watcher_event(&Event::InitApply(job));
    }
    writer.apply_watcher_event(&Event::InitDone);
    let mut stuck = pod("a", Role::Collector, "a-collector-bad", "a-uid", "10.0.0.8");
    stuck.scheduled = Err("0/3 nodes are available".into());
    let pods = PodCache::holding([
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
    ]);
    // No API server listens there.
    let client = Client::try_from(Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
    let state = State::new(
        client,
        Arc::new(JobCache::new(reader)),
        Arc::new(pods),
        settings,
        Registry::default(),
    );
    Fixture {
        state,
        _writer: writer,
    }
}

fn quick() -> Settings {
    Settings {
        address_wait: Duration::from_millis(50),
        sync_wait: Duration::from_millis(50),
        ..Settings::default()
    }
}

struct Answer {
    code: u16,
    body: Value,
    retry_after: bool,
}

async fn ask(fixture: &Fixture, from: &str, method: &str, path: &str, body: &str) -> Answer {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .body(Body::from(body.to_owned()))
        .unwrap();
    let peer = SocketAddr::new(from.parse().unwrap(), 40000);
    request.extensions_mut().insert(ConnectInfo(peer));
    let response = router(fixture.state.clone())
        .oneshot(request)
        .await
        .unwrap();
    let code = response.status().as_u16();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    let retry_after = response.headers().contains_key(header::RETRY_AFTER);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let keys: Vec<_> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert_eq!(body["success"], body["code"] == 0);
    assert!(!body["message"].as_str().unwrap().contains(['\'', '"']));
    Answer {
        code,
        body,
        retry_after,
    }
}

#[tokio::test]
async fn a_coordinator_sees_the_replicas_that_it_may_use() {
    let fixture = fixture(quick());
    for version in VERSIONS {
        let path = format!("{version}/replicas?Namespace=rl&COORDINATOR=a-coordinator");
        let answer = ask(&fixture, COORDINATOR, "GET", &path, "{}").await;
        assert_eq!(answer.code, 200);
        assert_eq!(
            answer.body["data"],
            json!({
                "namespace": "rl", "coordinator": "a-coordinator",
                "collectors": ["a-collector-run.rl:22270", "a-collector-new.rl:4000"],
                "learners": ["a-learner-new.rl:22271"],
            })
        );
    }
}

#[tokio::test]
async fn lists_hold_one_record_for_each_job_that_runs() {
    let fixture = fixture(quick());
    let empty = json!({
        "namespace": "rl", "coordinator": "b-coordinator", "collectors": [], "learners": [],
    });
    for path in ["/v1alpha1/replicas", "/v1alpha1/replicas?namespace=rl"] {
        let answer = ask(&fixture, COORDINATOR, "GET", path, "").await;
        let all = answer.body["data"].as_array().unwrap();
        assert_eq!(all.len(), 2, "{path}");
        assert_eq!(all[0]["coordinator"], "a-coordinator");
        assert_eq!(all[1], empty);
    }
    let path = "/v1alpha1/replicas?namespace=rl&coordinator=over-coordinator";
    let answer = ask(&fixture, COORDINATOR, "GET", path, "").await;
    assert_eq!(answer.body["data"]["collectors"], json!([]));
}

#[tokio::test]
async fn one_replica_is_found_by_its_name() {
    let fixture = fixture(quick());
    for (name, code, collectors) in [
        ("a-collector-run", 200, json!(["a-collector-run.rl:22270"])),
        ("a-collector-bad", 200, json!([])),
        ("a-collector-old", 404, Value::Null),
        ("nobody", 404, Value::Null),
    ] {
        let path = format!("/v1alpha1/replicas?namespace=rl&name={name}");
        let answer = ask(&fixture, COORDINATOR, "GET", &path, "").await;
        assert_eq!(answer.code, code, "{name}");
        assert_eq!(answer.body["data"]["collectors"], collectors, "{name}");
    }
}

#[tokio::test]
#[allow(clippy::too_many_lines)] // one table
async fn requests_at_fault_are_refused_alike_in_both_versions() {
    let fixture = fixture(quick());
    let add = |learners: usize, collectors: usize| {
        json!({
            "namespace": "rl", "coordinator": "a-coordinator",
            "collectors": {"replicas": collectors}, "learners": {"replicas": learners},
        })
        .to_string()
    };
    let of = |coordinator: &str| {
        json!({"namespace": "rl", "coordinator": coordinator, "collectors": {"replicas": 1}})
            .to_string()
    };
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(BODY_LIMIT));
    for version in VERSIONS {
        for (from, method, path, body, code, message) in [
            (
                COORDINATOR,
                "GET",
                "/replicas?job=a",
                "",
                400,
                "unknown query key job",
            ),
            (
                COORDINATOR,
                "POST",
                "/replicas",
                "{",
                400,
                "the body is no JSON",
            ),
            (
                COORDINATOR,
                "POST",
                "/replicas",
                &*large,
                413,
                "larger than 64 KiB",
            ),
            (
                COORDINATOR,
                "PUT",
                "/replicas",
                "",
                501,
                "does not know this method",
            ),
            (
                COORDINATOR,
                "GET",
                "/replicas/failed",
                "",
                501,
                "does not know this method",
            ),
            (COORDINATOR, "GET", "/nothing", "", 404, "no such path"),
            (
                COORDINATOR,
                "POST",
                "/replicas",
                &*add(0, 1001),
                400,
                "between 0 and 1000",
            ),
            (
                COORDINATOR,
                "POST",
                "/replicas",
                &*add(1, 1),
                400,
                "more than one GPU",
            ),
            (
                COORDINATOR,
                "POST",
                "/replicas",
                &*of("b-coordinator"),
                403,
                "its own job only",
            ),
            (
                COORDINATOR,
                "DELETE",
                "/replicas",
                &*of("b-coordinator"),
                403,
                "its own job only",
            ),
            (
                COORDINATOR,
                "GET",
                "/replicas?namespace=kube-system",
                "",
                403,
                "its own namespace",
            ),
            (
                COORDINATOR,
                "GET",
                "/replicas?namespace=rl&aggregator=x",
                "",
                404,
                "no aggregator x",
            ),
            (
                COORDINATOR,
                "GET",
                "/replicas?namespace=rl&coordinator=x",
                "",
                404,
                "no coordinator x",
            ),
            (
                IMPOSTOR,
                "GET",
                "/replicas?namespace=rl",
                "",
                403,
                "does not belong to the present DIJob a",
            ),
            (
                STRANGER,
                "GET",
                "/replicas?namespace=rl",
                "",
                401,
                "bearer token",
            ),
            (
                STRANGER,
                "POST",
                "/replicas",
                &*add(0, 1),
                401,
                "bearer token",
            ),
        ] {
            let path = format!("{version}{path}");
            let answer = ask(&fixture, from, method, &path, body).await;
            let said = answer.body["message"].as_str().unwrap();
            assert_eq!(answer.code, code, "{method} {path}: {said}");
            assert!(said.contains(message), "{method} {path}: {said}");
            assert_eq!(answer.body["success"], false);
        }
    }
}

#[tokio::test]
async fn ended_jobs_get_no_more_replicas() {
    let fixture = fixture(Settings {
        allow_anonymous: true,
        ..quick()
    });
    let body = json!({"namespace": "rl", "coordinator": "over-coordinator", "collectors": {"replicas": 1}});
    let answer = ask(
        &fixture,
        STRANGER,
        "POST",
        "/v1alpha1/replicas",
        &body.to_string(),
    )
    .await;
    assert_eq!(
        (answer.code, &answer.body["message"]),
        (409, &json!("DIJob over has ended"))
    );
}

#[tokio::test]
async fn what_changes_nothing_needs_no_api_server() {
    let fixture = fixture(quick());
    let body = json!({
        "namespace": "rl", "coordinator": "a-coordinator",
        "collectors": ["nobody", "a-collector-old", "b-collector-x.other:1"], "learners": [],
    })
    .to_string();
    let answer = ask(
        &fixture,
        COLLECTOR,
        "POST",
        "/v1alpha1/replicas/failed",
        &body,
    )
    .await;
    let nothing = json!({
        "namespace": "rl", "coordinator": "a-coordinator", "collectors": [], "learners": [],
    });
    assert_eq!((answer.code, &answer.body["data"]), (200, &nothing));
    let body = json!({"namespace": "rl", "coordinator": "a-coordinator"}).to_string();
    for method in ["POST", "DELETE"] {
        let answer = ask(&fixture, COORDINATOR, method, "/v1alpha1/replicas", &body).await;
        assert_eq!((answer.code, &answer.body["data"]), (200, &nothing));
    }
}

#[tokio::test]
async fn faults_that_pass_are_told_as_each_version_expects() {
    let fixture = fixture(Settings {
        allow_anonymous: true,
        ..quick()
    });
    for (version, code, retry_after) in [("v1alpha1", 200, false), ("v1alpha2", 503, true)] {
        // Only the API server could tell whether this job is there, and it is away.
        let path = format!("/{version}/replicas?namespace=rl&coordinator=fresh-coordinator");
        let answer = ask(&fixture, STRANGER, "GET", &path, "").await;
        assert_eq!((answer.code, answer.retry_after), (code, retry_after));
        assert_eq!(answer.body["success"], false);
    }
}

#[tokio::test]
async fn before_the_caches_are_complete_nothing_is_ready() {
    let (reader, writer) = reflector::store();
    let client = Client::try_from(Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
    let state = State::new(
        client,
        Arc::new(JobCache::new(reader)),
        Arc::new(PodCache::default()),
        quick(),
        Registry::default(),
    );
    let fixture = Fixture {
        state,
        _writer: writer,
    };
    assert_eq!(
        ask(&fixture, STRANGER, "GET", "/readyz", "").await.code,
        503
    );
    assert_eq!(
        ask(&fixture, STRANGER, "GET", "/healthz", "").await.code,
        200
    );
    let path = "/v1alpha1/replicas?namespace=rl&coordinator=a-coordinator";
    let answer = ask(&fixture, COORDINATOR, "GET", path, "").await;
    assert_eq!((answer.code, &answer.body["success"]), (200, &json!(false)));
}

#[tokio::test]
async fn a_pod_that_has_just_got_its_address_is_waited_for() {
    let fixture = fixture(Settings {
        address_wait: Duration::from_secs(20),
        ..quick()
    });
    let later = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let new = pod("b", Role::Collector, "b-collector-x", "b-uid", "10.0.0.77");
        fixture.state.pods.created(new);
    };
    let path = "/v1alpha1/replicas?namespace=rl&coordinator=b-coordinator";
    // As a dual-stack socket shows it.
    let asked = ask(&fixture, "::ffff:10.0.0.77", "GET", path, "");
    let (answer, ()) = tokio::join!(asked, later);
    assert_eq!(answer.code, 200);
}

#[tokio::test]
async fn metrics_count_requests_by_route_and_code() {
    let fixture = fixture(quick());
    ask(
        &fixture,
        COORDINATOR,
        "GET",
        "/v1alpha1/replicas?namespace=rl",
        "",
    )
    .await;
    ask(&fixture, COORDINATOR, "GET", "/some/name/of/the/caller", "").await;
    let request = Request::builder()
        .uri("/metrics")
        .body(Body::empty())
        .unwrap();
    let response = router(fixture.state.clone())
        .oneshot(request)
        .await
        .unwrap();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    for line in [
        "di_replicas_requests_total{route=\"/v1alpha1/replicas\",method=\"GET\",code=\"200\"} 1",
        "di_replicas_requests_total{route=\"other\",method=\"GET\",code=\"404\"} 1",
        "di_replicas_status_conflicts_total 0",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[tokio::test]
async fn slow_heads_are_cut_off_and_requests_are_served() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let fixture = fixture(Settings {
        header_timeout: Duration::from_millis(200),
        max_connections: 1,
        ..quick()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, fixture.state.clone(), async {
        stopped.await.ok();
    }));
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHo")
        .await
        .unwrap();
    // Waits for the only connection that is allowed.
    let mut quick = tokio::net::TcpStream::connect(address).await.unwrap();
    quick
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    quick.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    stop.send(()).unwrap();
    timeout(Duration::from_secs(5), server)
        .await
        .unwrap()
        .unwrap();
}
