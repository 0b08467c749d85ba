//! What the webhooks keep of reviews that are answered: nothing. In a process of its own, since memory is counted by the process.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use di_admission::{Access, Bundle, Certificates, Limits, Metrics, Settings, router, serve};
use jiff::Timestamp;
use kube::Client;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Of each kind.
const REVIEWS: usize = 1_000;
/// On one connection.
const AT_A_TIME: usize = 100;
/// Connections whose peers go in the middle of a body.
const BROKEN_OFF: usize = 300;
/// Bodies of 2 MiB.
const LARGE: usize = 4;
/// Bytes of one review: those of a kind are twice as large together as what may be added.
const PADDING: usize = 16 << 10;
const MOST: usize = 8 << 20;

type Stream = TlsStream<TcpStream>;

struct Server {
    addr: SocketAddr,
    connector: TlsConnector,
}

impl Server {
    async fn start() -> Self {
        let names = Settings::default().dns_names();
        let lifetime = Duration::from_secs(600);
        let trusted = Bundle::issue(&names, lifetime, None, Timestamp::now()).unwrap();
        let certificates = Certificates::shared();
        certificates.serve(trusted.certified_key().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let router = router(open(), Metrics::default());
        let forever = std::future::pending();
        tokio::spawn(serve(
            listener,
            router,
            certificates,
            Limits::default(),
            Metrics::default(),
            forever,
        ));
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&trusted.authorities) {
            roots.add(authority.unwrap()).unwrap();
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            addr,
            connector: TlsConnector::from(Arc::new(config)),
        }
    }

    async fn connect(&self) -> Stream {
        let name = ServerName::try_from("di-webhook.di-system.svc").unwrap();
        let stream = TcpStream::connect(self.addr).await.unwrap();
        self.connector.connect(name, stream).await.unwrap()
    }

    /// Has so many reviews answered, each of another user, as expected.
    async fn answers(&self, reviews: usize, body: impl Fn(usize) -> Vec<u8>, expected: &str) {
        let mut stream = self.connect().await;
        for i in 0..reviews {
            if i > 0 && i.is_multiple_of(AT_A_TIME) {
                stream = self.connect().await;
            }
            let answer = ask(&mut stream, &body(i)).await;
            assert!(answer.contains(expected), "{answer}");
        }
    }

    /// Sends half of a review, and goes.
    async fn breaks_off(&self) {
        let mut stream = self.connect().await;
        let request = post(&review(0, "None"));
        stream
            .write_all(&request[..request.len() / 2])
            .await
            .unwrap();
        stream.shutdown().await.unwrap();
        // Until the server is done with it, too.
        stream.read_to_end(&mut Vec::new()).await.ok();
    }

    /// A part of all kinds.
    async fn round(&self, part: usize) {
        let reviews = REVIEWS / part;
        let accepted = |i| review(i, "None");
        self.answers(reviews, accepted, r#""allowed":true"#).await;
        let refused = |i| review(i, "Never");
        self.answers(reviews, refused, r#""allowed":false"#).await;
        let malformed = |i| {
            let mut whole = review(i, "None");
            whole.truncate(whole.len() - 1);
            whole
        };
        self.answers(reviews, malformed, "malformed").await;
        let large = |_| format!("[{}1]", "1,".repeat(1 << 20)).into_bytes();
        self.answers(LARGE, large, "malformed").await;
        for _ in 0..BROKEN_OFF / part {
            self.breaks_off().await;
        }
    }
}

/// Where everybody may do everything.
fn open() -> Access {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        let granted = json!({"metadata": {}, "spec": {}, "status": {"allowed": true}});
        let body = kube::client::Body::from(granted.to_string().into_bytes());
        std::future::ready(Ok::<_, Infallible>(http::Response::new(body)))
    });
    Access::new(Client::new(service, "default"), Duration::from_secs(10))
}

fn review(user: usize, policy: &str) -> Vec<u8> {
    let container = json!({"name": "di-container", "image": "i"});
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "diengine.opendilab.org", "version": "v1alpha2", "kind": "DIJob"},
            "name": "j",
            "namespace": "rl",
            "operation": "CREATE",
            "userInfo": {"username": format!("user-{user}")},
            "object": {
                "metadata": {"name": "j", "annotations": {"padding": "x".repeat(PADDING)}},
                "spec": {
                    "cleanPodPolicy": policy,
                    "coordinator": {"template": {"spec": {"containers": [container]}}},
                },
            },
        },
    });
    review.to_string().into_bytes()
}

fn post(body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST /validate HTTP/1.1\r\nHost: w\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// The body of the answer to a review.
async fn ask(stream: &mut Stream, body: &[u8]) -> String {
    stream.write_all(&post(body)).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    loop {
        if let Some(body) = whole(&answer) {
            return body.to_owned();
        }
        let read = stream.read_buf(&mut answer).await.unwrap();
        assert!(read > 0, "{:?}", String::from_utf8_lossy(&answer));
    }
}

/// The body of an answer, once all of it has come.
fn whole(answer: &[u8]) -> Option<&str> {
    let (head, body) = std::str::from_utf8(answer).ok()?.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "))?;
    (length.parse::<usize>() == Ok(body.len())).then_some(body)
}

/// What this process has in memory, in bytes.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn nothing_is_kept_of_reviews_that_are_answered() {
    let server = Server::start().await;
    server.round(10).await;
    let before = resident();
    server.round(1).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < MOST, "{grown} bytes more");
}
