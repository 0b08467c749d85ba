//! B10: admission reviews over TLS, compared with a handler of the same process that always returns `allowed`.

mod added;
pub mod dry_run;
mod handlers;

use std::{
    convert::Infallible,
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use axum::{Router, body::Bytes, http::header, routing::post};
use di_api::DIJob;
use futures::future::join_all;
use kube::Client;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::service_fn;

use self::handlers::{
    ALLOWED, ASKED, OURS, UNLIMITED, UNREAD, at, certificate, listen, listen_without_limits, specs,
    webhook,
};
use crate::harness::{
    http::{Connection, request},
    load::{Seen, calling, on_own_core},
    machine,
    scale::Scale,
    stats::{Findings, Limit, spread},
};

const RATE: &str = "reviews per second and core";
const TAIL: &str = "99th percentile";
const MEMORY: &str = "memory, the most";
/// The minimum work of a webhook in Rust that uses the object.
const BARE: &str = "handler that decodes the object, and no more";
const MOST_MEMORY: f64 = 30.0;

/// The addresses of the servers and their authority.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Served {
    webhook: SocketAddr,
    unread: SocketAddr,
    unlimited: SocketAddr,
    bare: SocketAddr,
    authorities: String,
}

/// A review, of which only the object is looked at.
#[derive(Deserialize)]
struct Review {
    request: Request,
}

#[derive(Deserialize)]
struct Request {
    object: DIJob,
}

/// Serves them until standard input ends. Every user may create pods: the API server is not measured.
pub async fn serve() -> Result<()> {
    let (bundle, certificates) = certificate()?;
    let grant = service_fn(|_: http::Request<kube::client::Body>| async {
        let granted = r#"{"metadata":{},"spec":{},"status":{"allowed":true}}"#;
        Ok::<_, Infallible>(http::Response::new(kube::client::Body::from(
            granted.as_bytes().to_vec(),
        )))
    });
    let served = Served {
        webhook: listen(webhook(Client::new(grant, "default")), &certificates).await?,
        unread: listen(unread(), &certificates).await?,
        unlimited: listen_without_limits(unread(), &certificates).await?,
        bare: listen(bare(), &certificates).await?,
        authorities: String::from_utf8(bundle.ca)?,
    };
    println!("{}", serde_json::to_string(&served)?);
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

fn unread() -> Router {
    let answer = post(|_: Bytes| async { ([(header::CONTENT_TYPE, "application/json")], ALLOWED) });
    Router::new().route("/validate", answer)
}

fn bare() -> Router {
    let answer = post(|body: Bytes| async move {
        let review: Review =
            serde_json::from_slice(&body).map_err(|_| http::StatusCode::BAD_REQUEST)?;
        std::hint::black_box(&review.request.object);
        Ok::<_, http::StatusCode>(([(header::CONTENT_TYPE, "application/json")], ALLOWED))
    });
    Router::new().route("/validate", answer)
}

/// The process that serves them.
struct Server {
    child: Child,
    served: Served,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Server {
    fn start() -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve-webhooks")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok(Self {
            served: serde_json::from_str(&line)?,
            child,
        })
    }

    fn load(&self, to: SocketAddr, body: &str, clients: usize, lasting: Duration) -> Result<Seen> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(self.served.authorities.as_bytes()) {
            roots.add(authority?)?;
        }
        let config =
            ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots)
                .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let request = request("POST", "/validate", body);
        on_own_core(async move {
            let connect = (0..clients).map(|_| async {
                let name = ServerName::try_from("di-webhook.di-system.svc")?;
                let stream = TcpStream::connect(to).await?;
                stream.set_nodelay(true)?;
                anyhow::Ok(Connection::over(connector.connect(name, stream).await?))
            });
            let connections: Result<Vec<_>> = join_all(connect).await.into_iter().collect();
            let connections = connections?.into_iter();
            calling(connections.map(|c| (c, request.clone())), lasting).await
        })
    }
}

