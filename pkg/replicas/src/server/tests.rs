use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::{Settings, fixture::*};

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// Starts an endpoint with these settings on a free port.
async fn start_server(settings: Settings) -> (Fixture, SocketAddr) {
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

/// Sends a request and reads until the server closes the connection.
async fn send(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may close the connection before it has read everything.
    stream.write_all(request).await.ok();
    read_to_end(&mut stream).await
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut response));
    read.await.expect("the connection is closed").ok();
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn slow_request_head_times_out_and_frees_its_connection() {
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
    // This connection waits until the slow one releases the only permit.
    let mut waiting = tokio::net::TcpStream::connect(address).await.unwrap();
    waiting
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut response = String::new();
    waiting.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    stop.send(()).unwrap();
    timeout(Duration::from_secs(5), server)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn incomplete_body_times_out_with_400() {
    let (_fixture, address) = start_server(Settings {
        body_timeout: Duration::from_millis(200),
        allow_anonymous: true,
        ..short_waits()
    })
    .await;
    let head = "POST /v1alpha1/replicas HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{";
    let response = send(address, head.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 400"), "{response}");
    assert!(
        response.contains("timed out waiting for the request body"),
        "{response}"
    );
}

#[tokio::test]
async fn announced_large_body_is_rejected_before_it_arrives() {
    let (_fixture, address) = start_server(Settings {
        max_body: 1000,
        body_timeout: Duration::from_secs(3600),
        ..short_waits()
    })
    .await;
    let head = "POST /v1alpha1/replicas HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n{";
    let response = send(address, head.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
}

#[tokio::test]
async fn chunked_body_is_rejected_at_the_size_limit() {
    let (_fixture, address) = start_server(Settings {
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
    let response = send(address, &request).await;
    assert!(response.starts_with("HTTP/1.1 413"), "{response}");
    assert!(response.contains("larger than 1000 bytes"), "{response}");
}

/// hyper itself rejects malformed HTTP and closes the connection: these responses have no body.
#[tokio::test]
async fn malformed_or_large_request_heads_are_rejected() {
    let (_fixture, address) = start_server(short_waits()).await;
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
        let response = send(address, request.as_bytes()).await;
        // Data that was unread at the close may reset the connection before the response arrives.
        let is_rejected = response.starts_with(&format!("HTTP/1.1 {code}"));
        assert!(
            is_rejected || (code == "431" && response.is_empty()),
            "{response}"
        );
    }
    let response = send(address, HEALTH.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
}

#[tokio::test]
async fn connections_over_the_address_limit_are_closed() {
    let (fixture, address) = start_server(Settings {
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
    assert_eq!(
        send(address, HEALTH.as_bytes()).await,
        "",
        "closed without a response"
    );
    assert_eq!(fixture.state.metrics.refused_connections.get(), 1);
    drop(idle);
    // The permits are released when the server notices that the connections are closed.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !send(address, HEALTH.as_bytes())
        .await
        .starts_with("HTTP/1.1 200 OK")
    {
        assert!(tokio::time::Instant::now() < deadline);
    }
}

#[tokio::test]
async fn client_that_reads_no_responses_is_disconnected() {
    let (_fixture, address) = start_server(Settings {
        max_connections: 1,
        max_connection_age: Duration::from_millis(200),
        request_timeout: Duration::from_millis(200),
        ..short_waits()
    })
    .await;
    let mut unread = TcpStream::connect(address).await.unwrap();
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n";
    // Send until the buffers of both sides are full.
    while let Ok(sent) = timeout(Duration::from_millis(100), unread.write_all(request)).await {
        if sent.is_err() {
            break;
        }
    }
    let response = send(address, HEALTH.as_bytes()).await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(
        unread.write_all(request).await.is_err(),
        "the connection is closed"
    );
}
