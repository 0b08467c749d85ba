use std::{path::PathBuf, time::Duration};

use secrecy::{ExposeSecret, SecretString};

/// Selects cluster, user and namespace, like kubectl's flags of the same names.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// Kubeconfig file instead of KUBECONFIG and `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    pub context: Option<String>,
    /// Cluster of the kubeconfig.
    pub cluster: Option<String>,
    /// User of the kubeconfig.
    pub user: Option<String>,
    /// Namespace instead of the namespace of the context.
    pub namespace: Option<String>,
    /// User to impersonate.
    pub impersonate: Option<String>,
    /// Groups to impersonate.
    pub impersonate_groups: Vec<String>,
    /// Address of the API server instead of the address in the kubeconfig.
    pub server: Option<String>,
    /// File with the certificate authority of the API server.
    pub certificate_authority: Option<PathBuf>,
    /// Skips the check of the server certificate.
    pub insecure_skip_tls_verify: bool,
    /// Server name for the check of the server certificate.
    pub tls_server_name: Option<String>,
    /// Client certificate file.
    pub client_certificate: Option<PathBuf>,
    /// Client key file.
    pub client_key: Option<PathBuf>,
    /// Bearer token for authentication.
    pub token: Option<SecretString>,
    /// Whether the command reads standard input, so that credential plugins must not.
    pub stdin_in_use: bool,
    /// Timeout of a single request. `None` means no timeout.
    pub request_timeout: Option<Duration>,
}

/// The namespace of objects that name none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Name of the namespace.
    pub name: String,
    /// Whether the user named it by a flag. Objects of other namespaces are then rejected.
    pub explicit: bool,
}

impl ConnectOptions {
    /// Drops empty values: like kubectl, an empty flag counts as not given.
    #[must_use]
    pub fn without_empty(mut self) -> Self {
        for text in [
            &mut self.context,
            &mut self.cluster,
            &mut self.user,
            &mut self.namespace,
            &mut self.impersonate,
            &mut self.server,
            &mut self.tls_server_name,
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
        self.token.take_if(|token| token.expose_secret().is_empty());
        self.impersonate_groups.retain(|group| !group.is_empty());
        self
    }

    /// The namespace for commands that use no cluster.
    pub fn offline_namespace(&self) -> Namespace {
        Namespace {
            name: self
                .namespace
                .clone()
                .unwrap_or_else(|| "default".to_owned()),
            explicit: self.namespace.is_some(),
        }
    }
}
