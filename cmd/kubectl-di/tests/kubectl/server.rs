//! An API server that records requests, behind HTTP, HTTPS and a proxy.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};

/// A request for a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub path: String,
    /// The headers of the user, by lower-case name.
    pub headers: BTreeMap<String, Vec<String>>,
    pub has_certificate: bool,
    pub proxied: bool,
}

#[derive(Default)]
struct Record {
    seen: Mutex<Vec<Seen>>,
    proxy_is_used: AtomicBool,
    /// The addresses of the proxy's connections to the server.
    proxied: Mutex<HashSet<SocketAddr>>,
}

pub struct Server {
    /// The variables of the corpus.
    pub variables: Vec<(&'static str, String)>,
    record: Arc<Record>,
}

/// A PEM text in base64.
fn data(pem: &str) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem)
}

impl Server {
    /// Starts a server whose certificates are in the folder.
    pub fn start(dir: &Path) -> Self {
        let provider = rustls::crypto::ring::default_provider();
        provider.install_default().ok();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let issue = |names: &[&str]| {
            let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(names).unwrap();
            (params.signed_by(&key, &issuer).unwrap(), key)
        };
        let (server, server_key) = issue(&["127.0.0.1", "cluster.test"]);
        let (client, client_key) = issue(&["client"]);
        fs::write(dir.join("ca.crt"), ca.pem()).unwrap();
        fs::write(dir.join("client.crt"), client.pem()).unwrap();
        fs::write(dir.join("client.key"), client_key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(roots.into());
        let verifier = verifier.allow_unauthenticated().build().unwrap();
        let chain = vec![CertificateDer::from(server.der().to_vec())];
        let key = PrivateKeyDer::try_from(server_key.serialize_der()).unwrap();
        let config = ServerConfig::builder().with_client_cert_verifier(verifier);
        let config = Arc::new(config.with_single_cert(chain, key).unwrap());

        let record = Arc::new(Record::default());
        let shared = Arc::clone(&record);
        let http = listen(move |stream| {
            let peer = stream.peer_addr()?;
            answer_requests(stream, &shared, false, peer)
        });
        let shared = Arc::clone(&record);
        let https = listen(move |stream| {
            let peer = stream.peer_addr()?;
            let connection =
                ServerConnection::new(Arc::clone(&config)).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(connection, stream);
            stream.conn.complete_io(&mut stream.sock)?;
            let has_certificate = stream.conn.peer_certificates().is_some();
            answer_requests(stream, &shared, has_certificate, peer)
        });
        let shared = Arc::clone(&record);
        let proxy = listen(move |stream| forward(stream, &shared, http, https));
        let key_data = data(&client_key.serialize_pem());
        let lines: Vec<_> = key_data.as_bytes().chunks(40).collect();
        let lines: Vec<_> = lines.into_iter().map(String::from_utf8_lossy).collect();
        let mut variables = vec![
            ("$HTTPS", format!("https://{https}")),
            ("$HTTP", format!("http://{http}")),
            ("$AUTHORITY", https.to_string()),
            ("$DIRECT", format!("{}.cluster.test", "a".repeat(64))),
            ("$PROXY", format!("http://{proxy}")),
            ("$PROXY_AUTHORITY", proxy.to_string()),
            ("$CA_DATA", data(&ca.pem())),
            ("$CA_PEM", ca.pem()),
            ("$CERT_DATA", data(&client.pem())),
            ("$KEY_DATA", key_data.clone()),
            ("$KEY_LINES", format!("\"{}\"", lines.join("\\n"))),
        ];
        // Longer names first: $HTTPS before $HTTP.
        variables.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Self { variables, record }
    }

    /// Whether a program has connected to the proxy since the last call.
    pub fn take_proxy_use(&self) -> bool {
        self.record.proxy_is_used.swap(false, Ordering::Relaxed)
    }

    /// The last request since the last call.
    pub fn take_last_seen(&self) -> Option<Seen> {
        self.record.seen.lock().unwrap().drain(..).next_back()
    }
}

/// Handles each connection of a new listener in a thread.
fn listen(handle: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let handle = Arc::new(handle);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handle = Arc::clone(&handle);
            // A client that rejects the certificate closes the connection.
            thread::spawn(move || handle(stream).ok());
        }
    });
    address
}

