use std::{
    net::{IpAddr, SocketAddr},
    ops::Deref,
    time::Duration,
};

use di_replicas::{Metrics, Settings, State, serve, watch};
use kube::Client;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};

use crate::{Proxy, Space, chance::percent, eventually};

/// A replica endpoint of this process.
pub struct Endpoint {
    caller: Caller,
    // Dropping them ends what they run.
    watches: JoinSet<()>,
    _server: JoinSet<()>,
    _proxy: Option<Proxy>,
}

/// A client of an endpoint.
#[derive(Clone)]
pub struct Caller {
    address: SocketAddr,
    namespace: String,
    http: reqwest::Client,
    token: Option<String>,
}

/// What an endpoint answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status of the answer.
    pub status: u16,
    /// Its body.
    pub body: Value,
}

/// How long a client waits before it sends a request again.
const AGAIN: Duration = Duration::from_millis(100);

impl Answer {
    /// Whether it tells of a fault that was made by chance.
    fn is_by_chance(&self) -> bool {
        let told = self.body["message"].as_str().unwrap_or_default();
        let of_faults = [
            "a fault of the test",
            "cannot be reached",
            "could not be read from the API server",
            "not synced yet",
        ];
        self.status == 503 && of_faults.iter().any(|fault| told.contains(fault))
    }

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

impl Deref for Endpoint {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

impl Endpoint {
    /// Starts one that lets everybody in.
    pub async fn start(space: &Space, agent: &str) -> Self {
        let settings = Settings {
            allow_anonymous: true,
            ..Settings::default()
        };
        Self::start_with(space, agent, settings).await
    }

    /// Starts one of these settings.
    pub async fn start_with(space: &Space, agent: &str, settings: Settings) -> Self {
        let (client, proxy) = space.client_of(agent);
        Self {
            _proxy: proxy,
            ..Self::with(space, client, settings).await
        }
    }

    /// Starts one of these settings, with a client of the test's own.
    pub async fn with(space: &Space, client: Client, settings: Settings) -> Self {
        let metrics = Metrics::default();
        let mut watches = JoinSet::new();
        let (jobs, pods) = watch(&client, &mut watches, &metrics);
        jobs.store().wait_until_ready().await.unwrap();
        pods.synced().wait_for(|synced| *synced).await.unwrap();
        let state = State::new(client, jobs, pods, settings, metrics);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let caller = Caller {
            address: listener.local_addr().unwrap(),
            namespace: space.namespace.clone(),
            http: reqwest::Client::new(),
            token: None,
        };
        let mut server = JoinSet::new();
        server.spawn(async move { serve(listener, state, std::future::pending()).await });
        Self {
            caller,
            watches,
            _server: server,
            _proxy: None,
        }
    }

    /// Its caches get to know nothing more.
    pub async fn stop_watching(&mut self) {
        self.watches.shutdown().await;
    }
}

impl Caller {
    /// Where it calls.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same, but by way of another address.
    #[must_use]
    pub fn at(&self, address: SocketAddr) -> Self {
        Self {
            address,
            http: reqwest::Client::new(),
            ..self.clone()
        }
    }

    /// The same, but from this source address.
    #[must_use]
    pub fn from(&self, source: IpAddr) -> Self {
        let http = reqwest::Client::builder().local_address(source).build();
        Self {
            http: http.unwrap(),
            ..self.clone()
        }
    }

    /// The same, but about jobs of another namespace.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    /// The same, but with a bearer token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..self.clone()
        }
    }

    /// A request to `path` below `/v1alpha2/replicas`.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("http://{}/v1alpha2/replicas{path}", self.address);
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request; an error is an answer that did not come. One that is told of a fault by chance sends it again, as clients do.
    pub async fn send(request: RequestBuilder) -> reqwest::Result<Answer> {
        loop {
            let again = request.try_clone().unwrap();
            let answer = again.send().await?;
            let answer = Answer {
                status: answer.status().as_u16(),
                body: answer.json().await?,
            };
            if percent() == 0 || !answer.is_by_chance() {
                return Ok(answer);
            }
            sleep(AGAIN).await;
        }
    }

    /// A request that changes a job.
    pub fn change(
        &self,
        method: Method,
        path: &str,
        job: &str,
        key: Option<&str>,
        mut body: Value,
    ) -> RequestBuilder {
        body["namespace"] = self.namespace.clone().into();
        body["coordinator"] = format!("{job}-coordinator").into();
        let request = self.request(method, path).json(&body);
        match key {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        }
    }

    /// Asks for collectors.
    pub async fn add(&self, job: &str, collectors: usize, key: Option<&str>) -> Answer {
        let body = json!({"collectors": {"replicas": collectors}});
        let request = self.change(Method::POST, "", job, key, body);
        Self::send(request).await.unwrap()
    }

    /// Asks for learners with so many GPUs each.
    pub async fn add_learners(&self, job: &str, learners: usize, gpus: u32) -> Answer {
        let body = json!({"learners": {"replicas": learners, "gpus": gpus}});
        let request = self.change(Method::POST, "", job, None, body);
        Self::send(request).await.unwrap()
    }

    /// Gives learners back.
    pub async fn remove_learners(&self, job: &str, learners: usize) -> Answer {
        let body = json!({"learners": {"replicas": learners}});
        let request = self.change(Method::DELETE, "", job, None, body);
        Self::send(request).await.unwrap()
    }

    /// Gives collectors back.
    pub async fn remove(&self, job: &str, collectors: usize) -> Answer {
        self.remove_by(job, collectors, None).await
    }

    /// Gives collectors back, by a key.
    pub async fn remove_by(&self, job: &str, collectors: usize, key: Option<&str>) -> Answer {
        let body = json!({"collectors": {"replicas": collectors}});
        let request = self.change(Method::DELETE, "", job, key, body);
        Self::send(request).await.unwrap()
    }

    /// Reports a collector that cannot be used.
    pub async fn failed(&self, job: &str, pod: &str) -> Answer {
        let body = json!({"collectors": [pod]});
        let request = self.change(Method::POST, "/failed", job, None, body);
        Self::send(request).await.unwrap()
    }

    /// Reports replicas that cannot be used, in words of one's own.
    pub async fn report(&self, mut body: Value) -> Answer {
        body["namespace"] = self.namespace.clone().into();
        let request = self.request(Method::POST, "/failed").json(&body);
        Self::send(request).await.unwrap()
    }

    /// Lists what a query in the test's namespace asks for.
    pub async fn get(&self, query: &str) -> Answer {
        let query = format!("?namespace={}&{query}", self.namespace);
        let request = self.request(Method::GET, &query);
        Self::send(request).await.unwrap()
    }

    /// Lists a job's replicas.
    pub async fn list(&self, job: &str) -> Answer {
        self.list_in(&self.namespace, job).await
    }

    /// Waits until it lists exactly these: it hears of jobs and of pods by watches of its own.
    pub async fn until_listed(&self, job: &str, replicas: &[String]) {
        let mut replicas = replicas.to_vec();
        replicas.sort();
        eventually("the endpoint lists them", async || {
            let listed = self.list(job).await.pods();
            if listed == replicas {
                Ok(())
            } else {
                Err(format!("{listed:?}, not {replicas:?}"))
            }
        })
        .await;
    }

    /// Lists the replicas of a job in a namespace.
    pub async fn list_in(&self, namespace: &str, job: &str) -> Answer {
        let query = format!("?namespace={namespace}&coordinator={job}-coordinator");
        let request = self.request(Method::GET, &query);
        Self::send(request).await.unwrap()
    }
}
