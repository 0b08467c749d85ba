//! A proxy before the API server, which shows faults that a healthy server cannot be made to show.

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

/// A request that came.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Its method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// The how manyeth write it is, from 1 on; 0 for one that reads.
    pub write: usize,
    /// When it came.
    pub at: Instant,
}

impl RecordedRequest {
    /// Whether it is a watch.
    pub fn is_watch(&self) -> bool {
        self.target.contains("watch=true")
    }

    /// Whether it begins a list of a kind. That one goes on with its next page is no list of its own.
    pub fn is_list(&self) -> bool {
        let version = self.path().find("/v1").map_or(0, |at| at + 1);
        let below = self.path()[version..].split('/').skip(1);
        // Of a name, and of all in a namespace or of the cluster: pods/a, namespaces/b/pods, pods.
        let is_kind = below.count() % 2 == 1;
        let goes_on = self.target.contains("continue=");
        self.method == Method::GET && is_kind && !self.is_watch() && !goes_on
    }

    /// What it is about, without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The kind that is listed or watched.
    fn kind(&self) -> &str {
        self.path().rsplit('/').next().unwrap_or_default()
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyAction {
    /// It is served.
    Served,
    /// It is answered with this status, and does not reach the server. Of 429, one second must be waited.
    Rejected(u16),
    /// As refused, by a status that is written in several lines, for people.
    Indented(u16),
    /// As 500, in several lines that are no JSON.
    Garbled,
    /// It never reaches the server, and is never answered.
    Hung,
    /// It waits until [`Proxy::let_go`], and is then served, though nobody may wait for the answer any more.
    Paused,
    /// It is served, and answered after [`Proxy::let_go`].
    Delayed,
    /// It is served, and never answered.
    Unanswered,
    /// It is served, and the connection ends before its answer.
    Lost,
    /// It never reaches the server, and the connection ends.
    Reset,
}

/// What happens to all that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchMode {
    /// They go on.
    Flow,
    /// They end, and those that begin too.
    Cut,
    /// They stay open, and nothing comes.
    Frozen,
    /// Nothing comes any more of those that were open before, as on connections that a router has forgotten; those that begin go on.
    Forgotten,
    /// Every event comes twice.
    Twice,
    /// They are told that what they know is too old.
    Expired,
}

/// What happens to watches: to all, or to those of one kind.
type Disturbance = (WatchMode, Option<&'static str>);
type Rule = dyn Fn(&RecordedRequest) -> ProxyAction + Send + Sync;

struct Shared {
    upstream: Client,
    rule: Mutex<Arc<Rule>>,
    requests: Mutex<Vec<RecordedRequest>>,
    watches: watch::Sender<Disturbance>,
    resumed: watch::Sender<()>,
}

/// The proxy; it ends when dropped, and everything through it.
pub struct Proxy {
    shared: Arc<Shared>,
    address: String,
    _serving: JoinSet<()>,
}

impl Proxy {
    /// One whose requests reach the server by this client.
    ///
    /// # Panics
    /// When there is no port to listen on.
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

    /// A client of it, as the manager makes its own.
    pub fn client(&self) -> Client {
        Client::try_from(self.config()).unwrap()
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.address
    }

    /// What such a client is made from.
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.address.parse().unwrap());
        config.default_retry = false;
        config
    }

    /// From now on, this decides what becomes of requests.
    pub fn set_rule(&self, rule: impl Fn(&RecordedRequest) -> ProxyAction + Send + Sync + 'static) {
        *lock(&self.shared.rule) = Arc::new(rule);
    }

    /// From now on, this happens to watches.
    pub fn set_watches(&self, watches: WatchMode) {
        self.shared.watches.send_replace((watches, None));
    }

    /// From now on, this happens to watches of this kind, such as pods, and those of others go on.
    pub fn set_watches_of(&self, kind: &'static str, watches: WatchMode) {
        self.shared.watches.send_replace((watches, Some(kind)));
    }

    /// Those that were held go on.
    pub fn resume_paused(&self) {
        self.shared.resumed.send_replace(());
    }

    /// What came so far.
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

/// An answer that is announced, and of which nothing comes.
fn truncated_response(status: StatusCode) -> Response {
    let broken = stream::iter([Err::<Bytes, _>(std::io::Error::other("cut"))]);
    Response::builder()
        .status(status)
        .header(header::CONTENT_LENGTH, "1000")
        .body(Body::from_stream(broken))
        .unwrap()
}

/// The reason that a server gives with a code.
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

/// Hands a request on. The address that it was sent to is ours, and its connection ends here.
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

/// To its end, even when the caller hangs up: the audit log would not tell what became of it.
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
    // All of it is here by now; later its connection may not be.
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

/// What happens to watches of a kind.
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

/// What a server says whose history does not reach so far back.
fn expired() -> Bytes {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 410,
        "reason": "Expired", "message": "too old resource version", "metadata": {},
    });
    format!("{}\n", json!({"type": "ERROR", "object": status})).into()
}

/// Whole lines of a body.
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
