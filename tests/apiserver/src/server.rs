use std::{
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use http::{HeaderValue, header::USER_AGENT};
use kube::{Client, Config, client::ClientBuilder, config::AuthInfo};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::sync::OnceCell;
use tower::util::MapRequestLayer;

use crate::{
    Write as AuditedWrite, audit, eventually, install::install,
    namespace_scope::restrict_to_namespace, pki,
};

const ADMIN_TOKEN: &str = "admin-token";
const GUARDIAN: &str = include_str!("server.sh");
/// Audit writes only: reads would hide them.
const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: None, users: ['system:apiserver']}
  - {level: None, verbs: [get, list, watch]}
  - {level: Metadata}
";
const STARTS_WITHIN: Duration = Duration::from_secs(180);

/// A program of the test server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The etcd that stores the objects.
    Etcd,
    /// The kube-apiserver.
    ApiServer,
}

impl Part {
    /// Name of the program in guardian commands.
    fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "apiserver",
        }
    }
}

/// An etcd and a kube-apiserver for tests.
#[derive(Debug)]
pub struct Server {
    port: u16,
    crd_port: u16,
    ca: String,
    dir: PathBuf,
    /// Stops both programs and removes their folder when its stdin is closed, also if the test
    /// process is killed.
    guardian: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        self.guardian.wait().ok();
    }
}

