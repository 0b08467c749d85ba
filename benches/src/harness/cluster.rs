//! An API server with the orchestrator's programs at it, and a plain client that does what they do by itself.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use di_api::{DIJob, Phase, names};
use di_apiserver_tests::{Proxy, Server, Write};
use futures::{StreamExt, pin_mut};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use crate::harness::{
    child::{Process, answers, free_address},
    fleet::manifest,
    stats::quantile,
};

/// Longer than anything here takes unless something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// How long a watch lasts, in seconds: the server may silently end a slow watch of services (kubernetes#102464)
/// (<https://github.com/kubernetes/kubernetes/issues/102464>).
const WATCH_SECONDS: u32 = 2;

/// An etcd and a kube-apiserver of our own.
pub struct Cluster {
    server: Server,
    /// One client for everything, so that its connections are open before measuring.
    client: Client,
    kubeconfig: PathBuf,
    namespaces: AtomicUsize,
}

impl Cluster {
    /// Starts one.
    pub async fn start() -> Result<Self> {
        let server = Server::installed().await;
        let path = server.dir().join("kubeconfig");
        let ca = server.dir().join("ca.crt");
        let to = json!({"server": server.url(), "certificate-authority": ca});
        std::fs::write(&path, kubeconfig(&to, &json!({"token": server.token()})))?;
        Ok(Self {
            client: server.client("bench"),
            server,
            kubeconfig: path,
            namespaces: AtomicUsize::new(0),
        })
    }

    /// A plain client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Its kubeconfig for other programs.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A folder that goes with it.
    pub fn home(&self) -> &Path {
        self.server.dir()
    }

    /// Starts the replica endpoint, and waits until it knows all jobs and pods.
    pub async fn endpoint(&self) -> Result<(Process, SocketAddr)> {
        let (address, health) = (free_address()?, free_address()?);
        let args = [
            "server".to_owned(),
            "--allow-anonymous".to_owned(),
            "--create-wait=0".to_owned(),
            format!("--address={address}"),
            format!("--health-addr={health}"),
        ];
        let log = self.server.dir().join("endpoint.log");
        let process = Process::orchestrator(&self.kubeconfig, &log, &args)?;
        answers(address, "/readyz").await?;
        Ok((process, address))
    }

    /// Starts the manager, whose reconciler makes the pods.
    pub async fn manager(&self) -> Result<Process> {
        Ok(self.manager_by(&self.kubeconfig).await?.0)
    }

    /// The same with another API server URL. Also returns the address of its metrics.
    pub async fn manager_by(&self, kubeconfig: &Path) -> Result<(Process, SocketAddr)> {
        self.manager_called("di-orchestrator", kubeconfig).await
    }

    /// The same, by another name: the lease of one is not another's.
    pub async fn manager_called(
        &self,
        name: &str,
        kubeconfig: &Path,
    ) -> Result<(Process, SocketAddr)> {
        let (health, webhooks) = (free_address()?, free_address()?);
        let args = [
            "manager".to_owned(),
            format!("--health-addr={health}"),
            format!("--webhook-addr={webhooks}"),
            format!("--pod-name={name}"),
        ];
        let log = self.server.dir().join(format!("{name}.log"));
        let process = Process::orchestrator(kubeconfig, &log, &args)?;
        // It is not ready: there are no webhook configurations here. But its reconciler works.
        answers(health, "/healthz").await?;
        Ok((process, health))
    }

    /// A proxy before the API server, and a way through it.
    pub fn proxy(&self) -> Result<(Proxy, PathBuf)> {
        let proxy = Proxy::start(self.server.client("manager"));
        let path = self.server.dir().join("proxy.kubeconfig");
        std::fs::write(
            &path,
            kubeconfig(&json!({"server": proxy.url()}), &json!({})),
        )?;
        Ok((proxy, path))
    }

    /// The writes of ours in a namespace, in the order of their answers.
    pub async fn writes(&self, space: &Space) -> Vec<Write> {
        let mut writes = self.server.writes(&space.name).await;
        writes.retain(|write| !["bench", "test"].contains(&write.agent.as_str()));
        writes
    }

    /// Kills the API server and starts it again: watches must be opened again.
    pub async fn restart(&mut self) {
        self.server.restart().await;
    }

    /// Makes a namespace.
    pub async fn space(&self) -> Result<Space> {
        let name = format!("bench-{:03}", self.namespaces.fetch_add(1, Relaxed));
        let client = self.client();
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        let api: Api<Namespace> = Api::all(client.clone());
        api.create(&PostParams::default(), &namespace).await?;
        Ok(Space { client, name })
    }
}

fn kubeconfig(cluster: &Value, user: &Value) -> String {
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": user}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
    });
    text.to_string()
}

