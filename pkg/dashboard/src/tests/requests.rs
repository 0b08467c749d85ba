//! Refused requests, the session and the actions.

use axum::http::{HeaderValue, Method, header::HOST};
use serde_json::json;

use super::*;

/// Creates the job `rl/j` (UID `u`) that runs with a collector.
fn add_job(fake: &FakeCluster) {
    let job = di_fixtures::Job::test().phase("Running").collectors(1);
    fake.apply("dijobs", &job.json());
}

#[tokio::test]
async fn addresses_of_other_hosts_are_not_bound() {
    let cluster = connect(&FakeCluster::start().await).await;
    for address in ["0.0.0.0", "::", "192.0.2.1"] {
        let options = Options {
            address: address.parse().unwrap(),
            ..options()
        };
        let refused = Dashboard::bind(cluster.clone(), options).await.err();
        assert!(matches!(refused, Some(StartError::NotLoopback(_))));
    }
}

#[tokio::test]
async fn page_files_need_no_cookie_and_have_a_policy() {
    let running = Running::start(&FakeCluster::start().await).await;
    let host = format!("Host: {}\r\n", running.address);
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/app.js", "text/javascript; charset=utf-8"),
        ("/vendor/uPlot.js", "text/javascript; charset=utf-8"),
    ] {
        // A link in a page of another site may open the page.
        let headers = format!("{host}Sec-Fetch-Site: cross-site\r\n");
        let reply = running.send(&format!("GET {path}"), &headers, "").await;
        assert_eq!(reply.status, 200, "{path}");
        let head = reply.head.to_lowercase();
        let content_type = format!("content-type: {content_type}");
        for header in [
            content_type.as_str(),
            "content-security-policy: default-src 'none'; script-src 'self';",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
        ] {
            assert!(head.contains(header), "{path}: {head}");
        }
        assert!(!head.contains("access-control-"), "{head}");
    }
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused() {
    let running = Running::start(&FakeCluster::start().await).await;
    let own = running.own_headers();
    let (address, port) = (running.address, running.address.port());
    let host = format!("Host: {address}\r\n");
    let origin = format!("Origin: http://{address}\r\n");
    let refused_host = (403, "forbiddenHost".to_owned());
    let refused_origin = (403, "forbiddenOrigin".to_owned());
    let with = |from: &str, to: &str| own.replace(from, to);
    let hosts = [
        with(&host, ""),
        with(&host, "Host: 127.0.0.1\r\n"),
        with(&host, "Host: 127.0.0.1:1\r\n"),
        with(&host, &format!("Host: rebound.example:{port}\r\n")),
        with(&host, &format!("Host: 127.0.0.1:{port}.example\r\n")),
        format!("{own}Host: rebound.example\r\n"),
    ];
    for headers in hosts {
        for line in ["GET /", "GET /api/session", "POST /api/session"] {
            let reply = running.send(line, &headers, "{}").await;
            // hyper itself may refuse a request with two hosts.
            let is_refused = reply.error() == refused_host || reply.status == 400;
            assert!(is_refused, "{line} {headers}: {}", reply.body);
        }
    }
    for headers in [
        with(&origin, "Origin: null\r\n"),
        with(&origin, &format!("Origin: https://{address}\r\n")),
        with(&origin, "Origin: http://127.0.0.1:1\r\n"),
        with(&origin, &format!("Origin: http://{address}.example\r\n")),
        format!("{own}Origin: http://site.example\r\n"),
        format!("{own}Sec-Fetch-Site: same-site\r\n"),
        format!("{own}Sec-Fetch-Site: cross-site\r\n"),
    ] {
        for line in ["GET /api/session", "POST /api/session"] {
            let reply = running.send(line, &headers, "{}").await;
            assert_eq!(reply.error(), refused_origin, "{line} {headers}");
        }
    }
    let no_origin = with(&origin, "");
    let reply = running.send("POST /api/session", &no_origin, "{}").await;
    assert_eq!(reply.error(), refused_origin, "a change needs an origin");
    assert_eq!(
        running
            .send("GET /api/session", &no_origin, "")
            .await
            .status,
        200
    );
    let localhost = own.replace(&address.to_string(), &format!("localhost:{port}"));
    let reply = running.send("GET /api/session", &localhost, "").await;
    assert_eq!(reply.json()["namespace"], "rl");
}

