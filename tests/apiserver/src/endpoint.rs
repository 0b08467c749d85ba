use std::{
    net::{IpAddr, SocketAddr},
    ops::Deref,
    time::Duration,
};

use di_replicas::{Metrics, Settings, State, serve, start_watches};
use kube::Client;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};

use crate::{Proxy, Space, eventually, random_faults::fault_percent};

/// A replica endpoint that runs in this process.
pub struct Endpoint {
    caller: Caller,
    // Dropping them stops their tasks.
    watches: JoinSet<()>,
    _server: JoinSet<()>,
    _proxy: Option<Proxy>,
}

/// An HTTP client of an endpoint.
#[derive(Clone)]
pub struct Caller {
    address: SocketAddr,
    namespace: String,
    http: reqwest::Client,
    token: Option<String>,
}

/// A response of the endpoint.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// JSON body.
    pub body: Value,
}

/// Delay before a request is sent again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

impl Answer {
    /// Whether the response reports an injected random fault.
    fn is_random_fault(&self) -> bool {
        let message = self.body["message"].as_str().unwrap_or_default();
        let of_faults = [
            "a fault of the test",
            "cannot be reached",
            "could not be read from the API server",
            "did not respond in time",
            "not synced yet",
        ];
        self.status == 503 && of_faults.iter().any(|fault| message.contains(fault))
    }

    /// Returns the pod names of the URLs in the response, sorted.
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
    /// Starts an endpoint that allows anonymous requests.
    pub async fn start(space: &Space, agent: &str) -> Self {
        let settings = Settings {
            allow_anonymous: true,
            ..Settings::default()
        };
        Self::start_with(space, agent, settings).await
    }

    /// Starts an endpoint with these settings.
    pub async fn start_with(space: &Space, agent: &str, settings: Settings) -> Self {
        let (client, proxy) = space.client_of(agent);
        Self {
            _proxy: proxy,
            ..Self::start_with_client(space, client, settings).await
        }
    }

    /// Starts an endpoint with these settings and this client.
    pub async fn start_with_client(space: &Space, client: Client, settings: Settings) -> Self {
        let metrics = Metrics::default();
        let mut watches = JoinSet::new();
        let (jobs, pods) = start_watches(&client, &mut watches, &metrics);
        jobs.reflector_store().wait_until_ready().await.unwrap();
        pods.subscribe_synced()
            .wait_for(|synced| *synced)
            .await
            .unwrap();
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

    /// Stops the watches, so that the caches no longer change.
    pub async fn stop_watching(&mut self) {
        self.watches.shutdown().await;
    }
}

impl Caller {
    /// Address of the endpoint.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the same caller with another address of the endpoint.
    #[must_use]
    pub fn with_address(&self, address: SocketAddr) -> Self {
        Self {
            address,
            http: reqwest::Client::new(),
            ..self.clone()
        }
    }

    /// Returns the same caller with this source IP.
    #[must_use]
    pub fn with_source_ip(&self, source: IpAddr) -> Self {
        let http = reqwest::Client::builder().local_address(source).build();
        Self {
            http: http.unwrap(),
            ..self.clone()
        }
    }

    /// Returns the same caller for jobs of another namespace.
    #[must_use]
    pub fn with_namespace(&self, namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            ..self.clone()
        }
    }

    /// Returns the same caller with a bearer token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..self.clone()
        }
    }

    /// Builds a request to `path` below `/v1alpha2/replicas`.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("http://{}/v1alpha2/replicas{path}", self.address);
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Sends a request, and sends it again after an injected random fault, as clients do. An error
    /// means that no response came.
    pub async fn send(request: RequestBuilder) -> reqwest::Result<Answer> {
        loop {
            let again = request.try_clone().unwrap();
            let answer = again.send().await?;
            let answer = Answer {
                status: answer.status().as_u16(),
                body: answer.json().await?,
            };
            if fault_percent() == 0 || !answer.is_random_fault() {
                return Ok(answer);
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Builds a request that changes a job.
    pub fn change_request(
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

    /// Requests collectors.
    pub async fn add(&self, job: &str, collectors: usize, key: Option<&str>) -> Answer {
        let body = json!({"collectors": {"replicas": collectors}});
        let request = self.change_request(Method::POST, "", job, key, body);
        Self::send(request).await.unwrap()
    }

    /// Requests learners with this number of GPUs each.
    pub async fn add_learners(&self, job: &str, learners: usize, gpus: u32) -> Answer {
        let body = json!({"learners": {"replicas": learners, "gpus": gpus}});
        let request = self.change_request(Method::POST, "", job, None, body);
        Self::send(request).await.unwrap()
    }

    /// Removes learners.
    pub async fn remove_learners(&self, job: &str, learners: usize) -> Answer {
        let body = json!({"learners": {"replicas": learners}});
        let request = self.change_request(Method::DELETE, "", job, None, body);
        Self::send(request).await.unwrap()
    }

    /// Removes collectors.
    pub async fn remove(&self, job: &str, collectors: usize) -> Answer {
        self.remove_with_key(job, collectors, None).await
    }

    /// Removes collectors with an idempotency key.
    pub async fn remove_with_key(&self, job: &str, collectors: usize, key: Option<&str>) -> Answer {
        let body = json!({"collectors": {"replicas": collectors}});
        let request = self.change_request(Method::DELETE, "", job, key, body);
        Self::send(request).await.unwrap()
    }

    /// Reports a failed collector.
    pub async fn report_failed(&self, job: &str, pod: &str) -> Answer {
        let body = json!({"collectors": [pod]});
        let request = self.change_request(Method::POST, "/failed", job, None, body);
        Self::send(request).await.unwrap()
    }

    /// Reports failed replicas with this body.
    pub async fn report(&self, mut body: Value) -> Answer {
        body["namespace"] = self.namespace.clone().into();
        let request = self.request(Method::POST, "/failed").json(&body);
        Self::send(request).await.unwrap()
    }

    /// Lists replicas by a query in the test's namespace.
    pub async fn get(&self, query: &str) -> Answer {
        let query = format!("?namespace={}&{query}", self.namespace);
        let request = self.request(Method::GET, &query);
        Self::send(request).await.unwrap()
    }

    /// Lists the replicas of a job.
    pub async fn list(&self, job: &str) -> Answer {
        self.list_in(&self.namespace, job).await
    }

    /// Waits until the endpoint lists exactly these replicas; its own watches lag behind the test.
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