/// A namespace.
#[derive(Clone)]
pub struct Space {
    /// A plain client.
    pub client: Client,
    /// Its name.
    pub name: String,
}

impl Space {
    /// Its jobs.
    pub fn jobs(&self) -> Api<DIJob> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Its pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Its services.
    pub fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Makes a job.
    pub async fn create(&self, name: &str) -> Result<DIJob> {
        Ok(self
            .jobs()
            .create(&PostParams::default(), &manifest(name)?)
            .await?)
    }

    /// Makes a job and waits until the reconciler has nothing more to do for it.
    pub async fn settled_job(&self, name: &str) -> Result<DIJob> {
        let services =
            Count::of(&self.services(), &format!("{}={name}", names::labels::JOB)).await?;
        self.create(name).await?;
        services.until(|seen| seen.added.len() == 1).await?;
        self.quiet(name).await
    }

    /// Creates a suspended job and waits until the reconciler has nothing more to do for it.
    pub async fn suspended_job(&self, name: &str) -> Result<DIJob> {
        let mut job = manifest(name)?;
        job.spec.suspend = true;
        self.jobs().create(&PostParams::default(), &job).await?;
        self.unchanged(name, Phase::Suspended).await
    }

    /// Waits until the status of a job that waits for its pods has not changed for a while.
    pub async fn quiet(&self, name: &str) -> Result<DIJob> {
        self.unchanged(name, Phase::Created).await
    }

    async fn unchanged(&self, name: &str, phase: Phase) -> Result<DIJob> {
        let began = Instant::now();
        let mut last = None;
        loop {
            let job = self.jobs().get(name).await?;
            let reached = job.status.as_ref().and_then(|status| status.phase) == Some(phase);
            if reached && last == job.resource_version() {
                return Ok(job);
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "the status of {name} does not come to rest"
            );
            last = job.resource_version();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Removes everything; there is no garbage collector. One by one: of ten thousand at once it takes the server longer than a request may.
    pub async fn clear(&self) -> Result<()> {
        self.remove(&self.jobs_path(), &self.jobs()).await?;
        // Creates of the reconciler that were in progress follow.
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.remove(&self.pods_path(), &self.pods()).await?;
        self.remove(&self.services_path(), &self.services()).await?;
        let kind = ApiResource::erase::<k8s_openapi::api::events::v1::Event>(&());
        let events: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.name, &kind);
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.name);
        self.remove(&path, &events).await
    }

    async fn remove<K>(&self, path: &str, objects: &Api<K>) -> Result<()>
    where
        K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let all = objects.list_metadata(&ListParams::default()).await?;
        let names = all.iter().map(ResourceExt::name_any);
        let deletes = names.map(|name| Call::delete_now(path, &name));
        make_all(&self.client, deletes.collect(), 8).await
    }

    /// Path of its jobs.
    pub fn jobs_path(&self) -> String {
        let (group, version) = (names::GROUP, names::VERSION);
        format!("/apis/{group}/{version}/namespaces/{}/dijobs", self.name)
    }

    /// Path of its services.
    pub fn services_path(&self) -> String {
        format!("/api/v1/namespaces/{}/services", self.name)
    }

    /// Path of its pods.
    pub fn pods_path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.name)
    }
}

/// Names of objects that a watch saw come and go.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Those that came.
    pub added: BTreeSet<String>,
    /// Those that went.
    pub deleted: BTreeSet<String>,
    /// When each of them came or went, in their order.
    pub times: Vec<Instant>,
}

impl Changes {
    /// How long all of them took from `began` on, and 99 % of them, in milliseconds.
    pub fn took(&self, began: Instant) -> (f64, f64) {
        let milliseconds = |at: &Instant| (*at - began).as_secs_f64() * 1e3;
        let times: Vec<f64> = self.times.iter().map(milliseconds).collect();
        (quantile(&times, 1.0), quantile(&times, 0.99))
    }
}

/// Counts what comes and goes: etcd has what a watch shows.
pub struct Count {
    seen: watch::Receiver<Changes>,
    _task: JoinSet<()>,
}

impl Count {
    /// Counts from now on.
    pub async fn of<K>(api: &Api<K>, selector: &str) -> Result<Self>
    where
        K: Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned
            + Send
            + 'static,
    {
        let list = api
            .list_metadata(&ListParams::default().labels(selector).limit(1))
            .await?;
        let version = list
            .metadata
            .resource_version
            .context("a list without version")?;
        let params = WatchParams::default()
            .labels(selector)
            .timeout(WATCH_SECONDS);
        let (sender, seen) = watch::channel(Changes::default());
        let (api, mut task) = (api.clone(), JoinSet::new());
        task.spawn(async move {
            if let Err(error) = note(&api, &params, version, &sender).await {
                eprintln!("A watch ended: {error:#}");
            }
        });
        Ok(Self { seen, _task: task })
    }

