//! A proxy in front of the API server that injects faults.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt, stream};
use http::{Method, StatusCode, header};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

/// A request that the proxy received.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// HTTP method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// Number of the write, starting at 1; 0 for reads.
    pub write: usize,
    /// When the proxy received the request.
    pub at: Instant,
}

impl RecordedRequest {
    /// Whether the request is a watch.
    pub fn is_watch(&self) -> bool {
        self.target.contains("watch=true")
    }

    /// Whether the request starts a list. The next pages of a list do not count.
    pub fn is_list(&self) -> bool {
        let version = self.path().find("/v1").map_or(0, |at| at + 1);
        let below = self.path()[version..].split('/').skip(1);
        // Paths of lists have an odd number of parts: pods, namespaces/b/pods; not pods/a.
        let is_kind = below.count() % 2 == 1;
        let continues = self.target.contains("continue=");
        self.method == Method::GET && is_kind && !self.is_watch() && !continues
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The kind that the request lists or watches.
    fn kind(&self) -> &str {
        self.path().rsplit('/').next().unwrap_or_default()
    }
}

/// How the proxy handles a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyAction {
    /// Forward the request.
    Served,
    /// Respond with this status without forwarding. A 429 has `Retry-After: 1`.
    Rejected(u16),
    /// Like `Rejected`, with a JSON body in several lines.
    Indented(u16),
    /// Respond with 500 and several lines that are not JSON.
    Garbled,
    /// Neither forward nor respond.
    Hung,
    /// Forward the request after [`Proxy::resume_paused`], even if the client has disconnected.
    Paused,
    /// Forward the request, and respond after [`Proxy::resume_paused`].
    Delayed,
    /// Forward the request, and never respond.
    Unanswered,
    /// Forward the request, and close the connection before the response.
    Lost,
    /// Close the connection without forwarding.
    Reset,
}

/// How the proxy handles watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchMode {
    /// Forward all events.
    Flow,
    /// Close open watches, and new ones at once.
    Cut,
    /// Keep watches open without events.
    Frozen,
    /// Like `Frozen` for open watches, as after a router dropped the connection; new watches work.
    Forgotten,
    /// Send every event twice.
    Twice,
    /// End watches with 410 Expired.
    Expired,
}

/// A watch mode for all kinds or for one kind.
type Disturbance = (WatchMode, Option<&'static str>);
type Rule = dyn Fn(&RecordedRequest) -> ProxyAction + Send + Sync;

struct Shared {
    upstream: Client,
    rule: Mutex<Arc<Rule>>,
    requests: Mutex<Vec<RecordedRequest>>,
    watches: watch::Sender<Disturbance>,
    resumed: watch::Sender<()>,
}

/// The proxy. Dropping it closes all its connections.
pub struct Proxy {
    shared: Arc<Shared>,
    address: String,
    _serving: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy that forwards requests with this client.
    ///
    /// # Panics
    /// If no port is free.
    pub fn start(upstream: Client) -> Self {
        let served: Arc<Rule> = Arc::new(|_| ProxyAction::Served);
        let shared = Arc::new(Shared {
            upstream,
            rule: Mutex::new(served),
            requests: Mutex::default(),
            watches: watch::Sender::new((WatchMode::Flow, None)),
            resumed: watch::Sender::new(()),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let listener = TcpListener::from_std(listener).unwrap();
        let router = Router::new().fallback(handle).with_state(shared.clone());
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            shared,
            address,
            _serving: serving,
        }
    }

    /// A client of the proxy, configured like the manager's client.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).unwrap()
    }

    /// URL of the proxy.
    pub fn url(&self) -> &str {
        &self.address
    }

    /// Client configuration for the proxy.
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.address.parse().unwrap());
        config.default_retry = false;
        config
    }

    /// Sets the function that decides how each request is handled.
    pub fn set_rule(&self, rule: impl Fn(&RecordedRequest) -> ProxyAction + Send + Sync + 'static) {
        *lock(&self.shared.rule) = Arc::new(rule);
    }

    /// Sets the mode of all watches.
    pub fn set_watches(&self, watches: WatchMode) {
        self.shared.watches.send_replace((watches, None));
    }

    /// Sets the mode of the watches of one kind, such as pods; others flow.
    pub fn set_watches_of(&self, kind: &'static str, watches: WatchMode) {
        self.shared.watches.send_replace((watches, Some(kind)));
    }

    /// Rejects all requests for a resource, such as pods, like an API server without permission.
    pub fn forbid(&self, resource: &'static str) {
        let path = format!("/{resource}");
        self.set_rule(move |request| {
            if request.path().contains(&path) {
                ProxyAction::Rejected(403)
            } else {
                ProxyAction::Served
            }
        });
        // The API server keeps open watches despite revoked permissions, so expire them.
        self.set_watches_of(resource, WatchMode::Expired);
    }

    /// Forwards all requests and watches again.
    pub fn serve_all(&self) {
        self.set_watches(WatchMode::Flow);
        self.set_rule(|_| ProxyAction::Served);
    }

    /// Resumes paused and delayed requests.
    pub fn resume_paused(&self) {
        self.shared.resumed.send_replace(());
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        lock(&self.shared.requests).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let recorded = {
        let mut all = lock(&shared.requests);
        let is_write = request.method() != Method::GET;
        let earlier = all.iter().filter(|recorded| recorded.write > 0).count();
        all.push(RecordedRequest {
            method: request.method().clone(),
            target: request.uri().to_string(),
            write: if is_write { earlier + 1 } else { 0 },
            at: Instant::now(),
        });
        all[all.len() - 1].clone()
    };
    let rule = lock(&shared.rule).clone();
    match rule(&recorded) {
        ProxyAction::Served if recorded.is_watch() => {
            serve_watch(&shared, request, recorded.kind()).await
        }
        ProxyAction::Served => serve(&shared, request).await,
        ProxyAction::Rejected(code) => rejection(code, Value::to_string),
        ProxyAction::Indented(code) => rejection(code, |status| format!("{status:#}\n")),
        ProxyAction::Garbled => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "it broke\nin two lines\n",
        )
            .into_response(),
        ProxyAction::Hung => std::future::pending().await,
        ProxyAction::Paused => pause_then_serve(&shared, request).await,
        ProxyAction::Delayed => {
            let mut resumed = shared.resumed.subscribe();
            let answer = serve(&shared, request).await;
            resumed.changed().await.unwrap();
            answer
        }
        ProxyAction::Unanswered => {
            serve(&shared, request).await;
            std::future::pending().await
        }
        ProxyAction::Lost => {
            let answer = serve(&shared, request).await;
            truncated_response(answer.status())
        }
        ProxyAction::Reset => truncated_response(StatusCode::OK),
    }
}

