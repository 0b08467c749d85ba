//! Tests over real connections, without TLS.

mod tls;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::ConnectInfo,
    routing::{get, post},
};
use futures::{FutureExt, StreamExt, stream};
use http_body_util::{BodyExt, Collected};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::*;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(20);

/// A running server.
struct Running {
    address: SocketAddr,
    metrics: ConnectionMetrics,
    stop: oneshot::Sender<()>,
    /// Notified when a request of `/wait` is running.
    waiting: Arc<Notify>,
    /// Lets a request of `/wait` end.
    finish: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Running {
    /// Starts a server with these limits on a free port.
    async fn start(limits: Limits, certificates: Option<&Arc<Certificates>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server {
            name: "test",
            limits,
            tls: certificates.map(|certificates| tls_config(certificates.clone()).unwrap()),
            metrics: ConnectionMetrics::default(),
        };
        let metrics = server.metrics.clone();
        let (waiting, finish) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let (started, ended) = (waiting.clone(), finish.clone());
        let wait = get(async move || {
            started.notify_one();
            ended.notified().await;
        });
        let router = Router::new()
            .route("/", get(|| async { "ok" }))
            .route("/echo", post(|body: String| async { body }))
            .route("/large", get(|| async { "x".repeat(1 << 20) }))
            .route(
                "/client",
                get(|client: ConnectInfo<SocketAddr>| async move { client.ip().to_string() }),
            )
            .route("/wait", wait);
        let task = tokio::spawn(server.serve(listener, router, stopped.map(drop)));
        Self {
            address,
            metrics,
            stop,
            waiting,
            finish,
            task,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends these bytes and reads until the server closes the connection.
    async fn send(&self, bytes: &[u8]) -> String {
        send(&mut self.connect().await, bytes).await
    }
}

/// Sends these bytes and reads until the server closes the connection.
async fn send(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) -> String {
    // The server may close the connection before it has read everything.
    stream.write_all(bytes).await.ok();
    let mut response = Vec::new();
    let read = timeout(LONG, stream.read_to_end(&mut response));
    read.await.expect("the connection is closed").ok();
    String::from_utf8(response).unwrap()
}

fn assert_ok(response: &str) {
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let limits = Limits {
        head_timeout: SHORT,
        ..Limits::default()
    };
    let server = Running::start(limits, None).await;
    for (request, responses) in [
        ("", 0),
        ("GET / HT", 0),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1),
    ] {
        let response = server.send(request.as_bytes()).await;
        assert_eq!(response.matches("200 OK").count(), responses, "{request:?}");
    }
}

#[tokio::test]
async fn slow_request_head_times_out_and_frees_its_connection() {
    let limits = Limits {
        connections: 1,
        head_timeout: SHORT,
        ..Limits::default()
    };
    let server = Running::start(limits, None).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
    // This connection waits until the slow one releases the only permit.
    assert_ok(&server.send(GET).await);
    drop(server.stop);
    timeout(LONG, server.task).await.unwrap().unwrap();
}

/// hyper itself rejects malformed HTTP and closes the connection: these responses have no body.
#[tokio::test]
async fn malformed_or_large_request_heads_are_rejected() {
    let server = Running::start(Limits::default(), None).await;
    let large = format!(
        "GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "y".repeat(60_000)
    );
    let many = format!(
        "GET / HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "X: y\r\n".repeat(200)
    );
    for (request, code) in [
        ("rubbish\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nBad header\r\n\r\n", "400"),
        (&large, "431"),
        (&many, "431"),
    ] {
        let response = server.send(request.as_bytes()).await;
        // Data that was unread at the close may reset the connection before the response arrives.
        let is_rejected = response.starts_with(&format!("HTTP/1.1 {code}"));
        assert!(
            is_rejected || (code == "431" && response.is_empty()),
            "{response}"
        );
    }
    assert_ok(&server.send(GET).await);
}

#[tokio::test]
async fn connections_over_the_address_limit_are_closed() {
    let limits = Limits {
        per_address: 2,
        head_timeout: LONG * 3,
        ..Limits::default()
    };
    let server = Running::start(limits, None).await;
    let mut idle = [server.connect().await, server.connect().await];
    for stream in &mut idle {
        stream.write_all(b"GET").await.unwrap();
    }
    assert_eq!(server.send(GET).await, "", "closed without a response");
    assert_eq!(server.metrics.refused.get(), 1);
    assert_eq!(server.metrics.open.get(), 2);
    drop(idle);
    // The permits are released when the server notices that the connections are closed.
    let deadline = Instant::now() + LONG;
    while !server.send(GET).await.starts_with("HTTP/1.1 200 OK") {
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test]
async fn client_that_reads_no_responses_is_disconnected() {
    let limits = Limits {
        connections: 1,
        max_age: SHORT,
        close_timeout: SHORT,
        ..Limits::default()
    };
    let server = Running::start(limits, None).await;
    let mut unread = server.connect().await;
    let request = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
    // Send until the buffers of both sides are full.
    let full = Duration::from_millis(100);
    while let Ok(Ok(())) = timeout(full, unread.write_all(request)).await {}
    assert_ok(&server.send(GET).await);
    assert!(
        unread.write_all(request).await.is_err(),
        "the connection is closed"
    );
}

#[tokio::test]
async fn requests_have_the_address_of_their_client() {
    let server = Running::start(Limits::default(), None).await;
    let response = server
        .send(b"GET /client HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await;
    assert!(response.ends_with("\r\n127.0.0.1"), "{response}");
}

#[tokio::test]
async fn shutdown_waits_for_running_requests() {
    let server = Running::start(Limits::default(), None).await;
    let idle = server.connect().await;
    let mut running = server.connect().await;
    let request = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n";
    running.write_all(request).await.unwrap();
    server.waiting.notified().await;
    drop(server.stop);
    sleep(SHORT).await;
    assert!(!server.task.is_finished());
    let refused = TcpStream::connect(server.address).await;
    assert!(refused.is_err(), "the server accepts no more connections");
    server.finish.notify_one();
    assert_ok(&send(&mut running, b"").await);
    timeout(LONG, server.task).await.unwrap().unwrap();
    assert_eq!(server.metrics.open.get(), 0);
    drop(idle);
}

#[tokio::test]
async fn shutdown_ends_at_the_drain_timeout() {
    let limits = Limits {
        drain_timeout: SHORT,
        ..Limits::default()
    };
    let server = Running::start(limits, None).await;
    let mut running = server.connect().await;
    let request = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n";
    running.write_all(request).await.unwrap();
    server.waiting.notified().await;
    drop(server.stop);
    timeout(LONG, server.task).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn large_slow_or_incomplete_bodies_are_rejected() {
    let parts = |parts: Vec<Result<&'static str, &'static str>>| stream::iter(parts);
    let silent = parts(vec![Ok("12")]).chain(stream::pending());
    for (body, expected) in [
        (Body::from("12345"), Ok("12345".into())),
        (Body::from("123456"), Err(BodyError::TooLarge(5))),
        (
            Body::from_stream(parts(vec![Ok("123"), Ok("456")])),
            Err(BodyError::TooLarge(5)),
        ),
        (
            Body::from_stream(parts(vec![Ok("12"), Err("reset")])),
            Err(BodyError::Incomplete),
        ),
        (Body::from_stream(silent), Err(BodyError::Timeout)),
    ] {
        let read = read_body(body, 5, LONG, BodyExt::collect).await;
        let read: Result<Bytes, _> = read.map(Collected::to_bytes);
        assert_eq!(read, expected);
    }
}
