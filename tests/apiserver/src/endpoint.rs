use std::sync::Arc;

use di_cache::{JobCache, PodCache, feed_pods, job_stream};
use di_replicas::{Settings, State, serve};
use futures::StreamExt;
use kube::runtime::reflector;
use prometheus_client::registry::Registry;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

use crate::Space;

/// A replica endpoint of this process, and a client of it.
pub struct Endpoint {
    url: String,
    namespace: String,
    http: Client,
    // Dropping it ends them.
    _tasks: JoinSet<()>,
}

/// What it answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status of the answer.
    pub status: u16,
    /// Its body.
    pub body: Value,
}

impl Answer {
    /// Pod names of the answered URLs, sorted.
    pub fn pods(&self) -> Vec<String> {
        assert_eq!(self.body["success"], true, "{self:?}");
        let urls = ["collectors", "learners"].map(|key| self.body["data"][key].as_array());
        let urls = urls.into_iter().flatten().flatten();
        let mut names: Vec<_> = urls
            .map(|url| url.as_str().unwrap().split('.').next().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }
}

impl Endpoint {
    /// Starts one that lets everybody in.
    pub async fn start(space: &Space, agent: &str) -> Self {
        let client = space.server.client_of_manager(agent, &space.namespace);
        let (reader, writer) = reflector::store();
        let jobs = Arc::new(JobCache::new(reader));
        let pods = Arc::new(PodCache::default());
        let mut tasks = JoinSet::new();
        let stream = job_stream(client.clone(), writer);
        tasks.spawn(stream.for_each(async |_| {}));
        let (changed, mut concerned) = mpsc::channel(64);
        tasks.spawn(feed_pods(client.clone(), pods.clone(), changed));
        tasks.spawn(async move { while concerned.recv().await.is_some() {} });
        let settings = Settings {
            allow_anonymous: true,
            ..Settings::default()
        };
        let state = State::new(client, jobs, pods, settings, Registry::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!(
            "http://{}/v1alpha2/replicas",
            listener.local_addr().unwrap()
        );
        tasks.spawn(async move { serve(listener, state, std::future::pending()).await });
        Self {
            url,
            namespace: space.namespace.clone(),
            http: Client::new(),
            _tasks: tasks,
        }
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        job: &str,
        key: Option<&str>,
        mut body: Value,
    ) -> Answer {
        body["coordinator"] = format!("{job}-coordinator").into();
        self.send(method, path, key, body).await
    }

    /// Sends a body about what is in the test's namespace.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        mut body: Value,
    ) -> Answer {
        body["namespace"] = self.namespace.clone().into();
        let request = self.http.request(method, format!("{}{path}", self.url));
        let mut request = request.json(&body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let answer = request.send().await.unwrap();
        Answer {
            status: answer.status().as_u16(),
            body: answer.json().await.unwrap(),
        }
    }

    /// Asks for collectors.
    pub async fn add(&self, job: &str, collectors: usize, key: Option<&str>) -> Answer {
        let body = json!({"collectors": {"replicas": collectors}});
        self.call(Method::POST, "", job, key, body).await
    }

    /// Asks for learners with so many GPUs each.
    pub async fn add_learners(&self, job: &str, learners: usize, gpus: u32) -> Answer {
        let body = json!({"learners": {"replicas": learners, "gpus": gpus}});
        self.call(Method::POST, "", job, None, body).await
    }

    /// Gives learners back.
    pub async fn remove_learners(&self, job: &str, learners: usize) -> Answer {
        let body = json!({"learners": {"replicas": learners}});
        self.call(Method::DELETE, "", job, None, body).await
    }

    /// Gives collectors back.
    pub async fn remove(&self, job: &str, collectors: usize) -> Answer {
        let body = json!({"collectors": {"replicas": collectors}});
        self.call(Method::DELETE, "", job, None, body).await
    }

    /// Reports a collector that cannot be used.
    pub async fn failed(&self, job: &str, pod: &str) -> Answer {
        let body = json!({"collectors": [pod]});
        self.call(Method::POST, "/failed", job, None, body).await
    }

    /// Lists a job's replicas.
    pub async fn list(&self, job: &str) -> Answer {
        self.get(&format!("coordinator={job}-coordinator")).await
    }

    /// Lists what a query in the test's namespace asks for.
    pub async fn get(&self, query: &str) -> Answer {
        let (url, namespace) = (&self.url, &self.namespace);
        let url = format!("{url}?namespace={namespace}&{query}");
        let answer = self.http.get(url).send().await.unwrap();
        Answer {
            status: answer.status().as_u16(),
            body: answer.json().await.unwrap(),
        }
    }
}
