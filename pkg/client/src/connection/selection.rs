//! The selected cluster and user, and kube's configuration for them.

use std::fs;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Uri;
use kube::{
    Config,
    config::{AuthInfo, Cluster, ExecAuthCluster},
};
use secrecy::ExposeSecret;
use x509_parser::pem::Pem;

use crate::{Error, Result, yaml};

use super::proxy;

const CERTIFICATE: &str = "CERTIFICATE";

/// The entries of the kubeconfig that are used.
pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    pub(crate) cluster: Cluster,
    pub(crate) user: AuthInfo,
}

impl Selection {
    /// The cluster and the service account of the pod that runs this program.
    pub(crate) fn from_incluster(config: Config) -> Self {
        let authority = config
            .root_cert_file
            .map(|file| file.to_string_lossy().into_owned());
        Self {
            namespace: Some(config.default_namespace),
            cluster: Cluster {
                server: Some(config.cluster_url.to_string()),
                certificate_authority: authority,
                ..Cluster::default()
            },
            user: config.auth_info,
        }
    }

    /// # Errors
    /// If a setting is invalid, or a file cannot be read.
    pub(crate) fn into_config(mut self) -> Result<Config> {
        let server = self.cluster.server.as_deref().unwrap_or_default();
        let mut config = Config::new(parse_server_address(server)?);
        if config.cluster_url.scheme_str() == Some("http") {
            self.drop_credentials();
        }
        self.load_authority(&mut config)?;
        self.load_client_certificate()?;
        if let Some(exec) = &mut self.user.exec
            && exec.provide_cluster_info
        {
            let info = ExecAuthCluster::try_from(&self.cluster);
            exec.cluster = Some(info.map_err(|error| Error::Configuration(error.to_string()))?);
        }
        config.auth_info = self.user;
        config.disable_compression = self.cluster.disable_compression.unwrap_or_default();
        config.tls_server_name = self.cluster.tls_server_name;
        let proxy = self.cluster.proxy_url.as_deref();
        config.proxy_url = proxy.map(proxy::parse_proxy_url).transpose()?;
        if let Some(namespace) = self.namespace {
            config.default_namespace = namespace;
        }
        Ok(config)
    }

    /// Like client-go, sends no credentials that anyone on the way can read.
    fn drop_credentials(&mut self) {
        let user = std::mem::take(&mut self.user);
        self.user = AuthInfo {
            impersonate: user.impersonate,
            impersonate_uid: user.impersonate_uid,
            impersonate_groups: user.impersonate_groups,
            impersonate_user_extra: user.impersonate_user_extra,
            ..AuthInfo::default()
        };
    }

    fn load_authority(&mut self, config: &mut Config) -> Result<()> {
        let cluster = &mut self.cluster;
        let data = cluster.certificate_authority_data.as_deref();
        let file = cluster.certificate_authority.as_ref();
        config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
        if config.accept_invalid_certs && (data.is_some() || file.is_some()) {
            let message = "specifying a root certificates file with the insecure flag is not allowed; pass either --certificate-authority or --insecure-skip-tls-verify";
            return Err(Error::Configuration(message.to_owned()));
        }
        let pem = read_pem("certificate-authority", CERTIFICATE, data, file)?;
        config.root_cert = pem.as_ref().map(|pem| {
            let blocks = find_blocks(pem, CERTIFICATE);
            blocks.map(|block| block.contents).collect()
        });
        // For credential plugins: without line breaks, which kube does not decode.
        cluster.certificate_authority_data = pem.map(|pem| STANDARD.encode(pem));
        Ok(())
    }

    /// Replaces the files of the client certificate and its key by their data.
    fn load_client_certificate(&mut self) -> Result<()> {
        let user = &mut self.user;
        let data = user.client_certificate_data.as_deref();
        let file = user.client_certificate.as_ref();
        let certificate = read_pem("client-certificate", CERTIFICATE, data, file)?;
        let data = user.client_key_data.as_ref();
        let data = data.map(ExposeSecret::expose_secret);
        let key = read_pem("client-key", "PRIVATE KEY", data, user.client_key.as_ref())?;
        if certificate.is_some() != key.is_some() {
            let message = "client-certificate and client-key must be given together";
            return Err(Error::Configuration(message.to_owned()));
        }
        user.client_certificate_data = certificate.map(|pem| STANDARD.encode(pem));
        user.client_key_data = key.map(|pem| STANDARD.encode(pem).into());
        Ok(())
    }
}

/// Parses the address of the API server. Like client-go, uses HTTP for an address without scheme.
fn parse_server_address(server: &str) -> Result<Uri> {
    let scheme = if server.contains("://") {
        ""
    } else {
        "http://"
    };
    let invalid = |reason: &str| {
        // It may contain a password.
        let server = server.rsplit('@').next().unwrap_or_default();
        let message = format!("invalid address of the API server {server:?}: {reason}");
        Error::Configuration(message)
    };
    let address = format!("{scheme}{server}").parse::<Uri>();
    let address = address.map_err(|error| invalid(&error.to_string()))?;
    let host = address.host().unwrap_or_default();
    let authority = address
        .authority()
        .map_or("", |authority| authority.as_str());
    let fault = match address.scheme_str() {
        Some("http" | "https") if authority.contains('@') => "it contains a user name",
        // http::Uri takes an invalid port as none.
        Some("http" | "https") if authority != host && address.port_u16().is_none() => {
            "invalid port"
        }
        Some("http" | "https") if !host.is_empty() => return Ok(address),
        _ => "expected https://HOST:PORT",
    };
    Err(invalid(fault))
}

/// Reads a setting that is base64 data or a file, and has a PEM block of this label.
fn read_pem(
    name: &str,
    label: &str,
    data: Option<&str>,
    file: Option<&String>,
) -> Result<Option<Vec<u8>>> {
    let content = match (data, file) {
        (Some(data), _) => {
            let decoded = STANDARD.decode(yaml::without_line_breaks(data));
            decoded.map_err(|error| format!("invalid {name}-data: {error}"))
        }
        (None, Some(file)) => {
            fs::read(file).map_err(|error| format!("unable to read {name} {file}: {error}"))
        }
        (None, None) => return Ok(None),
    };
    let pem = content.map_err(Error::Configuration)?;
    if find_blocks(&pem, label).next().is_none() {
        let message = format!("{name} contains no {label} in PEM format");
        return Err(Error::Configuration(message));
    }
    Ok(Some(pem))
}

fn find_blocks(pem: &[u8], label: &str) -> impl Iterator<Item = Pem> {
    let blocks = Pem::iter_from_buffer(pem).filter_map(Result::ok);
    blocks.filter(move |block| block.label.ends_with(label))
}
