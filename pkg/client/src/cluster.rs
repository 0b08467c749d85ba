use std::{path::PathBuf, time::Duration};

use http::{Response, Uri};
use kube::{
    Client, Config,
    client::{ClientBuilder, ConfigExt},
    config::{KubeConfigOptions, KubeconfigError},
    error::Error as KubeError,
};
use secrecy::{ExposeSecret, SecretString};
use tower::{
    BoxError,
    buffer::BufferLayer,
    util::{MapErrLayer, MapResponseLayer, option_layer},
};

use crate::{
    Deadline, Error, Result, credentials,
    kubeconfig::listed,
    overrides, proxy,
    segment::check_namespace,
    trace::{Trace, TraceLayer},
    warnings,
};

/// Which cluster to talk to, as whom, and about which namespace; as kubectl's flags of the same names.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// A kubeconfig instead of those of KUBECONFIG and the home directory.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    pub context: Option<String>,
    /// Cluster of the kubeconfig.
    pub cluster: Option<String>,
    /// User of the kubeconfig.
    pub user: Option<String>,
    /// Namespace instead of the context's.
    pub namespace: Option<String>,
    /// User to impersonate.
    pub impersonate: Option<String>,
    /// Groups to impersonate.
    pub impersonate_groups: Vec<String>,
    /// UID to impersonate.
    pub impersonate_uid: Option<String>,
    /// What else is known of the user to impersonate; a key may come several times.
    pub impersonate_extra: Vec<(String, String)>,
    /// Address of the API server instead of the cluster's.
    pub server: Option<String>,
    /// File of the authority that the server's certificate is to come from.
    pub certificate_authority: Option<PathBuf>,
    /// Whether any certificate of the server will do.
    pub insecure_skip_tls_verify: bool,
    /// The name that the server's certificate is to have, instead of the address's.
    pub tls_server_name: Option<String>,
    /// File of a certificate to show.
    pub client_certificate: Option<PathBuf>,
    /// File of its key.
    pub client_key: Option<PathBuf>,
    /// Bearer token to show.
    pub token: Option<SecretString>,
    /// Name for basic authentication.
    pub username: Option<String>,
    /// Password for basic authentication.
    pub password: Option<SecretString>,
    /// Whether answers come as they are.
    pub disable_compression: bool,
    /// Who is told of requests.
    pub trace: Option<Trace>,
    /// How long one answer may take; none means for ever.
    pub request_timeout: Option<Duration>,
}

/// What a kubeconfig offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// Names of its contexts.
    pub contexts: Vec<String>,
    /// Names of its clusters.
    pub clusters: Vec<String>,
    /// Names of its users.
    pub users: Vec<String>,
}

/// The namespace that objects without one belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Whether the user asked for it, so that objects of another one must not slip through.
    pub explicit: bool,
}

/// A connection to a cluster.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) client: Client,
    server: String,
    namespace: Namespace,
    request_timeout: Option<Duration>,
}

impl ConnectOptions {
    /// The same, where what is empty counts as not given, as kubectl has it.
    #[must_use]
    pub fn without_empty(mut self) -> Self {
        for text in [
            &mut self.context,
            &mut self.cluster,
            &mut self.user,
            &mut self.namespace,
            &mut self.impersonate,
            &mut self.impersonate_uid,
            &mut self.server,
            &mut self.tls_server_name,
            &mut self.username,
        ] {
            text.take_if(|text| text.is_empty());
        }
        for path in [
            &mut self.kubeconfig,
            &mut self.certificate_authority,
            &mut self.client_certificate,
            &mut self.client_key,
        ] {
            path.take_if(|path| path.as_os_str().is_empty());
        }
        for secret in [&mut self.token, &mut self.password] {
            secret.take_if(|secret| secret.expose_secret().is_empty());
        }
        self.impersonate_groups.retain(|group| !group.is_empty());
        self
    }

    /// The namespace that is used where no cluster is configured.
    pub fn offline_namespace(&self) -> Namespace {
        Namespace {
            name: self
                .namespace
                .clone()
                .unwrap_or_else(|| "default".to_owned()),
            explicit: self.namespace.is_some(),
        }
    }

    /// Names of the contexts, clusters and users that there are to choose from.
    ///
    /// # Errors
    /// [`Error::Kubeconfig`] when a file cannot be read.
    pub fn choices(&self) -> Result<Choices> {
        let Some(kubeconfig) = self.kubeconfig()? else {
            return Ok(Choices::default());
        };
        Ok(Choices {
            contexts: kubeconfig.contexts.into_iter().map(|c| c.name).collect(),
            clusters: kubeconfig.clusters.into_iter().map(|c| c.name).collect(),
            users: kubeconfig.auth_infos.into_iter().map(|u| u.name).collect(),
        })
    }