/// A response whose body is missing.
fn truncated_response(status: StatusCode) -> Response {
    let broken = stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]);
    Response::builder()
        .status(status)
        .header(header::CONTENT_LENGTH, "1000")
        .body(Body::from_stream(broken))
        .unwrap()
}

/// The reason that the API server returns with a status code.
fn reason(code: u16) -> &'static str {
    match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    }
}

fn rejection(code: u16, write: impl Fn(&Value) -> String) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "reason": reason(code), "message": "a fault of the test", "metadata": {},
    });
    let mut answer = Response::builder()
        .status(code)
        .header(header::CONTENT_TYPE, "application/json");
    if code == 429 {
        answer = answer.header(header::RETRY_AFTER, "1");
    }
    answer.body(Body::from(write(&status))).unwrap()
}

/// Forwards a request. Drops the headers that belong to the connection with the client.
async fn forward(
    shared: &Shared,
    request: Request,
) -> kube::Result<http::Response<kube::client::Body>> {
    let (mut parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    for own in [
        header::HOST,
        header::CONTENT_LENGTH,
        header::CONNECTION,
        header::USER_AGENT,
    ] {
        parts.headers.remove(own);
    }
    let request = http::Request::from_parts(parts, kube::client::Body::from(body));
    shared.upstream.send(request).await
}

/// Serve to the end even if the client disconnects, so that the audit log has the outcome.
async fn serve(shared: &Arc<Shared>, request: Request) -> Response {
    let shared = shared.clone();
    let served = tokio::spawn(async move { forward(&shared, request).await });
    match served.await.unwrap() {
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn pause_then_serve(shared: &Arc<Shared>, request: Request) -> Response {
    let mut resumed = shared.resumed.subscribe();
    let shared = shared.clone();
    // Read the whole body now; the connection may be closed later.
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let request = Request::from_parts(parts, Body::from(body));
    let served = tokio::spawn(async move {
        resumed.changed().await.unwrap();
        serve(&shared, request).await
    });
    served.await.unwrap()
}

type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, axum::Error>> + Send>>;

/// The mode of watches of a kind.
fn mode_for(disturbance: Disturbance, kind: &str) -> WatchMode {
    match disturbance {
        (_, Some(only)) if only != kind => WatchMode::Flow,
        (watches, _) => watches,
    }
}

async fn serve_watch(shared: &Arc<Shared>, request: Request, kind: &str) -> Response {
    let mut watches = shared.watches.subscribe();
    let kind = kind.to_owned();
    let began = mode_for(*watches.borrow_and_update(), &kind);
    if began == WatchMode::Expired {
        return expired().into_response();
    }
    let answer = serve(shared, request).await;
    let (parts, body) = answer.into_parts();
    if !parts.status.is_success() {
        return Response::from_parts(parts, body);
    }
    let lines = split_lines(body.into_data_stream().boxed());
    let altered = stream::unfold(
        (lines, watches, kind),
        move |(mut lines, mut watches, kind)| async move {
            loop {
                let now = match mode_for(*watches.borrow_and_update(), &kind) {
                    WatchMode::Cut => return None,
                    WatchMode::Forgotten if began == WatchMode::Forgotten => WatchMode::Flow,
                    WatchMode::Forgotten => WatchMode::Frozen,
                    now => now,
                };
                tokio::select! {
                    line = lines.next(), if now != WatchMode::Frozen => {
                        let line = line?;
                        let line = match (now, line) {
                            (WatchMode::Twice, Ok(line)) => Ok([&line[..], &line[..]].concat().into()),
                            (WatchMode::Expired, _) => Ok(expired()),
                            (_, line) => line,
                        };
                        return Some((line, (lines, watches, kind)));
                    }
                    changed = watches.changed() => {
                        changed.ok()?;
                        if mode_for(*watches.borrow(), &kind) != WatchMode::Expired {
                            continue;
                        }
                        return Some((Ok(expired()), (stream::empty().boxed(), watches, kind)));
                    }
                }
            }
        },
    );
    Response::from_parts(parts, Body::from_stream(altered))
}

/// The error of an API server whose history is too short.
fn expired() -> Bytes {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 410,
        "reason": "Expired", "message": "too old resource version", "metadata": {},
    });
    format!("{}\n", json!({"type": "ERROR", "object": status})).into()
}

/// Splits a body into lines.
fn split_lines(chunks: Chunks) -> Chunks {
    stream::unfold((chunks, Vec::new()), |(mut chunks, mut rest)| async move {
        loop {
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                return Some((Ok(line.into()), (chunks, rest)));
            }
            match chunks.next().await? {
                Ok(chunk) => rest.extend_from_slice(&chunk),
                Err(error) => return Some((Err(error), (chunks, rest))),
            }
        }
    })
    .boxed()
}
