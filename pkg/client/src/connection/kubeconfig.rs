//! Loads the kubeconfig and builds the configuration of the selected cluster and user.
//!
//! kube's own loader reads the proxy variables of the environment, and fails for some files that
//! client-go accepts, see docs/upstream.md.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Uri;
use kube::{
    Config,
    config::{AuthInfo, Cluster, Context, ExecAuthCluster, Kubeconfig},
};
use secrecy::ExposeSecret;
use serde_json::Value;
use x509_parser::pem::Pem;

use crate::{Error, Result, yaml};

use super::{options::ConnectOptions, overrides, proxy};

const CERTIFICATE: &str = "CERTIFICATE";

/// The entries of the kubeconfig that are used.
#[derive(Default)]
pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    pub(crate) cluster: Cluster,
    pub(crate) user: AuthInfo,
}

/// The configuration of the selected cluster and user. Flags override the kubeconfig.
pub(crate) fn load_config(options: &ConnectOptions) -> Result<Config> {
    let kubeconfig = options.load_kubeconfig()?;
    let selected = kubeconfig
        .as_ref()
        .map(|kubeconfig| options.select(kubeconfig));
    let mut selected = match selected.transpose()?.flatten() {
        Some(selected) => selected,
        // --server alone is enough: other flags give the credentials.
        None if options.server.is_some() => Selection::default(),
        None => {
            let chosen = [&options.context, &options.cluster]
                .iter()
                .any(|name| name.is_some());
            let chosen = chosen || options.kubeconfig.is_some();
            let incluster = (!chosen).then(|| Config::incluster().ok()).flatten();
            let incluster = incluster.map(Selection::from_incluster);
            incluster.ok_or_else(|| not_configured(kubeconfig.is_some()))?
        }
    };
    overrides::apply_flags(options, &mut selected)?;
    selected.into_config()
}

fn not_configured(has_kubeconfig: bool) -> Error {
    Error::Configuration(match kubeconfig_env() {
        Some(list) if !has_kubeconfig => format!(
            "no cluster is configured: no file of KUBECONFIG={} exists",
            list.display()
        ),
        _ => "no cluster is configured; set KUBECONFIG or pass --kubeconfig".to_owned(),
    })
}

impl ConnectOptions {
    /// Loads and merges the kubeconfig files.
    ///
    /// Like kubectl, skips files in KUBECONFIG that do not exist.
    fn load_kubeconfig(&self) -> Result<Option<Kubeconfig>> {
        let paths: Vec<PathBuf> = match (&self.kubeconfig, kubeconfig_env()) {
            (Some(path), _) => vec![path.clone()],
            (None, Some(list)) => env::split_paths(&list)
                .filter(|path| path.exists())
                .collect(),
            (None, None) => env::home_dir()
                .map(|home| home.join(".kube/config"))
                .filter(|path| path.exists())
                .into_iter()
                .collect(),
        };
        let mut merged: Option<Kubeconfig> = None;
        for path in paths {
            let next = read_kubeconfig(&path).map_err(|reason| {
                let message = format!("error loading config file \"{}\": {reason}", path.display());
                Error::Configuration(message)
            })?;
            merged = Some(match merged {
                None => next,
                Some(earlier) => {
                    let merged = earlier.merge(next);
                    merged.map_err(|error| Error::Configuration(error.to_string()))?
                }
            });
        }
        Ok(merged)
    }

    /// The entries for the flags or the current context. `None` if nothing names a cluster.
    fn select(&self, kubeconfig: &Kubeconfig) -> Result<Option<Selection>> {
        let missing = |what: &str, name: &str| {
            Error::Configuration(format!("{what} {name:?} does not exist"))
        };
        let context = match self
            .context
            .as_ref()
            .or(kubeconfig.current_context.as_ref())
        {
            Some(name) => {
                let mut contexts = kubeconfig.contexts.iter();
                let named = contexts.find(|context| context.name == *name);
                let named = named.ok_or_else(|| missing("context", name))?;
                named.context.clone().unwrap_or_default()
            }
            None => Context::default(),
        };
        let cluster = self.cluster.as_ref().unwrap_or(&context.cluster);
        if cluster.is_empty() {
            return Ok(None);
        }
        let named = kubeconfig
            .clusters
            .iter()
            .find(|named| named.name == *cluster);
        let cluster = named
            .and_then(|named| named.cluster.clone())
            .ok_or_else(|| {
                Error::Configuration(format!("no server found for cluster {cluster:?}"))
            })?;
        // Other flags may replace the user of the context.
        let by_flags = self.token.is_some() || self.client_certificate.is_some();
        let user = match self.user.as_ref().or(context.user.as_ref()) {
            Some(name) => match kubeconfig
                .auth_infos
                .iter()
                .find(|named| named.name == *name)
            {
                Some(named) => named.auth_info.clone().unwrap_or_default(),
                None if by_flags && self.user.is_none() => AuthInfo::default(),
                None => return Err(missing("auth info", name)),
            },
            None => AuthInfo::default(),
        };
        Ok(Some(Selection {
            namespace: context.namespace,
            cluster,
            user,
        }))
    }
}