    async fn config(&self) -> Result<Config> {
        let choice = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        let loaded = match self.kubeconfig()? {
            Some(kubeconfig) => {
                self.check_user(&kubeconfig)?;
                let proxy = self.proxy(&kubeconfig)?;
                let loaded = Config::from_custom_kubeconfig(kubeconfig, &choice).await;
                loaded.map(|mut config| {
                    config.proxy_url = proxy;
                    config
                })
            }
            None => Err(KubeconfigError::FindPath),
        };
        let loaded = match (loaded, &self.server) {
            // An address alone is enough; what else it takes stands in further flags.
            (Err(KubeconfigError::FindPath | KubeconfigError::CurrentContextNotSet), Some(_)) => {
                Ok(Config::new(Uri::from_static("https://localhost")))
            }
            (loaded, _) => loaded,
        };
        let chosen = self.kubeconfig.is_some() || self.context.is_some() || self.cluster.is_some();
        loaded.or_else(|error| {
            use KubeconfigError::{CurrentContextNotSet, FindPath};
            let nothing_found = matches!(error, FindPath | CurrentContextNotSet);
            let incluster = (nothing_found && !chosen).then(|| Config::incluster().ok());
            incluster.flatten().ok_or_else(|| match (error, listed()) {
                (FindPath, Some(list)) => Error::Configuration(format!(
                    "no cluster is configured: KUBECONFIG={} names no file that exists",
                    list.display()
                )),
                (error, _) => Error::Kubeconfig(error),
            })
        })
    }
}

impl Cluster {
    /// Prepares to talk to the cluster that the options name; nothing is sent yet.
    /// `on_warning` is told every warning that the server attaches to an answer.
    pub async fn connect(
        options: &ConnectOptions,
        on_warning: impl Fn(&str) + Clone + Send + 'static,
    ) -> Result<Self> {
        let mut config = options.config().await?;
        overrides::apply(options, &mut config)?;
        if config.proxy_url.is_none() {
            config.proxy_url = proxy::of_environment(&config.cluster_url)?;
        }
        // A person waits for the answer, and would rather see the error than two minutes of retries.
        config.default_retry = false;
        config.read_timeout = options.request_timeout;
        let namespace = Namespace {
            name: options
                .namespace
                .clone()
                .unwrap_or_else(|| config.default_namespace.clone()),
            explicit: options.namespace.is_some(),
        };
        check_namespace(&namespace.name)?;
        let server = config.cluster_url.to_string();
        let server = server.trim_end_matches('/').to_owned();
        let helper = credentials::helper(&config.auth_info);
        let failed = |error: KubeError| {
            let failure = match &error {
                KubeError::Auth(why) => credentials::failure(why, helper.as_deref()),
                _ => None,
            };
            failure.unwrap_or_else(|| Error::from_kube(error, &server))
        };
        // kube would run the plugin three times; one that gives a token is not asked again.
        let exec = config.auth_info.exec.as_ref();
        let token = exec.map(|_| config.auth_layer());
        let token = token.transpose().map_err(failed)?.flatten();
        if token.is_some() {
            config.auth_info.exec = None;
        }
        let client = ClientBuilder::try_from(config)
            .map_err(failed)?
            .with_layer(&BufferLayer::new(1024))
            .with_layer(&option_layer(token))
            .with_layer(&MapErrLayer::new(move |error: BoxError| {
                credentials::told(error, helper.as_deref())
            }))
            .with_layer(&MapResponseLayer::new(move |response: Response<_>| {
                for header in response.headers().get_all(http::header::WARNING) {
                    for text in warnings::texts(&String::from_utf8_lossy(header.as_bytes())) {
                        on_warning(&text);
                    }
                }
                response
            }))
            .with_layer(&TraceLayer(options.trace))
            .build();
        Ok(Self {
            client,
            server,
            namespace,
            request_timeout: options.request_timeout,
        })
    }

    /// The namespace of objects that name none.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Waits as long as one answer may take: a watch that has lasted so long is over.
    pub async fn limit(&self) {
        Deadline::after(self.request_timeout).passed().await;
    }

