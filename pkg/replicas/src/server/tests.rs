use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

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
    let mut response = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut response));
    read.await.expect("the connection is closed").ok();
    String::from_utf8(response).unwrap()
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
    let metrics = &fixture.state.metrics.connections;
    assert_eq!((metrics.open.get(), metrics.refused.get()), (2, 1));
}