#[tokio::test]
async fn default_port_is_not_needed_in_host() {
    let cluster = connect(&FakeCluster::start().await).await;
    let shared = Shared::new(cluster, ([127, 0, 0, 1], 80).into(), false, false);
    for host in ["127.0.0.1", "localhost:80", "[::1]"] {
        let headers = [(HOST, HeaderValue::from_static(host))]
            .into_iter()
            .collect();
        let checked = shared.check_request(&Method::GET, "/", &headers);
        assert!(checked.is_ok(), "{host}");
    }
}

#[tokio::test]
async fn token_is_exchanged_for_a_strict_cookie() {
    let running = Running::start(&FakeCluster::start().await).await;
    let Running {
        address,
        token,
        cookie,
    } = &running;
    let headers = format!(
        "Host: {address}\r\nOrigin: http://{address}\r\nContent-Type: application/json\r\n"
    );
    let body = json!({"token": token}).to_string();
    let reply = running.send("POST /api/session", &headers, &body).await;
    assert_eq!(reply.json()["readOnly"], false);
    let set_cookie = format!("set-cookie: {cookie}; Path=/; HttpOnly; SameSite=Strict");
    assert!(reply.head.contains(&set_cookie), "{}", reply.head);
    assert!(!cookie.contains(token), "a cookie is no token");
    let unauthorized = (401, "unauthorized".to_owned());
    for wrong in ["", "0", &token[1..], format!("{token}0").as_str()] {
        let body = json!({"token": wrong}).to_string();
        let reply = running.send("POST /api/session", &headers, &body).await;
        assert_eq!(reply.error(), unauthorized, "{wrong:?}");
        assert!(!reply.head.contains("set-cookie"));
    }
}

