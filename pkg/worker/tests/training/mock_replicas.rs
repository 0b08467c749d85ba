//! A fake replica endpoint whose pods are threads.

mod learner_group;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use di_worker_lib::{
    Result,
    learner::{Learner, settings::Settings},
    protocol::{
        env::{COLLECTOR_PORT, Environment},
        server::serve,
        wire::{Envelope, Replicas, Role},
    },
    sampler::{collector::Collector, sampling::Sampling},
    storage::Storage,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::{Value, json, to_value};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
};

/// Resolves every name to the loopback address and keeps the port.
pub struct Loopback;

impl Loopback {
    pub fn resolver() -> Arc<dyn Resolve> {
        Arc::new(Self)
    }
}

impl Resolve for Loopback {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs =
            Box::new(std::iter::once(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))));
        Box::pin(async { Ok(addresses) })
    }
}

pub async fn loopback_listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

/// Programs that have ended, and whether they succeeded.
type Ended = Arc<Mutex<BTreeMap<String, bool>>>;

/// The runtime of a pod; dropping it closes all its connections.
struct Machine(Option<Runtime>);

impl Machine {
    /// Runs a program and records its result.
    fn start(
        ended: &Ended,
        name: &str,
        program: impl Future<Output = Result<()>> + Send + 'static,
    ) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (ended, name) = (ended.clone(), name.to_owned());
        runtime.spawn(async move {
            let is_ok = program.await.is_ok();
            ended.lock().unwrap().insert(name, is_ok);
        });
        Self(Some(runtime))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A replica.
struct Pod {
    role: Role,
    url: String,
    machine: Option<Machine>,
    /// The ranks of an aggregator and their addresses.
    ranks: Vec<(Option<Machine>, String)>,
}

/// A listener on a free port and the URL of its pod.
fn listen(pod: &str) -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, format!("{pod}.rl:{port}"))
}

/// The loopback address of a pod.
fn on_loopback(url: &str) -> String {
    let (_, port) = url.rsplit_once(':').unwrap();
    format!("127.0.0.1:{port}")
}

#[derive(Default)]
struct Inner {
    pods: BTreeMap<String, Pod>,
    made: u64,
    /// Ranks per learner; 0 for learners of one process.
    ranks: u32,
    /// Settings of new learners.
    settings: Settings,
    keys: Vec<String>,
    failed: Vec<String>,
    lists: u64,
    refuse: usize,
    forgotten: bool,
}

/// The endpoint and its pods.
#[derive(Clone)]
pub struct MockReplicas {
    address: SocketAddr,
    folder: Arc<tempfile::TempDir>,
    storage: Storage,
    inner: Arc<Mutex<Inner>>,
    ended: Ended,
}

impl MockReplicas {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let storage = Storage::open(folder.path()).unwrap();
        let listener = loopback_listener().await;
        let inner = Arc::new(Mutex::new(Inner::default()));
        let mock_replicas = Self {
            address: listener.local_addr().unwrap(),
            folder: Arc::new(folder),
            storage,
            inner,
            ended: Ended::default(),
        };
        let router = Router::new()
            .route("/v1alpha1/replicas", get(list).post(add))
            .route("/v1alpha1/replicas/failed", post(replace))
            .with_state(mock_replicas.clone());
        tokio::spawn(async { axum::serve(listener, router).await });
        mock_replicas
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn storage(&self) -> Storage {
        self.storage.clone()
    }

    pub fn collectors(&self) -> Vec<String> {
        self.names(Role::Collector)
    }

    pub fn learners(&self) -> Vec<String> {
        self.names(Role::Learner)
    }

    /// Idempotency keys of the requests for replicas.
    pub fn keys(&self) -> Vec<String> {
        self.inner().keys.clone()
    }

    /// Addresses of all replicas.
    pub fn addresses(&self) -> Vec<String> {
        let inner = self.inner();
        let urls = inner.pods.values().map(|pod| &*pod.url);
        urls.map(on_loopback).collect()
    }

    /// Programs that have ended, and whether they succeeded.
    pub fn ended(&self) -> BTreeMap<String, bool> {
        self.ended.lock().unwrap().clone()
    }

    /// Number of list requests.
    pub fn lists(&self) -> u64 {
        self.inner().lists
    }

    /// Names of replicas that were reported as failed.
    pub fn failed(&self) -> Vec<String> {
        self.inner().failed.clone()
    }

    pub fn refuse_next_requests(&self, count: usize) {
        self.inner().refuse = count;
    }

    /// Sets the settings of new learners.
    pub fn set_learner_settings(&self, settings: Settings) {
        self.inner().settings = settings;
    }

    pub fn forget_the_job(&self) {
        self.inner().forgotten = true;
    }

    pub fn declare(&self, collectors: u32, learners: u32) {
        (0..collectors).for_each(|_| self.make(Role::Collector));
        (0..learners).for_each(|_| self.make(Role::Learner));
    }

