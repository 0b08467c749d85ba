//! An API server with the orchestrator's programs at it, and a plain client that does what they do by itself.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use di_api::{DIJob, Phase, names};
use di_apiserver_tests::{Proxy, Server, Write};
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::harness::{
    calls::{Call, make_all},
    changes::Count,
    child::{Process, answers, free_address},
    fleet::manifest,
    scale::PATIENCE,
};

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