    /// The objects that were created and deleted so far.
    pub fn seen(&self) -> Changes {
        self.seen.borrow().clone()
    }

    /// Waits until enough has come and gone.
    pub async fn until(&self, enough: impl FnMut(&Changes) -> bool) -> Result<Changes> {
        let mut seen = self.seen.clone();
        let reached = timeout(PATIENCE, seen.wait_for(enough)).await;
        let Ok(reached) = reached else {
            let seen = self.seen.borrow();
            bail!(
                "saw only {} come and {} go",
                seen.added.len(),
                seen.deleted.len()
            );
        };
        Ok(reached.context("the watch ended")?.clone())
    }
}

/// Notes what comes and goes after `version`, on one watch after the other, until one fails.
async fn note<K>(
    api: &Api<K>,
    params: &WatchParams,
    mut version: String,
    changes: &watch::Sender<Changes>,
) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    loop {
        let events = api.watch_metadata(params, &version).await?;
        pin_mut!(events);
        while let Some(event) = events.next().await {
            let event = event?;
            version = match &event {
                WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object) => object.resource_version().unwrap_or_default(),
                WatchEvent::Bookmark(mark) => mark.metadata.resource_version.clone(),
                WatchEvent::Error(status) => bail!("{}", status.message),
            };
            changes.send_modify(|changes| {
                let is_new = match event {
                    WatchEvent::Added(object) => changes.added.insert(object.name_any()),
                    WatchEvent::Deleted(object) => changes.deleted.insert(object.name_any()),
                    _ => false,
                };
                if is_new {
                    changes.times.push(Instant::now());
                }
            });
        }
    }
}

/// A call that was made ready.
#[derive(Clone, Debug)]
pub struct Call {
    /// Method.
    pub method: http::Method,
    /// Path and query.
    pub path: String,
    /// Type of the body.
    pub content_type: &'static str,
    /// Body.
    pub body: Vec<u8>,
    /// Whether an object that is not there any more is as good.
    pub may_be_gone: bool,
}

impl Call {
    /// Creates an object.
    pub fn create(path: &str, object: &impl serde::Serialize) -> Result<Self> {
        Ok(Self {
            method: http::Method::POST,
            path: path.to_owned(),
            content_type: "application/json",
            body: serde_json::to_vec(object)?,
            may_be_gone: false,
        })
    }

    /// Deletes an object.
    pub fn delete(path: &str, name: &str) -> Self {
        Self {
            method: http::Method::DELETE,
            path: format!("{path}/{name}"),
            content_type: "application/json",
            body: Vec::new(),
            may_be_gone: false,
        }
    }

    /// The same, without any grace, of one that may be gone already.
    pub fn delete_now(path: &str, name: &str) -> Self {
        Self {
            may_be_gone: true,
            ..Self::delete(path, &format!("{name}?gracePeriodSeconds=0"))
        }
    }

    /// Merges into the status of an object.
    pub fn status(path: &str, name: &str, status: &Value) -> Result<Self> {
        Ok(Self {
            method: http::Method::PATCH,
            path: format!("{path}/{name}/status"),
            content_type: "application/merge-patch+json",
            body: serde_json::to_vec(&json!({ "status": status }))?,
            may_be_gone: false,
        })
    }

    /// Makes the call, and takes the whole answer, but does not look into it.
    pub async fn make(self, client: &Client) -> Result<()> {
        let Self {
            method,
            path,
            content_type,
            body,
            may_be_gone,
        } = self;
        let request = http::Request::builder().method(method).uri(&path);
        let request = request.header(http::header::CONTENT_TYPE, content_type);
        let answer = client.send(request.body(body.into())?).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        let gone = may_be_gone && status == http::StatusCode::NOT_FOUND;
        ensure!(
            status.is_success() || gone,
            "{path} was answered {status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(())
    }
}

/// Makes calls with limited concurrency, one task per worker.
pub async fn make_all(client: &Client, calls: Vec<Call>, at_once: usize) -> Result<()> {
    let calls = Arc::new(std::sync::Mutex::new(calls.into_iter()));
    let mut workers = JoinSet::new();
    for _ in 0..at_once {
        let (calls, client) = (calls.clone(), client.clone());
        workers.spawn(async move {
            loop {
                let next = calls.lock().map_or(None, |mut calls| calls.next());
                let Some(call) = next else {
                    return anyhow::Ok(());
                };
                call.make(&client).await?;
            }
        });
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}