    /// Kills a pod. It stays listed until it is reported as failed.
    pub fn kill(&self, pod: &str) {
        let machine = self.inner().pods.get_mut(pod).unwrap().machine.take();
        assert!(machine.is_some(), "{pod} was killed already");
    }

    fn make(&self, role: Role) {
        let mut inner = self.inner();
        inner.made += 1;
        if role == Role::Learner && inner.ranks > 0 {
            let (name, world) = (format!("pole-aggregator-{:05}", inner.made), inner.ranks);
            let group = self.learner_group(&name, world, &inner.settings);
            inner.pods.insert(name, group);
            return;
        }
        let (name, index) = (format!("pole-{role}-{:05}", inner.made), inner.made);
        let environment = Environment::from_lookup(COLLECTOR_PORT, |variable| match variable {
            "KUBERNETES_POD_NAMESPACE" => Some("rl".to_owned()),
            "KUBERNETES_POD_NAME" => Some(name.clone()),
            "DI_REPLICA_INDEX" => Some(index.to_string()),
            _ => None,
        })
        .unwrap();
        let (storage, settings) = (self.storage(), inner.settings.clone());
        let (listener, url) = listen(&name);
        let machine = Machine::start(&self.ended, &name, async move {
            let listener = TcpListener::from_std(listener).unwrap();
            let forever = std::future::pending();
            match role {
                Role::Collector => {
                    let collector = Collector::new(environment.pod, storage, sampling(index))?;
                    serve(listener, collector, forever).await
                }
                Role::Learner => serve(listener, Learner::new(storage, settings), forever).await,
            }
        });
        let pod = Pod {
            role,
            url,
            machine: Some(machine),
            ranks: Vec::new(),
        };
        inner.pods.insert(name, pod);
    }

    fn replicas(&self) -> Replicas {
        let inner = self.inner();
        let urls = |role| {
            inner
                .pods
                .values()
                .filter(|pod| pod.role == role)
                .map(|pod| pod.url.clone())
                .collect()
        };
        Replicas {
            namespace: "rl".to_owned(),
            coordinator: "pole-coordinator".to_owned(),
            collectors: urls(Role::Collector),
            learners: urls(Role::Learner),
        }
    }

    fn names(&self, role: Role) -> Vec<String> {
        self.inner()
            .pods
            .iter()
            .filter(|(_, pod)| pod.role == role)
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    fn answer(&self) -> (StatusCode, Json<Envelope>) {
        let data = to_value(self.replicas()).unwrap();
        (StatusCode::OK, Json(Envelope::new_success(data)))
    }
}

/// Every other collector samples with two threads; the frames are the same.
fn sampling(index: u64) -> Sampling {
    let workers = if index.is_multiple_of(2) { 2 } else { 1 };
    Sampling {
        num_workers: workers,
        num_envs_per_worker: 2 / workers,
        worker_num_splits: 1,
        ..Sampling::default()
    }
}

fn refusal(status: StatusCode, message: &str) -> (StatusCode, Json<Envelope>) {
    (
        status,
        Json(Envelope::new_failure(message.to_owned(), json!(null))),
    )
}

async fn list(
    State(mock_replicas): State<MockReplicas>,
    Query(query): Query<BTreeMap<String, String>>,
) -> (StatusCode, Json<Envelope>) {
    if let Some(aggregator) = query.get("aggregator") {
        let ranks = mock_replicas.ranks_of(aggregator);
        let data = to_value(ranks).unwrap();
        return (StatusCode::OK, Json(Envelope::new_success(data)));
    }
    mock_replicas.inner().lists += 1;
    mock_replicas.answer()
}

async fn add(
    State(mock_replicas): State<MockReplicas>,
    headers: HeaderMap,
    Json(request): Json<Value>,
) -> (StatusCode, Json<Envelope>) {
    {
        let mut inner = mock_replicas.inner();
        if inner.forgotten {
            return refusal(StatusCode::NOT_FOUND, "no such coordinator");
        }
        let key = headers["Idempotency-Key"].to_str().unwrap();
        inner.keys.push(key.to_owned());
        if inner.refuse > 0 {
            inner.refuse -= 1;
            return refusal(StatusCode::OK, "the cache is not filled yet");
        }
    }
    let count = |role: &str| u32::try_from(request[role]["replicas"].as_u64().unwrap()).unwrap();
    mock_replicas.declare(count("collectors"), count("learners"));
    mock_replicas.answer()
}

async fn replace(
    State(mock_replicas): State<MockReplicas>,
    Json(lost): Json<Replicas>,
) -> (StatusCode, Json<Envelope>) {
    for (role, pod) in lost
        .collectors
        .iter()
        .map(|pod| (Role::Collector, pod))
        .chain(lost.learners.iter().map(|pod| (Role::Learner, pod)))
    {
        let removed = mock_replicas.inner().pods.remove(pod);
        assert!(removed.is_some(), "{pod} was reported, but it is not there");
        mock_replicas.inner().failed.push(pod.clone());
        mock_replicas.make(role);
    }
    mock_replicas.answer()
}