/// As the API server sends it, its fields in that order.
fn review(spec: &Value) -> String {
    let kind = json!({"group": "diengine.opendilab.org", "version": "v1alpha2", "kind": "DIJob"});
    let resource =
        json!({"group": "diengine.opendilab.org", "version": "v1alpha2", "resource": "dijobs"});
    let fields = [
        ("uid", json!(ASKED)),
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("requestKind", kind),
        ("requestResource", resource),
        ("name", json!("cartpole")),
        ("namespace", json!("rl")),
        ("operation", json!("CREATE")),
        (
            "userInfo",
            json!({"username": "ann", "uid": "7", "groups": ["rl", "system:authenticated"]}),
        ),
        (
            "object",
            json!({
                "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob", "spec": spec,
                "metadata": {"name": "cartpole", "namespace": "rl", "creationTimestamp": "2026-01-02T03:04:05Z", "generation": 1},
            }),
        ),
        ("oldObject", Value::Null),
        ("dryRun", json!(false)),
        (
            "options",
            json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-create"}),
        ),
    ];
    let fields = fields.map(|(name, value)| format!("{name:?}:{value}"));
    let request = fields.join(",");
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{{request}}}}}"#
    )
}

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    direct(scale, found)?;
    memory(scale, found)?;
    added::run(scale, found).await
}

/// Without an API server between.
fn direct(scale: &Scale, found: &mut Findings) -> Result<()> {
    let server = Server::start()?;
    let reviews = specs().map(|(case, spec)| (case, review(&spec)));
    for repetition in 0..=scale.repetitions {
        for &clients in &scale.reviewers {
            for (case, body) in &reviews {
                let case = format!("{case}, {clients} connections");
                let rate = at(RATE, "requests/s", case.clone(), clients);
                let tail = at(TAIL, "ms", case, clients);
                for (subject, to) in [
                    (OURS, server.served.webhook),
                    (UNREAD, server.served.unread),
                    (UNLIMITED, server.served.unlimited),
                    (BARE, server.served.bare),
                ] {
                    let seen = server.load(to, body, clients, scale.closed_loop)?;
                    if repetition == 0 {
                        continue;
                    }
                    found.add_many(&rate, subject, seen.rate(), seen.quantile(0.99));
                    found.add(&tail, subject, seen.quantile(0.99));
                }
            }
        }
    }
    for &clients in &scale.reviewers {
        for (case, _) in &reviews {
            let case = format!("{case}, {clients} connections");
            let rate = at(RATE, "requests/s", case.clone(), clients);
            found.compare(&rate, OURS, UNREAD, Limit::AtLeast(0.7));
            if clients == 8 {
                let tail = at(TAIL, "ms", case, clients);
                found.compare(&tail, OURS, UNREAD, Limit::AtMost(2.0));
            }
        }
    }
    Ok(())
}

/// Measures a process that serves nothing else.
fn memory(scale: &Scale, found: &mut Findings) -> Result<()> {
    let most = scale.reviewers.iter().max().copied().unwrap_or(1);
    let case = format!("20 KB, {most} connections");
    let at = at(MEMORY, "MiB", case, most);
    let [_, (_, large)] = specs();
    let body = review(&large);
    for _ in 0..scale.repetitions {
        for subject in [OURS, UNREAD] {
            let server = Server::start()?;
            let to = match subject {
                OURS => server.served.webhook,
                _ => server.served.unread,
            };
            server.load(to, &body, most, scale.closed_loop)?;
            found.add(&at, subject, machine::usage(server.child.id())?.peak);
        }
    }
    let series = found.find(at.benchmark, at.what, &at.case, OURS);
    let peak = series.map_or(f64::NAN, |series| spread(&series.values).median);
    found.judge(
        "B10",
        &format!("{MEMORY}, {}: < {MOST_MEMORY} MiB", at.case),
        format!("{peak:.1} MiB"),
        peak < MOST_MEMORY,
    );
    Ok(())
}
