use std::future::Future;

use di_api::DIJob;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, Pod};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, ListParams, LogParams, PostParams},
};
use rand::RngExt;

use crate::eventually;

/// Creates a client of the cluster that KUBECONFIG names.
///
/// # Panics
/// If there is no such cluster.
pub async fn client() -> Client {
    // Another test of this process may have installed it already.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let config = Config::infer()
        .await
        .expect("KUBECONFIG: eval \"$(kind/env)\"");
    Client::try_from(config).expect("a client")
}

/// Parameters of a server-side dry run.
pub fn dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

/// A namespace of one test.
#[derive(Clone)]
pub struct Namespace {
    /// Client of the cluster.
    pub client: Client,
    /// Name of the namespace.
    pub name: String,
}

impl Namespace {
    /// Runs a test in a new namespace and deletes the namespace if the test passes; otherwise
    /// prints its state and keeps it.
    ///
    /// # Panics
    /// If the test panics.
    pub async fn with<F: Future<Output = ()>>(test: &str, body: impl FnOnce(Self) -> F) {
        let client = client().await;
        let name = format!("e2e-{test}-{:05}", rand::rng().random_range(0..100_000));
        let all: Api<NamespaceObject> = Api::all(client.clone());
        let object = serde_json::from_value(serde_json::json!({"metadata": {"name": name}}))
            .expect("a namespace");
        all.create(&PostParams::default(), &object)
            .await
            .expect("a namespace");
        let namespace = Self { client, name };
        namespace.wait_for_service_account().await;
        let result = std::panic::AssertUnwindSafe(Box::pin(body(namespace.clone())))
            .catch_unwind()
            .await;
        if let Err(panic) = result {
            namespace.print_state().await;
            std::panic::resume_unwind(panic);
        }
        let params = DeleteParams::background();
        match all.delete(&namespace.name, &params).await {
            // The test itself may have deleted it.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => drop(other.expect("namespace deleted")),
        }
    }

    /// Before Kubernetes 1.24, a new namespace rejects pods until its service account has a token.
    async fn wait_for_service_account(&self) {
        let pods: Api<Pod> = self.api();
        let pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }));
        let pod = pod.expect("a pod");
        let params = dry_run();
        let create = || pods.create(&params, &pod);
        let result = eventually("accepting pods", create, Result::is_ok).await;
        result.expect("a pod");
    }

    /// The API of a kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Submits a job.
    ///
    /// # Panics
    /// If the API server rejects it.
    pub async fn submit(&self, job: &DIJob) -> DIJob {
        let api: Api<DIJob> = self.api();
        api.create(&PostParams::default(), job)
            .await
            .expect("job accepted")
    }

    async fn print_state(&self) {
        let all = ListParams::default();
        if let Ok(jobs) = self.api::<DIJob>().list(&all).await {
            for job in jobs {
                eprintln!("{}: job {}: {:#?}", self.name, job.name_any(), job.status);
            }
        }
        if let Ok(pods) = self.api::<Pod>().list(&all).await {
            for pod in pods {
                let name = pod.name_any();
                eprintln!("{}: pod {name}: {:?}", self.name, pod.status);
                let last = LogParams {
                    tail_lines: Some(60),
                    ..LogParams::default()
                };
                let log = self.api::<Pod>().logs(&name, &last).await;
                eprintln!("{}", log.unwrap_or_else(|error| error.to_string()));
            }
        }
    }
}
