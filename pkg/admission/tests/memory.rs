//! Checks that handled reviews leak no memory. A separate process, because memory is measured per
//! process.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use di_admission::{Access, Certificates, Limits, Metrics, ServingCert, Settings, router, serve};
use di_fixtures::Job;
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

/// Number of reviews of each kind.
const REVIEWS: usize = 1_000;
/// Number of reviews on one connection.
const REVIEWS_PER_CONNECTION: usize = 100;
/// Number of connections that close in the middle of a body.
const HALF_REQUESTS: usize = 300;
/// Number of bodies of 2 MiB.
const LARGE_BODIES: usize = 4;
/// Size of one review. All reviews of a kind together have twice the size of the allowed growth.
const PADDING_BYTES: usize = 16 << 10;
const MAX_GROWTH_BYTES: usize = 8 << 20;

type Stream = TlsStream<TcpStream>;

struct Server {
    addr: SocketAddr,
    connector: TlsConnector,
}

impl Server {
    async fn start() -> Self {
        let names = Settings::default().dns_names();
        let lifetime = Duration::from_secs(600);
        let trusted = ServingCert::issue(&names, lifetime, None, Timestamp::now()).unwrap();
        let certificates = Certificates::new_shared();
        certificates.set_certificate(trusted.certified_key().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let router = router(open_access(), None, None, Metrics::default());
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
        for authority in CertificateDer::pem_slice_iter(&trusted.ca) {
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

    /// Sends reviews of different users and checks the responses.
    async fn assert_responses(
        &self,
        reviews: usize,
        body: impl Fn(usize) -> Vec<u8>,
        expected: &str,
    ) {
        let mut stream = self.connect().await;
        for i in 0..reviews {
            if i > 0 && i.is_multiple_of(REVIEWS_PER_CONNECTION) {
                stream = self.connect().await;
            }
            let response = ask(&mut stream, &body(i)).await;
            assert!(response.contains(expected), "{response}");
        }
    }

    /// Sends half of a review and closes the connection.
    async fn send_half_request(&self) {
        let mut stream = self.connect().await;
        let request = post(&review(0, "None"));
        stream
            .write_all(&request[..request.len() / 2])
            .await
            .unwrap();
        stream.shutdown().await.unwrap();
        // Wait until the server has closed the connection.
        stream.read_to_end(&mut Vec::new()).await.ok();
    }

    /// Sends a fraction of all kinds of requests.
    async fn send_all_kinds(&self, part: usize) {
        let reviews = REVIEWS / part;
        let accepted = |i| review(i, "None");
        self.assert_responses(reviews, accepted, r#""allowed":true"#)
            .await;
        let denied = |i| review(i, "Never");
        self.assert_responses(reviews, denied, r#""allowed":false"#)
            .await;
        let malformed = |i| {
            let mut whole = review(i, "None");
            whole.truncate(whole.len() - 1);
            whole
        };
        self.assert_responses(reviews, malformed, "malformed").await;
        let large = |_| format!("[{}1]", "1,".repeat(1 << 20)).into_bytes();
        self.assert_responses(LARGE_BODIES, large, "malformed")
            .await;
        for _ in 0..HALF_REQUESTS / part {
            self.send_half_request().await;
        }
    }
}

/// Access with a fake API server that allows everything. `ApiServerMock` would keep all requests.
fn open_access() -> Access {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        let granted = json!({"metadata": {}, "spec": {}, "status": {"allowed": true}});
        let body = kube::client::Body::from(granted.to_string().into_bytes());
        std::future::ready(Ok::<_, Infallible>(http::Response::new(body)))
    });
    Access::new(Client::new(service, "default"), Duration::from_secs(10))
}

fn review(user: usize, policy: &str) -> Vec<u8> {
    let annotations = json!({"padding": "x".repeat(PADDING_BYTES)});
    let job = Job::test().clean_pod_policy(policy);
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
            "object": job.metadata(json!({"annotations": annotations})).json(),
        },
    });
    review.to_string().into_bytes()
}

fn post(body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST /validate HTTP/1.1\r\nHost: w\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Sends a review; returns the body of the response.
async fn ask(stream: &mut Stream, body: &[u8]) -> String {
    stream.write_all(&post(body)).await.unwrap();
    stream.flush().await.unwrap();
    let mut response = Vec::new();
    loop {
        if let Some(body) = complete_body(&response) {
            return body.to_owned();
        }
        let read = stream.read_buf(&mut response).await.unwrap();
        assert!(read > 0, "{:?}", String::from_utf8_lossy(&response));
    }
}

/// The body of a response, if it is complete.
fn complete_body(response: &[u8]) -> Option<&str> {
    let (head, body) = std::str::from_utf8(response).ok()?.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "))?;
    (length.parse::<usize>() == Ok(body.len())).then_some(body)
}

/// Resident memory of this process in bytes.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn handled_reviews_leak_no_memory() {
    let server = Server::start().await;
    server.send_all_kinds(10).await;
    let before = resident_bytes();
    server.send_all_kinds(1).await;
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < MAX_GROWTH_BYTES, "{grown} bytes more");
}
