//! Tests of misbehaving peers over real connections.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use di_serve::crypto_provider;
use jiff::Timestamp;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    tests::{open_router, review_with_policy},
    *,
};
use crate::{Certificates, ServingCert, Settings};

struct Server {
    addr: SocketAddr,
    trusted: ServingCert,
}

impl Server {
    async fn start() -> Self {
        let names = Settings::default().dns_names();
        let trusted =
            ServingCert::issue(&names, Duration::from_secs(600), None, Timestamp::now()).unwrap();
        let certificates = Certificates::new_shared();
        certificates.set_certificate(trusted.certified_key().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let forever = std::future::pending();
        let metrics = Metrics::default();
        tokio::spawn(serve(
            listener,
            open_router(),
            certificates,
            Limits::default(),
            metrics,
            forever,
        ));
        Self { addr, trusted }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&self.trusted.ca) {
            roots.add(authority.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(crypto_provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("di-webhook.di-system.svc").unwrap();
        let stream = TcpStream::connect(self.addr).await.unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await.unwrap()
    }

    /// Sends these bytes; returns the status and the whole response.
    async fn ask(&self, bytes: &[u8]) -> (u16, String) {
        ask(&mut self.connect().await, bytes).await
    }

    async fn assert_serving(&self) {
        let body = review_with_policy("None");
        let (status, response) = self.ask(&post("/validate", body.as_bytes())).await;
        assert!(
            status == 200 && response.contains(r#""allowed":true"#),
            "{response}"
        );
    }
}

fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: w\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

async fn ask(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) -> (u16, String) {
    // The server may close the connection before all bytes are written.
    stream.write_all(bytes).await.ok();
    let mut response = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut response));
    read.await.expect("a response or the end").ok();
    let response = String::from_utf8_lossy(&response).into_owned();
    let status = response.get(9..12).and_then(|code| code.parse().ok());
    (status.unwrap_or_default(), response)
}

#[tokio::test]
async fn invalid_request_gets_error_response() {
    let server = Server::start().await;
    let good = review_with_policy("None");
    let with = |from: &str, to: &str| {
        assert!(good.contains(from));
        good.replacen(from, to, 1)
    };
    let deep = "[".repeat(100_000);
    let huge = format!(r#"{{"padding": "{}"}}"#, "x".repeat(MAX_BODY_BYTES));
    let cases = [
        ("empty", String::new(), 400),
        ("cut off", good[..good.len() / 2].to_owned(), 400),
        ("not JSON", "\u{0}\u{1}\u{2}".to_owned(), 400),
        ("deeply nested", deep, 400),
        ("huge", huge, 413),
        (
            "no request",
            r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#.to_owned(),
            400,
        ),
        ("another kind", with("AdmissionReview", "TokenReview"), 400),
        (
            "another version",
            with("admission.k8s.io/v1", "admission.k8s.io/v2"),
            400,
        ),
        ("an unknown operation", with("CREATE", "SPLIT"), 400),
        (
            "a null object",
            with(r#""object": {"#, r#""object": null, "x": {"#),
            400,
        ),
        (
            "a wrong object",
            with(r#""object": {"#, r#""object": [], "x": {"#),
            400,
        ),
        ("a deletion", with("CREATE", "DELETE"), 200),
        ("a connection", with("CREATE", "CONNECT"), 200),
        (
            "v1beta1",
            with("admission.k8s.io/v1", "admission.k8s.io/v1beta1"),
            200,
        ),
        (
            "dry-run",
            with(r#""uid": "1","#, r#""uid": "1", "dryRun": true,"#),
            200,
        ),
    ];
    for path in ["/validate", "/mutate"] {
        for (case, body, expected) in &cases {
            let (status, response) = server.ask(&post(path, body.as_bytes())).await;
            assert_eq!(status, *expected, "{case}: {response}");
            if *case == "v1beta1" {
                assert!(response.contains("admission.k8s.io/v1beta1"), "{response}");
            }
        }
    }
    let chunked = b"POST /validate HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    let lies =
        b"POST /validate HTTP/1.1\r\nHost: w\r\nContent-Length: 99999999999999999999\r\n\r\n";
    let claims = b"POST /validate HTTP/1.1\r\nHost: w\r\nConnection: close\r\nContent-Length: 999999999\r\n\r\n{";
    for (bytes, expected) in [(&chunked[..], 400), (&lies[..], 400), (&claims[..], 413)] {
        let (status, response) = server.ask(bytes).await;
        assert_eq!(status, expected, "{response}");
    }
    let (status, _) = server
        .ask(b"GET /validate HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
        .await;
    assert_eq!(status, 405);
    server.assert_serving().await;
}

#[tokio::test]
async fn stalled_body_gets_timeout_response() {
    let server = Server::start().await;
    // The API server waits for 10 s at most.
    const { assert!(BODY_TIMEOUT.as_secs() < 10) };
    let (status, _) = server
        .ask(b"POST /validate HTTP/1.1\r\nHost: w\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{")
        .await;
    assert_eq!(status, 408);
}
