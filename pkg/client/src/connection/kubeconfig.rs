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
    config::{AuthInfo, Cluster, ExecAuthCluster},
};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use x509_parser::pem::Pem;

use crate::{Error, Result, yaml};

use super::{options::ConnectOptions, overrides, proxy};

const CERTIFICATE: &str = "CERTIFICATE";
const COMMAND: &str = "/user/exec/command";

/// The entries of the kubeconfig that are used.
#[derive(Default)]
pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    pub(crate) cluster: Cluster,
    pub(crate) user: AuthInfo,
}

/// The configuration of the selected cluster and user. Flags override the kubeconfig.
pub(crate) fn load_config(options: &ConnectOptions) -> Result<Config> {
    let files = options.read_kubeconfigs()?;
    let mut selected = match options.select(&files)? {
        Some(selected) => selected,
        // --server alone is enough: other flags give the credentials.
        None if options.server.is_some() => Selection::default(),
        None => {
            let named = options.context.is_some() || options.cluster.is_some();
            let incluster = (!named && options.kubeconfig.is_none()).then(Config::incluster);
            let incluster = incluster.and_then(std::result::Result::ok);
            let incluster = incluster.map(Selection::from_incluster);
            incluster.ok_or_else(|| not_configured(!files.is_empty()))?
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

/// The environment variable KUBECONFIG, unless it is empty.
fn kubeconfig_env() -> Option<OsString> {
    env::var_os("KUBECONFIG").filter(|list| !list.is_empty())
}

impl ConnectOptions {
    /// Reads the kubeconfig files, in the order of their precedence.
    ///
    /// Like kubectl, skips files that do not exist, except the file of the flag.
    fn read_kubeconfigs(&self) -> Result<Vec<Value>> {
        let paths: Vec<PathBuf> = match (&self.kubeconfig, kubeconfig_env()) {
            (Some(path), _) => vec![path.clone()],
            (None, Some(list)) => env::split_paths(&list).collect(),
            (None, None) => env::home_dir()
                .into_iter()
                .map(|home| home.join(".kube/config"))
                .collect(),
        };
        let existing = |path: &&PathBuf| self.kubeconfig.is_some() || path.exists();
        let files = paths.iter().filter(existing).map(|path| {
            let read = read_kubeconfig(path);
            let path = path.display();
            read.map_err(|reason| format!("error loading config file \"{path}\": {reason}"))
        });
        files
            .collect::<Result<_, _>>()
            .map_err(Error::Configuration)
    }

    /// The entries for the flags or the current context. `None` if nothing names a cluster.
    fn select(&self, files: &[Value]) -> Result<Option<Selection>> {
        let missing = |what: &str, name: &str| {
            Error::Configuration(format!("{what} {name:?} does not exist"))
        };
        let current = || {
            files
                .iter()
                .find_map(|file| file["current-context"].as_str())
        };
        let context: Map<String, Value> = match self.context.as_deref().or_else(current) {
            Some(name) => find_entry(files, "contexts", "context", name)?
                .ok_or_else(|| missing("context", name))?,
            None => Map::new(),
        };
        let field = |name: &str| match context.get(name) {
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => {
                let message = format!("context: {name}: expected a string, found {other}");
                Err(Error::Configuration(message))
            }
            None => Ok(None),
        };
        let Some(cluster) = self.cluster.clone().or(field("cluster")?) else {
            return Ok(None);
        };
        let found = find_entry(files, "clusters", "cluster", &cluster)?;
        let no_server = || format!("no server found for cluster {cluster:?}");
        let cluster = found.ok_or_else(|| Error::Configuration(no_server()))?;
        let user = match self.user.clone().or(field("user")?) {
            Some(name) => match find_entry(files, "users", "user", &name)? {
                Some(user) => user,
                // Other flags replace the user of the context.
                None if self.user.is_none()
                    && (self.token.is_some() || self.client_certificate.is_some()) =>
                {
                    AuthInfo::default()
                }
                None => return Err(missing("auth info", &name)),
            },
            None => AuthInfo::default(),
        };
        Ok(Some(Selection {
            namespace: field("namespace")?,
            cluster,
            user,
        }))
    }
}

/// The first entry of this name, for example the `cluster` of an element of `clusters`.
fn find_entry<T: Default + DeserializeOwned>(
    files: &[Value],
    list: &str,
    entry: &str,
    name: &str,
) -> Result<Option<T>> {
    let elements = files
        .iter()
        .filter_map(|file| file[list].as_array())
        .flatten();
    let Some(named) = elements.into_iter().find(|named| named["name"] == name) else {
        return Ok(None);
    };
    if named[entry].is_null() {
        return Ok(Some(T::default()));
    }
    let decoded = serde_path_to_error::deserialize(&named[entry]);
    let invalid =
        |error| Error::Configuration(format!("{entry} {name:?} of the kubeconfig: {error}"));
    decoded.map(Some).map_err(invalid)
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
        config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or_default();
        let (data, file) = (
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
        );
        if config.accept_invalid_certs && (data.is_some() || file.is_some()) {
            let message = "specifying a root certificates file with the insecure flag is not allowed; pass either --certificate-authority or --insecure-skip-tls-verify";
            return Err(Error::Configuration(message.to_owned()));
        }
        let authority = read_pem(
            "certificate-authority",
            CERTIFICATE,
            data.as_deref(),
            file.as_ref(),
        )?;
        config.root_cert = authority.map(|pem| {
            let blocks = find_blocks(&pem, CERTIFICATE);
            blocks.map(|block| block.contents).collect()
        });
        let (data, file) = (&user.client_certificate_data, &user.client_certificate);
        let certificate = read_pem(
            "client-certificate",
            CERTIFICATE,
            data.as_deref(),
            file.as_ref(),
        )?;
        let data = user
            .client_key_data
            .as_ref()
            .map(ExposeSecret::expose_secret);
        let key = read_pem("client-key", "PRIVATE KEY", data, user.client_key.as_ref())?;
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

/// Reads a kubeconfig file. Empty values count as not set, as in client-go.
fn read_kubeconfig(path: &Path) -> Result<Value, String> {
    let text = yaml::decode_text(fs::read(path).map_err(|error| error.to_string())?)?;
    let mut content = yaml::parse_yaml(&text)?
        .values
        .into_iter()
        .next()
        .unwrap_or_default();
    drop_empty(&mut content);
    let folder = path.parent().unwrap_or(Path::new(""));
    for (list, path) in [
        ("clusters", "/cluster/certificate-authority"),
        ("users", "/user/client-certificate"),
        ("users", "/user/client-key"),
        ("users", "/user/tokenFile"),
        ("users", COMMAND),
    ] {
        let elements = content.get_mut(list).and_then(Value::as_array_mut);
        for named in elements.into_iter().flatten() {
            if let Some(Value::String(text)) = named.pointer_mut(path)
                // A command without slash is searched in PATH.
                && (path != COMMAND || text.contains('/'))
            {
                *text = folder.join(&*text).to_string_lossy().into_owned();
            }
        }
    }
    Ok(content)
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
