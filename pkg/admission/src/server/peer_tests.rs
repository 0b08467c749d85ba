//! Peers that behave badly, over real connections.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    tests::{open, review},
    *,
};
use crate::{Bundle, Certificates, Settings, tls};

const LIMITS: Limits = Limits {
    connections: 8,
    per_address: 64,
    peer: Duration::from_secs(30),
    age: Duration::from_secs(600),
};

struct Server {
    addr: SocketAddr,
    trusted: Bundle,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        let names = Settings::default().dns_names();
        let trusted =
            Bundle::issue(&names, Duration::from_secs(600), None, Timestamp::now()).unwrap();
        let certificates = Certificates::shared();
        certificates.serve(trusted.certified_key().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let forever = std::future::pending();
        let metrics = Metrics::default();
        tokio::spawn(serve(
            listener,
            open(),
            certificates,
            limits,
            metrics,
            forever,
        ));
        Self { addr, trusted }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        self.connect_by(&[&version::TLS12, &version::TLS13])
            .await
            .unwrap()
    }

    async fn connect_by(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&self.trusted.authorities) {
            roots.add(authority.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("di-webhook.di-system.svc").unwrap();
        let stream = TcpStream::connect(self.addr).await?;
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }

    /// The status of the answer to these bytes, and what follows it.
    async fn ask(&self, bytes: &[u8]) -> (u16, String) {
        ask(&mut self.connect().await, bytes).await
    }

    async fn serves_well(&self) {
        let body = review("None");
        let (status, answer) = self.ask(&post("/validate", body.as_bytes())).await;
        assert!(
            status == 200 && answer.contains(r#""allowed":true"#),
            "{answer}"
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
    // A server that has heard enough may close while we still write.
    stream.write_all(bytes).await.ok();
    let mut answer = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut answer));
    read.await.expect("an answer, or the end").ok();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.get(9..12).and_then(|code| code.parse().ok());
    (status.unwrap_or_default(), answer)
}

#[tokio::test]
async fn what_is_no_review_gets_a_clean_answer() {
    let server = Server::start(LIMITS).await;
    let good = review("None");
    let with = |from: &str, to: &str| {
        assert!(good.contains(from));
        good.replacen(from, to, 1)
    };
    let deep = "[".repeat(100_000);
    let huge = format!(r#"{{"padding": "{}"}}"#, "x".repeat(MAX_BODY));
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
        for (what, body, expected) in &cases {
            let (status, answer) = server.ask(&post(path, body.as_bytes())).await;
            assert_eq!(status, *expected, "{what}: {answer}");
            if *what == "v1beta1" {
                assert!(answer.contains("admission.k8s.io/v1beta1"), "{answer}");
            }
        }
    }
    let chunked = b"POST /validate HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    let lies =
        b"POST /validate HTTP/1.1\r\nHost: w\r\nContent-Length: 99999999999999999999\r\n\r\n";
    let claims = b"POST /validate HTTP/1.1\r\nHost: w\r\nConnection: close\r\nContent-Length: 999999999\r\n\r\n{";
    for (bytes, expected) in [(&chunked[..], 400), (&lies[..], 400), (&claims[..], 413)] {
        let (status, answer) = server.ask(bytes).await;
        assert_eq!(status, expected, "{answer}");
    }
    let (status, _) = server
        .ask(b"GET /validate HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
        .await;
    assert_eq!(status, 405);
    server.serves_well().await;
}

#[tokio::test]
async fn tls_1_2_and_1_3_are_spoken_and_nothing_else() {
    let server = Server::start(LIMITS).await;
    for version in [&version::TLS12, &version::TLS13] {
        let mut stream = server.connect_by(&[version]).await.unwrap();
        let (status, _) = ask(&mut stream, &post("/validate", review("None").as_bytes())).await;
        assert_eq!(status, 200);
    }
    let mut plain = TcpStream::connect(server.addr).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).await.ok();
    assert!(!answer.starts_with(b"HTTP"));
}

#[tokio::test]
async fn peers_that_fall_silent_are_given_up_and_others_get_their_turn() {
    let limits = Limits {
        peer: Duration::from_millis(500),
        ..LIMITS
    };
    let server = Server::start(limits).await;
    let began = Instant::now();
    // As many as there may be, of three kinds: no handshake, no request, half a head.
    let mut silent = Vec::new();
    let mut open = Vec::new();
    for i in 0..LIMITS.connections {
        if i % 3 == 0 {
            silent.push(TcpStream::connect(server.addr).await.unwrap());
            continue;
        }
        let mut stream = server.connect().await;
        if i % 3 == 1 {
            stream
                .write_all(b"POST /validate HTTP/1.1\r\nHo")
                .await
                .unwrap();
        }
        open.push(stream);
    }
    // The next waits until one of them is given up.
    server.serves_well().await;
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "{:?}",
        began.elapsed()
    );
    for mut stream in open {
        let mut rest = Vec::new();
        let ended = timeout(Duration::from_secs(60), stream.read_to_end(&mut rest));
        ended.await.expect("it is closed").ok();
    }
    drop(silent);
}

#[tokio::test]
async fn an_address_has_no_more_than_its_share_of_connections() {
    let limits = Limits {
        per_address: 2,
        ..LIMITS
    };
    let server = Server::start(limits).await;
    let held = [server.connect().await, server.connect().await];
    let mut further = TcpStream::connect(server.addr).await.unwrap();
    let mut nothing = Vec::new();
    let closed = timeout(Duration::from_secs(20), further.read_to_end(&mut nothing));
    closed.await.expect("closed at once").ok();
    assert!(nothing.is_empty());
    drop(held);
    // The places come back once the server has seen that they are gone.
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.connect_by(&[&version::TLS13]).await.is_err() {
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test]
async fn a_body_that_stalls_is_answered_in_time() {
    let server = Server::start(LIMITS).await;
    // The API server waits for ten at most.
    const { assert!(BODY_TIMEOUT.as_secs() < 10) };
    let (status, _) = server
        .ask(b"POST /validate HTTP/1.1\r\nHost: w\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{")
        .await;
    assert_eq!(status, 408);
}

#[tokio::test]
async fn an_old_connection_ends_and_takes_no_request_with_it() {
    let limits = Limits {
        age: Duration::from_millis(300),
        peer: Duration::from_secs(2),
        ..LIMITS
    };
    let server = Server::start(limits).await;
    let mut stream = server.connect().await;
    // Its head has come when the connection is too old.
    let body = review("None");
    let bytes = post("/validate", body.as_bytes());
    let (first, rest) = bytes.split_at(bytes.len() - 10);
    stream.write_all(first).await.unwrap();
    sleep(Duration::from_millis(600)).await;
    let (status, answer) = ask(&mut stream, rest).await;
    assert!(
        status == 200 && answer.contains(r#""allowed":true"#),
        "{answer}"
    );
    let mut idle = server.connect().await;
    let mut nothing = Vec::new();
    timeout(Duration::from_secs(60), idle.read_to_end(&mut nothing))
        .await
        .expect("it is closed")
        .ok();
}
