//! The endpoint with full caches, and the alternatives in the same process.

use std::{
    convert::Infallible,
    io::Read,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use axum::{
    Json, Router,
    body::Body,
    extract::State as Extract,
    http::{Request, Uri, header},
    response::IntoResponse,
    routing::get,
};
use clap::Args;
use di_api::DIJob;
use di_cache::{JobCache, JobView, PodCache, WatchedJob};
use di_replicas::{Endpoint, Metrics, Settings, State};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client,
    core::DeserializeGuard,
    runtime::{reflector, watcher::Event},
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tower::service_fn;

use crate::harness::{
    fleet::{Fleet, NAMESPACE, job_name, pod_status, running_pods, views},
    machine::{self, SERVER_CORE},
    original,
};

/// Serves caches filled with a fleet until standard input ends.
#[derive(Args, Clone, Copy, Debug)]
pub struct Serve {
    /// How many jobs
    #[arg(long)]
    pub jobs: usize,
    /// Number of replicas per job without its coordinator
    #[arg(long)]
    pub replicas: usize,
    /// How many pods change every second
    #[arg(long, default_value_t = 0)]
    pub events: u32,
    /// How many memberships change every second
    #[arg(long, default_value_t = 0)]
    pub memberships: u32,
}

/// The addresses of the servers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Addresses {
    /// The endpoint.
    pub product: SocketAddr,
    /// A handler of bytes that are ready: those of one coordinator's list.
    pub ready_made: SocketAddr,
    /// A handler that serializes the list of the whole namespace, which is ready otherwise.
    pub serialized: SocketAddr,
    /// The original's algorithm.
    pub original: SocketAddr,
}

/// Caches filled with a fleet, and an endpoint over them that must ask no API server.
pub struct Filled {
    /// The endpoint.
    pub state: State,
    /// Its jobs.
    pub jobs: Arc<JobCache<JobView>>,
    /// Its pods.
    pub pods: Arc<PodCache>,
    /// Its jobs and their pods, as the API server holds them.
    pub objects: Vec<(DIJob, Vec<Pod>)>,
    /// How often the API server was asked.
    pub asked: Arc<AtomicU64>,
    // The store ends with its writer.
    _writer: reflector::store::Writer<WatchedJob<JobView>>,
}

impl Filled {
    /// Fills them.
    pub fn new(fleet: Fleet) -> Result<Self> {
        let mut objects = Vec::with_capacity(fleet.jobs);
        for (number, job) in fleet.all()?.into_iter().enumerate() {
            let pods = running_pods(&job, number)?;
            objects.push((job, pods));
        }
        let (reader, mut writer) = reflector::store::<WatchedJob<JobView>>();
        writer.apply_watcher_event(&Event::Init);
        for (job, _) in &objects {
            let job = DeserializeGuard(Ok(JobView::from(job.clone())));
            writer.apply_watcher_event(&Event::InitApply(job));
        }
        writer.apply_watcher_event(&Event::InitDone);
        let all = objects.iter().flat_map(|(_, pods)| views(pods));
        let pods = Arc::new(PodCache::with_objects(all));

        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        let refuse = service_fn(move |_: Request<kube::client::Body>| {
            count.fetch_add(1, Relaxed);
            let mut answer = http::Response::new(Body::empty());
            *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            std::future::ready(Ok::<_, Infallible>(answer))
        });
        let client = Client::new(refuse, "default");
        let jobs = Arc::new(JobCache::new(reader));
        // Enough for a thousand long polls.
        let settings = Settings {
            max_connections: 2048,
            ..Settings::default()
        };
        let metrics = Metrics::default();
        let state = State::new(client, jobs.clone(), pods.clone(), settings, metrics);
        Ok(Self {
            state,
            jobs,
            pods,
            objects,
            asked,
            _writer: writer,
        })
    }

    /// The endpoint's response to a coordinator.
    pub async fn answer(&self, path: &str) -> Result<Vec<u8>> {
        let endpoint = Endpoint::new(self.state.clone());
        Ok(get_bytes(&endpoint, path).await?.to_vec())
    }
}

/// The endpoint's response to the coordinator of the first job.
pub async fn get_bytes(endpoint: &Endpoint, path: &str) -> Result<axum::body::Bytes> {
    let mut request = Request::get(path).body(Body::empty())?;
    let caller = SocketAddr::from((crate::harness::fleet::coordinator_address(0), 1));
    request
        .extensions_mut()
        .insert(axum::extract::ConnectInfo(caller));
    let answer = endpoint.handle_request(request).await;
    ensure!(
        answer.status() == 200,
        "{path} was answered {}",
        answer.status()
    );
    Ok(answer.into_body().collect().await?.to_bytes())
}

