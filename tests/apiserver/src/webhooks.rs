use std::{
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use di_admission::{DryRunSettings, Metrics, PolicyDenials, Settings, run};
use jiff::Timestamp;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::{Namespace, Secret, Service},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use prometheus_client::registry::Registry;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::json;
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::{JoinHandle, spawn_blocking},
};

use crate::{SPACE_LABEL, Space, dry_run, install::apply_changed};

/// The webhooks of `manifests/webhook-only`, served by this process for one namespace. They have
/// the permissions of the manifests; the API server reaches them through an ExternalName service.
pub struct Webhooks {
    space: Space,
    settings: Settings,
    replicas: Vec<Replica>,
}

struct Replica {
    addr: SocketAddr,
    ready: watch::Receiver<bool>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Webhooks {
    /// Installs the manifests without starting a replica.
    pub async fn install(space: &Space, lifetime: Duration) -> Self {
        let namespace = space.namespace.clone();
        let settings = Settings {
            addr: free_address().await,
            namespace: namespace.clone(),
            mutating_configuration: configuration_name(&namespace),
            validating_configuration: configuration_name(&namespace),
            lifetime,
            check_interval: Duration::from_millis(500),
            propagation: Duration::from_secs(10),
            authorization_cache_ttl: Duration::from_secs(1),
            drain: Duration::ZERO,
            ..Settings::default()
        };
        let webhooks = Self {
            space: space.clone(),
            settings,
            replicas: Vec::new(),
        };
        // The test namespace is both the system namespace and the one under test.
        let renamed = |text: String| {
            text.replace("di-system", &namespace)
                .replace(
                    "name: di-orchestrator-webhooks",
                    &format!("name: {}", configuration_name(&namespace)),
                )
                .replace(
                    "[di-webhook]",
                    &format!("[{}]", configuration_name(&namespace)),
                )
        };
        for file in [
            "rbac/webhooks/service-account.yaml",
            "rbac/webhooks/roles.yaml",
        ] {
            apply_changed(&space.client, file, renamed).await;
        }
        let port = webhooks.settings.addr.port();
        apply_changed(&space.client, "base/webhooks.yaml", |text| {
            let mine = format!(
                "    namespaceSelector:\n      matchLabels:\n        {SPACE_LABEL}: {namespace}\n    failurePolicy:"
            );
            let renamed = renamed(text);
            renamed
                .replacen("name: di-webhook\n", &format!("name: {}\n", configuration_name(&namespace)), 1)
                .replace("kind: ValidatingWebhookConfiguration\nmetadata:\n  name: di-webhook\n", &format!("kind: ValidatingWebhookConfiguration\nmetadata:\n  name: {}\n", configuration_name(&namespace)))
                .replace("port: 443", &format!("port: {port}"))
                .replace("    failurePolicy:", &mine)
        })
        .await;
        webhooks.serve_by_this_machine().await;
        webhooks
    }

    /// Serves the webhooks installed in `di-system` for all namespaces, and waits until the API
    /// server calls them.
    pub async fn of_installed(space: &Space) -> Self {
        let webhooks = Self {
            space: space.clone(),
            settings: Settings {
                addr: free_address().await,
                check_interval: Duration::from_millis(500),
                propagation: Duration::from_secs(10),
                drain: Duration::ZERO,
                ..Settings::default()
            },
            replicas: Vec::new(),
        };
        let settings = &webhooks.settings;
        let services: Api<Service> = Api::namespaced(space.client.clone(), &settings.namespace);
        // An ExternalName service must not have a cluster IP, so create it again.
        services
            .delete(&settings.service, &DeleteParams::default())
            .await
            .unwrap();
        webhooks.serve_by_this_machine().await;
        let port = json!([{
            "op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": settings.addr.port(),
        }]);
        let port: Patch<()> = Patch::Json(serde_json::from_value(port).unwrap());
        let params = PatchParams::default();
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(space.client.clone());
        let name = &settings.mutating_configuration;
        mutating.patch(name, &params, &port).await.unwrap();
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(space.client.clone());
        let name = &settings.validating_configuration;
        validating.patch(name, &params, &port).await.unwrap();
        let mut webhooks = webhooks;
        webhooks.add().await;
        webhooks.until_called().await;
        webhooks
    }

    async fn serve_by_this_machine(&self) {
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "di-webhook", "namespace": self.settings.namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        let params = PatchParams::apply("tests");
        let services: Api<Service> =
            Api::namespaced(self.space.client.clone(), &self.settings.namespace);
        services
            .patch("di-webhook", &params, &Patch::Apply(&service))
            .await
            .unwrap();
    }

    /// Installs the manifests, starts one replica, and waits until the API server calls it.
    pub async fn start(space: &Space) -> Self {
        let mut webhooks = Self::install(space, Duration::from_secs(3600)).await;
        webhooks.add().await;
        webhooks.until_called().await;
        webhooks
    }

    /// The same as `start` with the dry run of pods, for which the webhooks may create pods.
    pub async fn start_with_dry_run(space: &Space, denials: PolicyDenials) -> Self {
        let mut webhooks = Self::install(space, Duration::from_secs(3600)).await;
        webhooks.settings.dry_run = Some(DryRunSettings {
            denials,
            ..DryRunSettings::default()
        });
        webhooks.allow_pods().await;
        webhooks.add().await;
        webhooks.until_called().await;
        webhooks
    }

    async fn allow_pods(&self) {
        let (client, namespace) = (&self.space.client, &self.settings.namespace);
        let role = json!({
            "metadata": {"name": "dry-run"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}],
        });
        let binding = json!({
            "metadata": {"name": "dry-run"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dry-run"},
            "subjects": [{"kind": "ServiceAccount", "name": "di-orchestrator", "namespace": namespace}],
        });
        let params = PostParams::default();
        let roles: Api<Role> = Api::namespaced(client.clone(), namespace);
        let role = serde_json::from_value(role).unwrap();
        roles.create(&params, &role).await.unwrap();
        let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
        let binding = serde_json::from_value(binding).unwrap();
        bindings.create(&params, &binding).await.unwrap();
    }

    /// Starts another replica and waits until it is ready. Every replica but the first has its own
    /// address.
    pub async fn add(&mut self) {
        self.add_with_clock(Timestamp::now).await;
    }

    /// The same as `add` with another clock.
    pub async fn add_with_clock(&mut self, clock: fn() -> Timestamp) {
        self.start_replica(clock).await;
        self.until_ready().await;
    }

    /// Waits until all replicas are ready.
    pub async fn until_ready(&self) {
        for replica in &self.replicas {
            let mut ready = replica.ready.clone();
            ready.wait_for(|ready| *ready).await.unwrap();
        }
    }

    /// Starts another replica with this clock without waiting.
    pub async fn start_replica(&mut self, clock: fn() -> Timestamp) {
        let mut settings = Settings {
            clock,
            ..self.settings.clone()
        };
        if !self.replicas.is_empty() {
            settings.addr = free_address().await;
        }
        let (sender, ready) = watch::channel(false);
        let (stop, stopped) = oneshot::channel::<()>();
        let addr = settings.addr;
        let client = self.client();
        let task = tokio::spawn(async move {
            let metrics = Metrics::register(&mut Registry::default());
            let shutdown = async {
                stopped.await.ok();
            };
            run(client, settings, metrics, sender, shutdown)
                .await
                .unwrap();
        });
        self.replicas.push(Replica {
            addr,
            ready,
            stop,
            task,
        });
    }

    /// Stops all replicas gracefully.
    pub async fn stop(mut self) {
        self.stop_all().await;
    }

    /// Stops all replicas; more can be added later.
    pub async fn stop_all(&mut self) {
        for replica in std::mem::take(&mut self.replicas) {
            replica.stop.send(()).ok();
            replica.task.await.unwrap();
        }
    }

    /// A client with the webhooks' permissions.
    fn client(&self) -> Client {
        let account = format!(
            "system:serviceaccount:{}:di-orchestrator",
            self.settings.namespace
        );
        self.space.server.client_of(&account)
    }

    /// Address of the first replica.
    pub fn address(&self) -> SocketAddr {
        self.settings.addr
    }

    /// Returns the certificate of each replica, verified against these CAs as the API server does.
    ///
    /// # Errors
    /// If a replica cannot be reached or verified.
    pub async fn served_certificates(&self, authorities: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities) {
            let authority = authority.map_err(|error| error.to_string())?;
            roots.add(authority).map_err(|error| error.to_string())?;
        }
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let config = Arc::new(config);
        let name = self.settings.dns_names()[0].clone();
        let addresses: Vec<_> = self.replicas.iter().map(|replica| replica.addr).collect();
        let asked = spawn_blocking(move || {
            let leaves = addresses
                .into_iter()
                .map(|addr| served_leaf(addr, &name, &config));
            leaves.collect::<Result<_, String>>()
        });
        asked.await.unwrap()
    }

