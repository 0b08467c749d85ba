//! Reads kubeconfigs and selects the entries of the cluster and the user.
//!
//! kube's own loader reads the proxy variables of the environment, and fails for some files that
//! client-go accepts, see docs/upstream.md.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use kube::{
    Config,
    config::{AuthInfo, Cluster},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Error, Result, yaml};

use super::{options::ConnectOptions, overrides, selection::Selection};

const COMMAND: &str = "/user/exec/command";

/// The configuration of the selected cluster and user. Flags override the kubeconfig.
pub(crate) fn load_config(options: &ConnectOptions) -> Result<Config> {
    let files = options.read_kubeconfigs()?;
    let mut selected = if let Some(selected) = options.select(&files)? {
        selected
    } else {
        let chosen = options.context.is_some() || options.kubeconfig.is_some();
        let incluster = (!chosen).then(Config::incluster);
        let incluster = incluster.and_then(std::result::Result::ok);
        let incluster = incluster.map(Selection::from_incluster);
        incluster.ok_or_else(|| not_configured(!files.is_empty()))?
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: Option<String>,
    user: Option<String>,
    namespace: Option<String>,
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
        let context: Context = match self.context.as_deref().or_else(current) {
            Some(name) => find_entry(files, "contexts", "context", name)?
                .ok_or_else(|| missing("context", name))?,
            None => Context::default(),
        };
        let cluster = match self.cluster.clone().or(context.cluster) {
            Some(name) => match find_entry(files, "clusters", "cluster", &name)? {
                Some(cluster) => cluster,
                None if self.server.is_some() && self.cluster.is_none() => Cluster::default(),
                None => {
                    let message = format!("no server found for cluster {name:?}");
                    return Err(Error::Configuration(message));
                }
            },
            None if self.server.is_some() => Cluster::default(),
            None => return Ok(None),
        };
        let user = match self.user.clone().or(context.user) {
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
            namespace: context.namespace,
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
    decoded.map(Some).map_err(|error| {
        // The error itself may contain a password.
        let field = error.path();
        let message = format!("{entry} {name:?} of the kubeconfig: {field} has a wrong type");
        Error::Configuration(message)
    })
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