impl Selection {
    fn from_incluster(config: Config) -> Self {
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

    fn into_config(self) -> Result<Config> {
        let (cluster, mut user) = (self.cluster, self.user);
        let server = cluster.server.as_deref().unwrap_or_default();
        let mut config = Config::new(parse_server_address(server)?);
        if config.cluster_url.scheme_str() == Some("http") {
            // Like client-go, send no credentials that anyone on the way can read.
            user = AuthInfo {
                impersonate: user.impersonate,
                impersonate_uid: user.impersonate_uid,
                impersonate_groups: user.impersonate_groups,
                impersonate_user_extra: user.impersonate_user_extra,
                ..AuthInfo::default()
            };
        }
        let (data, file) = (
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        );
        let authority = read_pem("certificate-authority", CERTIFICATE, data.as_deref(), file)?;
        config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
        if config.accept_invalid_certs && authority.is_some() {
            let message =
                "specifying a root certificates file with the insecure flag is not allowed";
            return Err(Error::Configuration(message.to_owned()));
        }
        config.root_cert = authority.map(|pem| {
            let blocks = find_blocks(&pem, CERTIFICATE);
            blocks.map(|block| block.contents).collect()
        });
        let (data, file) = (&user.client_certificate_data, &user.client_certificate);
        let certificate = read_pem("client-certificate", CERTIFICATE, data.as_deref(), file)?;
        let data = user
            .client_key_data
            .as_ref()
            .map(ExposeSecret::expose_secret);
        let key = read_pem("client-key", "PRIVATE KEY", data, &user.client_key)?;
        if certificate.is_some() != key.is_some() {
            let message = "client-certificate and client-key must be given together";
            return Err(Error::Configuration(message.to_owned()));
        }
        user.client_certificate_data = certificate.map(|pem| STANDARD.encode(pem));
        user.client_key_data = key.map(|pem| STANDARD.encode(pem).into());
        if let Some(exec) = user.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
            exec.cluster = ExecAuthCluster::try_from(&cluster).ok();
        }
        config.auth_info = user;
        config.disable_compression = cluster.disable_compression.unwrap_or_default();
        config.tls_server_name = cluster.tls_server_name;
        let proxy = cluster.proxy_url.as_deref();
        config.proxy_url = proxy.map(proxy::parse_proxy_url).transpose()?;
        if let Some(namespace) = self.namespace {
            config.default_namespace = namespace;
        }
        Ok(config)
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
        let message = format!("invalid address of the API server {server:?}: {reason}");
        Error::Configuration(message)
    };
    let address = format!("{scheme}{server}").parse::<Uri>();
    let address = address.map_err(|error| invalid(&error.to_string()))?;
    match (address.scheme_str(), address.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(address),
        _ => Err(invalid("expected https://HOST:PORT")),
    }
}

/// Reads a setting that is base64 data or a file, and has a PEM block of this label.
fn read_pem(
    name: &str,
    label: &str,
    data: Option<&str>,
    file: &Option<String>,
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

/// Reads a kubeconfig file. Empty values count as not set, as in client-go.
fn read_kubeconfig(path: &Path) -> Result<Kubeconfig, String> {
    let text = yaml::decode_text(fs::read(path).map_err(|error| error.to_string())?)?;
    let first = yaml::parse_yaml(&text)?.values.into_iter().next();
    let Some(mut content) = first.filter(|content| !content.is_null()) else {
        return Ok(Kubeconfig::default());
    };
    drop_empty(&mut content);
    let folder = path.parent().unwrap_or(Path::new(""));
    for (list, entry, paths) in [
        ("clusters", "cluster", &["/certificate-authority"][..]),
        ("contexts", "context", &[]),
        (
            "users",
            "user",
            &[
                "/client-certificate",
                "/client-key",
                "/tokenFile",
                "/exec/command",
            ],
        ),
    ] {
        let entries = content.get_mut(list).and_then(Value::as_array_mut);
        for named in entries
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            // kube requires names that client-go does not.
            named.entry("name").or_insert("".into());
            let Some(entry) = named.get_mut(entry) else {
                continue;
            };
            if let (Some(context), "contexts") = (entry.as_object_mut(), list) {
                context.entry("cluster").or_insert("".into());
            }
            for path in paths {
                make_absolute(entry.pointer_mut(path), folder, *path == "/exec/command");
            }
        }
    }
    serde_path_to_error::deserialize(&content).map_err(|error| error.to_string())
}

/// Resolves a path relative to the kubeconfig. A command without slash is searched in PATH.
fn make_absolute(path: Option<&mut Value>, folder: &Path, is_command: bool) {
    if let Some(Value::String(path)) = path
        && (!is_command || path.contains('/'))
    {
        *path = folder.join(&*path).to_string_lossy().into_owned();
    }
}

fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null() && value.as_str() != Some(""));
            // Extensions belong to other programs.
            let known = fields.iter_mut().filter(|(key, _)| *key != "extensions");
            known.for_each(|(_, value)| drop_empty(value));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

/// The environment variable KUBECONFIG, unless it is empty.
fn kubeconfig_env() -> Option<OsString> {
    env::var_os("KUBECONFIG").filter(|list| !list.is_empty())
}
