//! Tests over a real TLS connection.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use jiff::Timestamp;
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, StreamOwned};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{net::TcpListener, sync::oneshot, task::spawn_blocking};

use super::{
    tests::{open_router, review_with_policy},
    *,
};
use crate::{Certificates, ServingCert, Settings, tls};

fn serving_cert() -> ServingCert {
    let names = Settings::default().dns_names();
    ServingCert::issue(&names, Duration::from_secs(600), None, Timestamp::now()).unwrap()
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Connects like the API server: trusts only this CA and uses the name of the Service.
fn connect(addr: SocketAddr, trusted: &ServingCert) -> std::io::Result<Tls> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&trusted.ca) {
        roots.add(authority.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(tls::crypto_provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("di-webhook.di-system.svc").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(addr)?);
    stream.conn.complete_io(&mut stream.sock)?;
    Ok(stream)
}

fn ask(stream: &mut Tls) -> String {
    let body = review_with_policy("None");
    let length = body.len();
    write!(
        stream,
        "POST /validate HTTP/1.1\r\nHost: w\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"}}") {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk).unwrap();
        assert_ne!(read, 0, "the connection was closed");
        response.extend_from_slice(&chunk[..read]);
    }
    String::from_utf8(response).unwrap()
}

/// The response to a client that supports at most TLS 1.1: type, version, length and content of a
/// record.
fn greet_with_tls_1_1(addr: SocketAddr) -> Vec<u8> {
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    // Two ECDHE suites, then signature_algorithms: without them rustls reports another error first.
    hello.extend([0, 0, 4, 0xc0, 0x09, 0xc0, 0x13, 1, 0]);
    hello.extend([0, 8, 0, 13, 0, 4, 0, 2, 4, 3]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(&record).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    response
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificate_rotation_keeps_open_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let certificates = Certificates::new_shared();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(serve(
        listener,
        open_router(),
        certificates.clone(),
        Limits::default(),
        Metrics::default(),
        async { drop(stopped.await) },
    ));
    let (first, second) = (serving_cert(), serving_cert());

    spawn_blocking(move || {
        assert!(connect(addr, &first).is_err(), "no certificate");

        certificates.set_certificate(first.certified_key().unwrap());
        let mut old = connect(addr, &first).unwrap();
        assert_eq!(old.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
        assert!(ask(&mut old).starts_with("HTTP/1.1 200"));

        certificates.set_certificate(second.certified_key().unwrap());
        assert!(
            ask(&mut old).contains(r#""allowed":true"#),
            "the connection stays open"
        );
        assert!(
            connect(addr, &first).is_err(),
            "the old certificate is not served"
        );
        let mut new = connect(addr, &second).unwrap();
        assert!(ask(&mut new).contains(r#""allowed":true"#));

        // A fatal alert: protocol_version.
        assert_eq!(greet_with_tls_1_1(addr)[5..], [2, 70]);
    })
    .await
    .unwrap();

    drop(stop);
    serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(addr).is_err());
}
