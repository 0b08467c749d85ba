//! Tests over TLS.

use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    sign::CertifiedKey,
    version,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;

const LIMITS: Limits = Limits {
    connections: 8,
    per_address: 64,
    handshake_timeout: Duration::from_secs(30),
    head_timeout: Duration::from_secs(30),
    max_age: Duration::from_secs(600),
    close_timeout: Duration::from_secs(10),
    drain_timeout: Duration::from_secs(10),
};

/// Issues a certificate and serves it.
fn serve_new_certificate(certificates: &Certificates) -> CertificateDer<'static> {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(issued.signing_key.serialize_der()).unwrap();
    let trusted = issued.cert.der().clone();
    let served = CertifiedKey::from_der(vec![trusted.clone()], key, &crypto_provider());
    certificates.set_certificate(Arc::new(served.unwrap()));
    trusted
}

/// Starts a server with a certificate.
async fn start(limits: Limits) -> (Running, CertificateDer<'static>) {
    let certificates = Certificates::new_shared();
    let trusted = serve_new_certificate(&certificates);
    (Running::start(limits, Some(&certificates)).await, trusted)
}

impl Running {
    async fn connect_tls(&self, trusted: &CertificateDer<'static>) -> TlsStream<TcpStream> {
        let versions = [&version::TLS12, &version::TLS13];
        self.try_connect_tls(trusted, &versions).await.unwrap()
    }

    async fn try_connect_tls(
        &self,
        trusted: &CertificateDer<'static>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(crypto_provider())
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, self.connect().await).await
    }
}

/// The response to a client that supports at most TLS 1.1: type, version, length and content of a
/// record.
async fn greet_with_tls_1_1(server: &Running) -> Vec<u8> {
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    // Two ECDHE suites, then signature_algorithms: without them rustls reports another error first.
    hello.extend([0, 0, 4, 0xc0, 0x09, 0xc0, 0x13, 1, 0]);
    hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    let mut stream = server.connect().await;
    stream.write_all(&record).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn only_tls_1_2_and_1_3_are_supported() {
    let (server, trusted) = start(LIMITS).await;
    for version in [&version::TLS12, &version::TLS13] {
        let stream = server.try_connect_tls(&trusted, &[version]).await;
        assert_ok(&send(&mut stream.unwrap(), GET).await);
    }
    // A fatal alert: protocol_version.
    assert_eq!(greet_with_tls_1_1(&server).await[5..], [2, 70]);
    let mut plain = server.connect().await;
    plain.write_all(GET).await.unwrap();
    let mut response = Vec::new();
    plain.read_to_end(&mut response).await.ok();
    assert!(!response.starts_with(b"HTTP"));
}

#[tokio::test]
async fn certificate_rotation_keeps_open_connections() {
    let certificates = Certificates::new_shared();
    let server = Running::start(LIMITS, Some(&certificates)).await;
    let versions = [&version::TLS13];
    let unknown = serve_new_certificate(&Certificates::default());
    let connected = server.try_connect_tls(&unknown, &versions).await;
    assert!(connected.is_err(), "no certificate");

    let first = serve_new_certificate(&certificates);
    let mut old = server.connect_tls(&first).await;
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    old.write_all(request).await.unwrap();
    let mut status = [0; 15];
    old.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200 OK");

    let second = serve_new_certificate(&certificates);
    let response = send(&mut old, GET).await;
    assert!(response.contains("HTTP/1.1 200 OK"), "{response}");
    let connected = server.try_connect_tls(&first, &versions).await;
    assert!(connected.is_err(), "the old certificate is not served");
    assert_ok(&send(&mut server.connect_tls(&second).await, GET).await);
}

#[tokio::test]
async fn silent_clients_are_closed_and_others_are_served() {
    let limits = Limits {
        handshake_timeout: Duration::from_secs(2),
        head_timeout: Duration::from_secs(2),
        ..LIMITS
    };
    let (server, trusted) = start(limits).await;
    let started_at = Instant::now();
    // The maximum number of connections, of three kinds: no handshake, no request, half a head.
    let mut silent = Vec::new();
    let mut open = Vec::new();
    for i in 0..LIMITS.connections {
        if i % 3 == 0 {
            silent.push(server.connect().await);
            continue;
        }
        let mut stream = server.connect_tls(&trusted).await;
        if i % 3 == 1 {
            stream.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
        }
        open.push(stream);
    }
    // The next connection waits until one of them is closed.
    assert_ok(&send(&mut server.connect_tls(&trusted).await, GET).await);
    assert!(
        started_at.elapsed() < Duration::from_secs(60),
        "{:?}",
        started_at.elapsed()
    );
    for mut stream in open {
        send(&mut stream, b"").await;
    }
    drop(silent);
}

#[tokio::test]
async fn old_connection_closes_after_running_request() {
    let limits = Limits {
        max_age: Duration::from_millis(300),
        ..LIMITS
    };
    let (server, trusted) = start(limits).await;
    let mut stream = server.connect_tls(&trusted).await;
    // The head of the request is received before the connection is too old.
    let head = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo";
    stream.write_all(head).await.unwrap();
    sleep(Duration::from_millis(600)).await;
    let response = send(&mut stream, b"dy").await;
    assert_ok(&response);
    assert!(response.ends_with("\r\nbody"), "{response}");
    let mut idle = server.connect_tls(&trusted).await;
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_ok(&send(&mut idle, request).await);
}