#[tokio::test]
async fn api_needs_the_cookie_and_changes_also_the_token() {
    let fake = FakeCluster::start().await;
    add_job(&fake);
    let running = Running::start(&fake).await;
    let own = running.own_headers();
    let unauthorized = (401, "unauthorized".to_owned());
    let wrong_cookie = own.replace(&running.cookie, &format!("{}0", running.cookie));
    let no_cookie = own.replace(&running.cookie, "");
    let suspend = "POST /api/jobs/rl/j/suspend";
    for headers in [&no_cookie, &wrong_cookie] {
        for line in [
            "GET /api/session",
            "GET /api/watch",
            "GET /api/jobs/rl/j/logs",
            "GET /api/unknown",
            suspend,
        ] {
            let reply = running.send(line, headers, "{\"uid\": \"u\"}").await;
            assert_eq!(reply.error(), unauthorized, "{line}");
        }
    }
    let wrong_token = own.replace(&running.token, &"0".repeat(32));
    let reply = running
        .send(suspend, &wrong_token, "{\"uid\": \"u\"}")
        .await;
    assert_eq!(reply.error(), unauthorized);
    let session = running.send("GET /api/session", &wrong_token, "").await;
    assert_eq!(session.status, 200, "a read needs no token");
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn paths_methods_and_bodies_are_checked() {
    let fake = FakeCluster::start().await;
    add_job(&fake);
    let running = Running::start(&fake).await;
    let large = format!("{{\"uid\": \"{}\"}}", "u".repeat(5000));
    let uid = "{\"uid\": \"u\"}";
    for (line, body, status, code) in [
        ("GET /../../etc/passwd", "", 404, "notFound"),
        ("GET /%2e%2e/%2e%2e/etc/passwd", "", 404, "notFound"),
        ("GET /vendor/../app.js", "", 404, "notFound"),
        (
            "GET /api/jobs/rl/..%2f..%2fpods/events",
            "",
            400,
            "badRequest",
        ),
        ("GET /api/jobs/..%2f../j/events", "", 400, "badRequest"),
        ("GET /api/jobs/rl/j%3Fx/logs", "", 400, "badRequest"),
        ("GET /api/jobs/rl/j/logs?role=master", "", 400, "badRequest"),
        ("GET /api/jobs/rl/j/logs?tail=x", "", 400, "badRequest"),
        ("GET /api/watch?namespace=a/b", "", 400, "badRequest"),
        ("GET /api/watch?job=j", "", 400, "badRequest"),
        ("GET /api/watch?job=rl/j,x=y", "", 400, "badRequest"),
        ("GET /api/jobs/rl/other/events", "", 404, "notFound"),
        ("GET /api/jobs/rl/j/suspend", "", 405, "methodNotAllowed"),
        ("POST /", "{}", 405, "methodNotAllowed"),
        ("POST /api/watch", "{}", 405, "methodNotAllowed"),
        ("PUT /api/session", "{}", 405, "methodNotAllowed"),
        ("DELETE /api/jobs/rl/j/delete", "", 405, "methodNotAllowed"),
        ("OPTIONS /api/session", "", 405, "methodNotAllowed"),
        ("POST /api/jobs/rl/j/rename", uid, 404, "notFound"),
        ("POST /api/jobs/rl/j/suspend", "{", 400, "badRequest"),
        ("POST /api/jobs/rl/j/suspend", "{}", 400, "badRequest"),
        ("POST /api/jobs/rl/j/scale", uid, 400, "badRequest"),
        (
            "POST /api/jobs/rl/j/suspend",
            large.as_str(),
            413,
            "tooLarge",
        ),
        (
            "POST /api/jobs/rl/j/suspend",
            "{\"uid\": \"old\"}",
            409,
            "conflict",
        ),
    ] {
        let reply = running.send_own(line, body).await;
        assert_eq!(
            reply.error(),
            (status, code.to_owned()),
            "{line} {body:.20}"
        );
    }
    let own = running.own_headers();
    let form = own.replace("application/json", "application/x-www-form-urlencoded");
    let reply = running.send("POST /api/session", &form, "token=x").await;
    assert_eq!(reply.error(), (415, "unsupportedType".to_owned()));
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn huge_heads_are_refused() {
    let running = Running::start(&FakeCluster::start().await).await;
    let own = running.own_headers();
    let large = format!("{own}X: {}\r\n", "y".repeat(60_000));
    let many = format!("{own}{}", "X: y\r\n".repeat(200));
    for headers in [large, many] {
        let reply = running.send("GET /api/session", &headers, "").await;
        // Data that was unread at the close may reset the connection before the response arrives.
        assert!(matches!(reply.status, 0 | 431), "{}", reply.status);
    }
    let reply = running.send_own("GET /api/session", "").await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn unfinished_head_is_closed_and_frees_its_connection() {
    let limits = Limits {
        connections: 1,
        head_timeout: Duration::from_millis(200),
        ..LIMITS
    };
    let fake = FakeCluster::start().await;
    let running = Running::start_with(&fake, options(), limits).await;
    let mut slow = TcpStream::connect(running.address).await.unwrap();
    slow.write_all(b"GET /api/session HTTP/1.1\r\nHo")
        .await
        .unwrap();
    // This request waits until the slow one releases the only connection.
    let reply = running.send_own("GET /api/session", "").await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn read_only_dashboard_has_no_actions() {
    let fake = FakeCluster::start().await;
    add_job(&fake);
    let options = Options {
        read_only: true,
        ..options()
    };
    let running = Running::start_with(&fake, options, LIMITS).await;
    for path in actions::PATHS {
        let line = format!("POST /api/jobs/rl/j/{path}");
        let reply = running.send_own(&line, "{\"uid\": \"u\"}").await;
        assert_eq!(reply.error(), (404, "notFound".to_owned()), "{path}");
    }
    let session = running.send_own("GET /api/session", "").await;
    assert_eq!(session.json()["readOnly"], true);
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn actions_change_the_job_of_the_page() {
    let fake = FakeCluster::start().await;
    add_job(&fake);
    let running = Running::start(&fake).await;
    let act = async |path: &str, body: &str| {
        let line = format!("POST /api/jobs/rl/j/{path}");
        running.send_own(&line, body).await.json()
    };
    assert_eq!(
        act("scale", "{\"uid\": \"u\", \"collectors\": 2}").await,
        json!({
            "message": "collectors 1 -> 3",
            "command": "kubectl di replicas add j --collectors 2 -n rl",
        })
    );
    let uid = "{\"uid\": \"u\"}";
    assert_eq!(act("suspend", uid).await["message"], "suspended");
    assert_eq!(act("resume", uid).await["message"], "not suspended");
    assert_eq!(act("delete", uid).await["message"], "deleted");
    let requests = fake.requests();
    let contains = |at: usize, part: &str| {
        let request: &String = &requests[at];
        assert!(request.contains(part), "{request}");
    };
    assert_eq!(requests.len(), 3);
    contains(0, "PATCH j ");
    contains(0, "\"/spec/collector/replicas\"");
    contains(1, "\"/spec/suspend\"");
    contains(2, "DELETE j ");
    contains(2, "\"uid\":\"u\"");
}