/// Path of the list of a job's replicas, as its coordinator asks for it.
pub fn coordinator_path(job: usize) -> String {
    let name = job_name(job);
    format!("/v1alpha1/replicas?namespace={NAMESPACE}&coordinator={name}-coordinator")
}

/// Path of the list of the namespace.
pub fn namespace_path() -> String {
    format!("/v1alpha1/replicas?namespace={NAMESPACE}")
}

impl Serve {
    /// Serves until standard input ends, and prints how often the API server was asked.
    pub async fn run(self) -> Result<()> {
        let Self {
            jobs,
            replicas,
            events,
            memberships,
        } = self;
        let filled = Arc::new(Filled::new(Fleet { jobs, replicas })?);
        let one = filled.answer(&coordinator_path(0)).await?;
        let all: serde_json::Value =
            serde_json::from_slice(&filled.answer(&namespace_path()).await?)?;
        let all = original::Answer::typed(&all)?;

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let addresses = Addresses {
            product: listener.local_addr()?,
            ready_made: serve(ready_made(one)).await?,
            serialized: serve(serialized(all)).await?,
            original: serve(original_router(filled.clone())).await?,
        };
        tokio::spawn(di_replicas::serve(
            listener,
            filled.state.clone(),
            std::future::pending(),
        ));
        if events > 0 {
            tokio::spawn(change_pods(filled.clone(), events));
        }
        if memberships > 0 {
            tokio::spawn(change_memberships(filled.clone(), memberships));
        }
        println!("{}", serde_json::to_string(&addresses)?);
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        println!("{}", filled.asked.load(Relaxed));
        Ok(())
    }

    /// Keeps this process on the core of servers; its threads are started after.
    pub fn pin() -> Result<()> {
        machine::pin(SERVER_CORE).context("cannot keep to one core")
    }
}

async fn serve(router: Router) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

fn ready_made(bytes: Vec<u8>) -> Router {
    let bytes = axum::body::Bytes::from(bytes);
    let answer =
        async move || ([(header::CONTENT_TYPE, "application/json")], bytes).into_response();
    Router::new().route("/v1alpha1/replicas", get(answer))
}

fn serialized(answer: original::Answer) -> Router {
    let answer = Arc::new(answer);
    let handler =
        async |Extract(answer): Extract<Arc<original::Answer>>| Json(&*answer).into_response();
    Router::new()
        .route("/v1alpha1/replicas", get(handler))
        .with_state(answer)
}

fn original_router(filled: Arc<Filled>) -> Router {
    let handler = async |Extract(filled): Extract<Arc<Filled>>, uri: Uri| {
        let query = uri.query().unwrap_or_default();
        let coordinator = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("coordinator="));
        let jobs: Vec<&DIJob> = filled.objects.iter().map(|(job, _)| job).collect();
        let pods: Vec<&Pod> = filled.objects.iter().flat_map(|(_, pods)| pods).collect();
        match coordinator {
            Some(name) => Json(original::list_one(&jobs, &pods, NAMESPACE, name)).into_response(),
            None => Json(original::list_all(&jobs, &pods, NAMESPACE)).into_response(),
        }
    };
    Router::new()
        .route("/v1alpha1/replicas", get(handler))
        .with_state(filled)
}

/// Changes pods at an even pace, like a watch: ready, not ready, ready again.
async fn change_pods(filled: Arc<Filled>, per_second: u32) {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / per_second);
    let pods: Vec<&Pod> = filled
        .objects
        .iter()
        .flat_map(|(_, pods)| &pods[1..])
        .collect();
    // A step that visits all pods in an order far from their own.
    for i in (0..).step_by(7919) {
        tick.tick().await;
        let nth = i % pods.len();
        let mut pod = pods[nth].clone();
        let ready = (i / pods.len()) % 2 == 1;
        let address = pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.as_ref()?.parse().ok());
        pod.status = address.and_then(|address| pod_status(address, ready).ok());
        for view in views(&[pod]) {
            filled.pods.on_apply(view);
        }
    }
}

/// Changes memberships at an even pace, one job after the other. The generation of a change is its time, in microseconds.
async fn change_memberships(filled: Arc<Filled>, per_second: u32) {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / per_second);
    for i in 0.. {
        tick.tick().await;
        let mut job = filled.objects[i % filled.objects.len()].0.clone();
        job.metadata.resource_version = Some((1_000_000 + i).to_string());
        if let Some(status) = &mut job.status {
            status.membership_generation = Some(jiff::Timestamp::now().as_microsecond());
        }
        filled.jobs.record_write(JobView::from(job));
    }
}