/// The lines of a request before its body; none at the end of the connection.
fn read_head(stream: &mut impl BufRead) -> io::Result<Option<Vec<String>>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        match line.trim_end() {
            "" => return Ok(Some(lines)),
            text => lines.push(text.to_owned()),
        }
    }
}

fn answer_requests(
    stream: impl Read + Write,
    record: &Record,
    has_certificate: bool,
    peer: SocketAddr,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(head) = read_head(&mut stream)? {
        let proxied = record.proxied.lock().unwrap().contains(&peer);
        let response = answer(&head, record, has_certificate, proxied);
        stream.get_mut().write_all(&response)?;
        stream.get_mut().flush()?;
    }
    Ok(())
}

fn answer(head: &[String], record: &Record, has_certificate: bool, proxied: bool) -> Vec<u8> {
    let target = head[0].split(' ').nth(1).unwrap();
    // A proxy gets the whole address.
    let path = target.strip_prefix("http://").map_or(target, |rest| {
        rest.find('/').map_or("/", |start| &rest[start..])
    });
    let path = path.split('?').next().unwrap().to_owned();
    if path.ends_with("/dijobs/x") {
        let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in &head[1..] {
            let (name, value) = line.split_once(": ").unwrap_or((line, ""));
            let name = name.to_lowercase();
            if name == "authorization" || name.starts_with("impersonate-") {
                headers.entry(name).or_default().push(value.to_owned());
            }
        }
        for values in headers.values_mut() {
            values.sort();
        }
        record.seen.lock().unwrap().push(Seen {
            path: path.clone(),
            headers,
            has_certificate,
            proxied,
        });
    }
    let body = answer_body(&path);
    let status = if body.is_null() {
        "404 Not Found"
    } else {
        "200 OK"
    };
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn answer_body(path: &str) -> Value {
    // A prefix of the address, as Rancher has, belongs to it.
    let path = path.strip_prefix("/k8s/clusters/c-1").unwrap_or(path);
    let group = |name: &str, version: &str| {
        let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
        json!({"name": name, "versions": [version], "preferredVersion": version})
    };
    let resources = |version: &str, plural: &str, kind: &str| {
        let verbs = ["create", "get", "list"];
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
            {"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs},
        ]})
    };
    match path {
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
        "/api/v1" => resources("v1", "configmaps", "ConfigMap"),
        "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [
            group("diengine.opendilab.org", "v1alpha2"), group("compare.test", "v1"),
        ]}),
        "/apis/compare.test/v1" => resources("compare.test/v1", "samples", "Sample"),
        "/apis/diengine.opendilab.org/v1alpha2" => {
            resources("diengine.opendilab.org/v1alpha2", "dijobs", "DIJob")
        }
        path if path.ends_with("/dijobs/x") => json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
            "metadata": {"name": "x", "namespace": "n"}, "spec": {},
        }),
        _ => Value::Null,
    }
}

/// A proxy, which knows the addresses of cluster.test.
fn forward(
    stream: TcpStream,
    record: &Record,
    http: SocketAddr,
    https: SocketAddr,
) -> io::Result<()> {
    record.proxy_is_used.store(true, Ordering::Relaxed);
    let mut client = BufReader::new(stream);
    while let Some(head) = read_head(&mut client)? {
        if !head[0].starts_with("CONNECT ") {
            let response = answer(&head, record, false, true);
            client.get_mut().write_all(&response)?;
            continue;
        }
        let mut server = match head[0].split(' ').nth(1) {
            Some("cluster.test:6443") => TcpStream::connect(https)?,
            Some("cluster.test:80") => TcpStream::connect(http)?,
            target => TcpStream::connect(target.unwrap())?,
        };
        record.proxied.lock().unwrap().insert(server.local_addr()?);
        let mut client = client.into_inner();
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
        thread::spawn(move || {
            io::copy(&mut from_client, &mut to_server).ok();
            to_server.shutdown(Shutdown::Write).ok();
        });
        io::copy(&mut server, &mut client)?;
        return Ok(());
    }
    Ok(())
}