    /// Whether all replicas are ready.
    pub fn is_ready(&self) -> bool {
        self.replicas.iter().all(|replica| *replica.ready.borrow())
    }

    /// The certificate Secret.
    pub async fn secret(&self) -> Option<Secret> {
        self.secrets().get_opt(&self.settings.secret).await.unwrap()
    }

    /// API of the Secrets in the namespace.
    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.space.client.clone(), &self.settings.namespace)
    }

    /// Waits until the API server calls the webhooks: a job that the schema accepts is rejected
    /// then.
    pub async fn until_called(&self) {
        let bad = json!({
            "apiVersion": "diengine.opendilab.org/v1alpha2",
            "kind": "DIJob",
            "metadata": {"name": "bad"},
            "spec": {"coordinator": {"template": {"spec": {"containers": [{"name": "x", "image": "i"}]}}}},
        });
        let bad: di_api::DIJob = serde_json::from_value(bad).unwrap();
        crate::eventually("the API server calls the webhooks", async || {
            match self.space.jobs().create(&dry_run(), &bad).await {
                Err(kube::Error::Api(status)) if status.message.contains("di-container") => Ok(()),
                other => Err(format!("{other:?}\n{}", self.space.server.logs())),
            }
        })
        .await;
    }

    /// Makes the API server call the webhooks for another namespace, too.
    pub async fn add_namespace(&self, namespace: &str) {
        let label = json!({"metadata": {"labels": {SPACE_LABEL: self.settings.namespace}}});
        let api: Api<Namespace> = Api::all(self.space.client.clone());
        api.patch(namespace, &PatchParams::default(), &Patch::Merge(&label))
            .await
            .unwrap();
    }
}

fn served_leaf(
    addr: SocketAddr,
    name: &str,
    config: &Arc<ClientConfig>,
) -> Result<Vec<u8>, String> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = ClientConnection::new(config.clone(), name).unwrap();
    let mut stream = TcpStream::connect(addr).map_err(|error| error.to_string())?;
    while connection.is_handshaking() {
        let done = connection.complete_io(&mut stream);
        done.map_err(|error| format!("{addr}: {error}"))?;
    }
    let chain = connection.peer_certificates().unwrap();
    Ok(chain[0].to_vec())
}

fn configuration_name(namespace: &str) -> String {
    format!("di-webhook-{namespace}")
}

async fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}