    /// The same, where objects that name none belong to another namespace.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Self {
        let mut other = self.clone();
        namespace.clone_into(&mut other.namespace.name);
        other
    }

    /// Address of the API server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The one of a test's own server.
    #[cfg(test)]
    pub(crate) async fn at(server: &tokio::net::TcpListener) -> Self {
        let options = ConnectOptions {
            kubeconfig: Some("/dev/null".into()),
            server: Some(format!("http://{}", server.local_addr().unwrap())),
            ..ConnectOptions::default()
        };
        Self::connect(&options, |_| {}).await.unwrap()
    }

    pub(crate) fn error(&self, error: kube::Error) -> Error {
        Error::from_kube(error, &self.server)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    pub(crate) fn kubeconfig(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    /// With one context, which is as `context` says.
    pub(crate) fn with_context(context: &str) -> tempfile::NamedTempFile {
        kubeconfig(&format!(
            "{{current-context: c, contexts: [{{name: c, context: {context}}}],
              clusters: [{{name: k, cluster: {{server: 'https://h:1'}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
        ))
    }

    pub(crate) async fn connect(options: ConnectOptions) -> Result<Cluster> {
        Cluster::connect(&options, |_| {}).await
    }

    /// As a user whose credentials come from a plugin that runs this script, and may not talk to the user.
    #[cfg(unix)]
    pub(crate) async fn connect_by_plugin(script: &str) -> Result<Cluster> {
        let user = serde_json::json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "sh",
            "args": ["-c", script, "secret"], "env": [{"name": "PASSWORD", "value": "secret"}],
        }});
        let file = kubeconfig(&format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}],
              clusters: [{{name: k, cluster: {{server: 'http://h:1'}}}}], users: [{{name: u, user: {user}}}]}}"
        ));
        let options = ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            ..ConnectOptions::default()
        };
        connect(options).await
    }

    #[tokio::test]
    async fn an_empty_namespace_is_the_default_one() {
        let file = with_context("{cluster: k, user: '', namespace: ''}");
        let options = ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            namespace: Some(String::new()),
            ..ConnectOptions::default()
        };
        let cluster = connect(options.without_empty()).await.unwrap();
        assert_eq!(cluster.namespace().name, "default");
        assert!(!cluster.namespace().explicit);
    }

    #[tokio::test]
    async fn a_namespace_that_leads_elsewhere_is_refused() {
        let file = with_context("{cluster: k, namespace: a/b}");
        let mut options = ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            ..ConnectOptions::default()
        };
        let told = "invalid namespace \"a/b\": [may not contain '/']";
        let error = connect(options.clone()).await.err().unwrap();
        assert_eq!(error.to_string(), told);
        options.namespace = Some("c%2fd".to_owned());
        let error = connect(options).await.err().unwrap();
        assert!(error.to_string().ends_with("[may not contain '%']"));
    }

    #[tokio::test]
    async fn a_proxy_of_the_kubeconfig_is_used() {
        let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = proxy.local_addr().unwrap();
        let file = kubeconfig(&format!(
            "{{current-context: c, contexts: [{{name: c, context: {{cluster: k}}}}],
              clusters: [{{name: k, cluster: {{server: 'http://elsewhere.invalid:1', proxy-url: 'http://{address}'}}}}]}}"
        ));
        let cluster = connect(ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            ..ConnectOptions::default()
        });
        let cluster = cluster.await.unwrap();
        let served = tokio::spawn(async move {
            let (mut stream, _) = proxy.accept().await.unwrap();
            let mut asked = Vec::new();
            for answer in [
                "HTTP/1.1 200 OK\r\n\r\n",
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 25\r\n\r\n{\"metadata\":{\"name\":\"j\"}}",
            ] {
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                asked.push(String::from_utf8_lossy(&request[..length]).into_owned());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            asked
        });
        assert_eq!(crate::job(&cluster, "j").await.unwrap().name(), "j");
        let asked = served.await.unwrap();
        assert!(
            asked[0].starts_with("CONNECT elsewhere.invalid:1 "),
            "{asked:?}"
        );
        assert!(asked[1].starts_with("GET /apis/"), "{asked:?}");
    }

    #[tokio::test]
    async fn a_credential_plugin_that_is_not_there_is_named() {
        let file = kubeconfig(
            "{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
              clusters: [{name: k, cluster: {server: 'http://h:1'}}],
              users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /nope-login}}}]}",
        );
        let options = ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            ..ConnectOptions::default()
        };
        let error = connect(options).await.err().unwrap().to_string();
        assert!(
            error.starts_with("unable to run the credential plugin \"/nope-login\": "),
            "{error}"
        );
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_credential_plugin_is_run_once() {
        let runs = tempfile::NamedTempFile::new().unwrap();
        let script = format!(
            r#"echo >> {}; echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{"token": "t"}}}}'"#,
            runs.path().display()
        );
        connect_by_plugin(&script).await.unwrap();
        assert_eq!(std::fs::read_to_string(runs.path()).unwrap(), "\n");
    }
}
