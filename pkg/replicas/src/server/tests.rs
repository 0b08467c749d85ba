use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::{Settings, fixture::*};

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// An endpoint of these settings, on a socket of its own.
async fn served(settings: Settings) -> (Fixture, SocketAddr) {
    let fixture = fixture(settings);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(
        listener,
        fixture.state.clone(),
        std::future::pending(),
    ));
    (fixture, address)
}

/// Sends this and reads until the other side closes.
async fn send(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It may be closed before all of it is read.
    stream.write_all(request).await.ok();
    rest(&mut stream).await
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer));
    read.await.expect("the connection is closed").ok();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn slow_heads_are_cut_off_and_requests_are_served() {
    let fixture = fixture(Settings {
        header_timeout: Duration::from_millis(200),
        max_connections: 1,
        ..short_waits()
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
    let mut short_waits = tokio::net::TcpStream::connect(address).await.unwrap();
    short_waits
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    short_waits.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    stop.send(()).unwrap();
    timeout(Duration::from_secs(5), server)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let (_fixture, address) = served(Settings {
        body_timeout: Duration::from_millis(200),
        allow_anonymous: true,
        ..short_waits()
    })
    .await;
    let head = "POST /v1alpha1/replicas HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
    let answer = send(address, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("took too long"), "{answer}");
}

#[tokio::test]
async fn a_body_that_is_announced_as_too_large_is_not_waited_for() {
    let (_fixture, address) = served(Settings {
        max_body: 1000,
        body_timeout: Duration::from_secs(3600),
        ..short_waits()
    })
    .await;
    let head = "POST /v1alpha1/replicas HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n{";
    let answer = send(address, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_body_without_end_is_cut_off_at_the_limit() {
    let (_fixture, address) = served(Settings {
        max_body: 1000,
        ..short_waits()
    })
    .await;
    let mut request =
        b"POST /v1alpha1/replicas HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    for _ in 0..100 {
        request.extend(b"64\r\n");
        request.extend([b'x'; 100]);
        request.extend(b"\r\n");
    }
    let answer = send(address, &request).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("larger than 1000 bytes"), "{answer}");
}

/// hyper answers what is no HTTP by itself, and closes: these answers have no body.
#[tokio::test]
async fn heads_that_are_no_http_or_too_large_are_refused() {
    let (_fixture, address) = served(short_waits()).await;
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
        let answer = send(address, request.as_bytes()).await;
        // What was not read yet when it closed may have reset the connection.
        let refused = answer.starts_with(&format!("HTTP/1.1 {code}"));
        assert!(refused || (code == "431" && answer.is_empty()), "{answer}");
    }
    let answer = send(address, HEALTH.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn an_address_has_no_more_than_its_share_of_connections() {
    let (fixture, address) = served(Settings {
        max_connections_per_address: 2,
        header_timeout: Duration::from_secs(60),
        ..short_waits()
    })
    .await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET").await.unwrap();
        idle.push(stream);
    }
    assert_eq!(send(address, HEALTH.as_bytes()).await, "", "closed at once");
    assert_eq!(fixture.state.metrics.refused_connections.get(), 1);
    drop(idle);
    // The places come back once the server has seen that they are gone.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !send(address, HEALTH.as_bytes())
        .await
        .starts_with("HTTP/1.1 200 OK")
    {
        assert!(tokio::time::Instant::now() < deadline);
    }
}

#[tokio::test]
async fn who_reads_no_answers_loses_the_connection() {
    let (_fixture, address) = served(Settings {
        max_connections: 1,
        longest_connection: Duration::from_millis(200),
        request_timeout: Duration::from_millis(200),
        ..short_waits()
    })
    .await;
    let mut deaf = TcpStream::connect(address).await.unwrap();
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n";
    // Until neither side takes any more.
    while let Ok(sent) = timeout(Duration::from_millis(100), deaf.write_all(request)).await {
        if sent.is_err() {
            break;
        }
    }
    let answer = send(address, HEALTH.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(deaf.write_all(request).await.is_err(), "it was closed");
}