impl Server {
    /// Returns the server that all tests of this process share, with CRDs and RBAC rules installed.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Server> = OnceCell::const_new();
        SHARED.get_or_init(Self::installed).await
    }

    /// Starts a server with CRDs and RBAC rules installed.
    pub async fn installed() -> Self {
        let server = Self::start().await;
        install(server.client("installs")).await;
        server
    }

    /// Starts an empty server.
    ///
    /// # Panics
    /// If `KUBEBUILDER_ASSETS` is not a folder with both programs, or they do not start.
    pub async fn start() -> Self {
        // Another process may take a free port before the server binds it.
        for _ in 0..3 {
            let server = Self::launch();
            match server.wait_until_ready().await {
                Ok(()) => return server,
                Err(why) if why.contains("address already in use") => {}
                Err(why) => panic!("{why}"),
            }
        }
        panic!("found no free ports in three tries");
    }

    fn launch() -> Self {
        let assets = assets();
        let dir = tempfile::Builder::new().prefix("di-apiserver-").tempdir();
        let dir = dir.unwrap().keep();
        let ca = pki::write_pki(&dir);
        std::fs::write(dir.join("audit-policy.yaml"), AUDIT_POLICY).unwrap();
        let tokens = format!("{ADMIN_TOKEN},admin,admin,system:masters\n");
        std::fs::write(dir.join("tokens.csv"), tokens).unwrap();
        std::fs::write(dir.join("audit.log"), "").unwrap();
        let [port, etcd, peer, crd_port] = free_ports();
        let guardian = Command::new("sh")
            .args(["-c", GUARDIAN])
            .env("ASSETS", assets)
            .env("DIR", &dir)
            .env("API_PORT", port.to_string())
            .env("ETCD_PORT", etcd.to_string())
            .env("PEER_PORT", peer.to_string())
            .env("CRD_PORT", crd_port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            port,
            crd_port,
            ca,
            dir,
            guardian,
        }
    }

    /// Kills the API server and starts it again on the same etcd, so that watches must be reopened.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&self) {
        self.kill_parts(&[Part::ApiServer]).await;
        self.start_parts(&[Part::ApiServer]).await;
    }

    /// Kills programs of the server. The data of etcd stays.
    ///
    /// # Panics
    /// If they cannot be killed.
    pub async fn kill_parts(&self, parts: &[Part]) {
        for part in parts {
            self.send_command(&format!("kill_{}", part.name())).await;
        }
    }

    /// Starts killed programs again, and waits until all are ready.
    ///
    /// # Panics
    /// If they do not start.
    pub async fn start_parts(&self, parts: &[Part]) {
        for part in parts {
            self.send_command(&format!("start_{}", part.name())).await;
        }
        self.wait_until_ready().await.unwrap();
    }

    /// Starts the apiextensions server of the newest Kubernetes (`CRD_SERVER`) and returns a client
    /// of it. It has no kinds.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_newest_crd_server(&self) -> Client {
        let advice = "run these tests with CRD_SERVER=$(kind/crd-server)";
        assert!(
            std::env::var_os("CRD_SERVER").is_some(),
            "CRD_SERVER is not set: {advice}"
        );
        self.send_command("start_crd_server").await;
        let mut config = self.config("test");
        config.cluster_url = format!("https://127.0.0.1:{}", self.crd_port)
            .parse()
            .unwrap();
        let client = di_cache::build_client(config).unwrap();
        eventually("the newer server is ready", async || {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            let answer = client.request_text(request).await;
            answer.map_err(|error| format!("{error}\n{}", self.log_tail("crd-server.log")))
        })
        .await;
        client
    }

    /// Sends a command to the guardian, and waits until it has run.
    async fn send_command(&self, command: &str) {
        let done = || std::fs::read(self.dir.join("done")).map_or(0, |done| done.len());
        let before = done();
        let mut stdin = self.guardian.stdin.as_ref().unwrap();
        writeln!(stdin, "{command}").unwrap();
        eventually("the guardian has run the command", async || {
            let is_done = done() > before;
            is_done.then_some(()).ok_or_else(String::new)
        })
        .await;
    }

    async fn wait_until_ready(&self) -> Result<(), String> {
        let client = self.client("waits for the server");
        let deadline = Instant::now() + STARTS_WITHIN;
        loop {
            let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
            if client.request_text(request).await.is_ok() {
                return Ok(());
            }
            let logs = self.logs();
            if logs.contains("address already in use") || Instant::now() > deadline {
                return Err(format!("the server is not ready:\n{logs}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The end of the logs of all programs.
    pub(crate) fn logs(&self) -> String {
        format!(
            "{}\n{}",
            self.log_tail("etcd.log"),
            self.log_tail("apiserver.log")
        )
    }

    /// The end of one log.
    fn log_tail(&self, file: &str) -> String {
        let text = std::fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// The folder of the server, with the CA certificate as `ca.crt`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// URL of the server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Token of a cluster administrator.
    pub fn token(&self) -> &'static str {
        ADMIN_TOKEN
    }

    /// Client configuration of a cluster administrator; `agent` is the user agent in the audit log.
    pub fn config(&self, agent: &str) -> Config {
        // Tests and the code under test both install the provider; the second call fails.
        rustls::crypto::ring::default_provider()
            .install_default()
            .ok();
        let mut config = Config::new(self.url().parse().unwrap());
        let ca = CertificateDer::from_pem_slice(self.ca.as_bytes()).unwrap();
        config.root_cert = Some(vec![ca.to_vec()]);
        let agent = HeaderValue::from_str(agent).unwrap();
        config.headers.push((USER_AGENT, agent));
        config.auth_info = AuthInfo {
            token: Some(ADMIN_TOKEN.to_owned().into()),
            ..AuthInfo::default()
        };
        config
    }

    /// A client of a cluster administrator; `agent` is the user agent in the audit log.
    pub fn client(&self, agent: &str) -> Client {
        di_cache::build_client(self.config(agent)).unwrap()
    }

    /// A client of a user whose only group is `system:authenticated`.
    pub fn client_of(&self, user: &str) -> Client {
        let mut config = self.config(user);
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = Some(vec!["system:authenticated".to_owned()]);
        di_cache::build_client(config).unwrap()
    }

    /// A client with the permissions of the manager's service account. It sees one namespace only,
    /// so that tests do not touch each other's jobs.
    pub fn client_of_manager(&self, agent: &str, namespace: &str) -> Client {
        let account = "system:serviceaccount:di-system:di-orchestrator";
        self.namespaced_client_of(account, agent, namespace)
    }

    /// The same as `client_of_manager` with the permissions of another user.
    pub fn namespaced_client_of(&self, user: &str, agent: &str, namespace: &str) -> Client {
        let mut config = self.config(agent);
        config.auth_info.impersonate = Some(user.to_owned());
        let namespace = namespace.to_owned();
        let narrow = MapRequestLayer::new(move |mut request: http::Request<_>| {
            if let Some(uri) = restrict_to_namespace(request.uri(), &namespace) {
                *request.uri_mut() = uri;
            }
            request
        });
        let client = ClientBuilder::try_from(config).unwrap();
        client.with_layer(&narrow).build()
    }

    /// Returns the minor version of Kubernetes.
    pub async fn minor_version(&self) -> u32 {
        let version = self.client("test").apiserver_version().await.unwrap();
        // Some builds add a plus.
        version.minor.trim_end_matches('+').parse().unwrap()
    }

    /// Returns all writes in a namespace, in the order of their responses.
    pub async fn writes(&self, namespace: &str) -> Vec<AuditedWrite> {
        audit::writes(&self.audit_log(), 0, &self.client("test"), namespace).await
    }

    /// Length of the audit log, in bytes.
    pub(crate) fn audit_log_length(&self) -> u64 {
        std::fs::metadata(self.audit_log()).unwrap().len()
    }

    /// Path of the audit log.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }
}

/// Returns the folder of etcd and kube-apiserver.
fn assets() -> PathBuf {
    let advice = "run these tests with KUBEBUILDER_ASSETS=$(kind/assets)";
    let Some(dir) = std::env::var_os("KUBEBUILDER_ASSETS") else {
        panic!("KUBEBUILDER_ASSETS is not set: {advice}");
    };
    let dir = PathBuf::from(dir);
    for program in ["etcd", "kube-apiserver"] {
        let program = dir.join(program);
        assert!(
            program.exists(),
            "{} does not exist: {advice}",
            program.display()
        );
    }
    dir
}

fn free_ports() -> [u16; 4] {
    let listeners = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}
