//! Loads the kubeconfig and finds the selected cluster and user.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

use http::Uri;
use kube::{
    Config,
    config::{Context, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use crate::{Error, Result};

use super::{options::ConnectOptions, proxy};

/// The configuration of the selected cluster and user, without the flags that override it.
pub(crate) async fn load_config(options: &ConnectOptions) -> Result<Config> {
    let choice = KubeConfigOptions {
        context: options.context.clone(),
        cluster: options.cluster.clone(),
        user: options.user.clone(),
    };
    let loaded = match options.load_kubeconfig()? {
        Some(kubeconfig) => {
            options.check_user(&kubeconfig)?;
            let proxy = options.proxy_of_cluster(&kubeconfig)?;
            let loaded = Config::from_custom_kubeconfig(kubeconfig, &choice).await;
            loaded.map(|mut config| {
                config.proxy_url = proxy;
                config
            })
        }
        None => Err(KubeconfigError::FindPath),
    };
    let loaded = match (loaded, &options.server) {
        // --server alone is enough: other flags give the credentials.
        (Err(KubeconfigError::FindPath | KubeconfigError::CurrentContextNotSet), Some(_)) => {
            Ok(Config::new(Uri::from_static("https://localhost")))
        }
        (loaded, _) => loaded,
    };
    let chosen =
        options.kubeconfig.is_some() || options.context.is_some() || options.cluster.is_some();
    loaded.or_else(|error| {
        use KubeconfigError::{CurrentContextNotSet, FindPath};
        let nothing_found = matches!(error, FindPath | CurrentContextNotSet);
        let incluster = (nothing_found && !chosen).then(|| Config::incluster().ok());
        incluster
            .flatten()
            .ok_or_else(|| match (error, kubeconfig_env()) {
                (FindPath, Some(list)) => Error::Configuration(format!(
                    "no cluster is configured: no file of KUBECONFIG={} exists",
                    list.display()
                )),
                (error, _) => Error::Kubeconfig(error),
            })
    })
}

impl ConnectOptions {
    /// Loads and merges the kubeconfig files.
    ///
    /// Like kubectl, skips files in KUBECONFIG that do not exist. kube would fail.
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
        let mut merged = None;
        for path in paths {
            let next = Kubeconfig::read_from(&path);
            let next =
                next.map_err(|error| Error::Configuration(read_error_message(&path, &error)))?;
            merged = Some(match merged {
                None => next,
                Some(kubeconfig) => {
                    Kubeconfig::merge(kubeconfig, next).map_err(Error::Kubeconfig)?
                }
            });
        }
        if let Some(kubeconfig) = &mut merged {
            forget_empty(kubeconfig);
        }
        Ok(merged)
    }

    /// The context of the flag, or else the current context.
    fn selected_context<'a>(&'a self, kubeconfig: &'a Kubeconfig) -> Option<&'a Context> {
        let name = self
            .context
            .as_ref()
            .or(kubeconfig.current_context.as_ref());
        let mut contexts = kubeconfig.contexts.iter();
        let named = contexts.find(|context| Some(&context.name) == name)?;
        named.context.as_ref()
    }

    /// The `proxy-url` of the selected cluster. It has precedence over the environment.
    fn proxy_of_cluster(&self, kubeconfig: &Kubeconfig) -> Result<Option<Uri>> {
        let context = || Some(&self.selected_context(kubeconfig)?.cluster);
        let name = self.cluster.as_ref().or_else(context);
        let mut clusters = kubeconfig.clusters.iter();
        let named = clusters.find(|cluster| Some(&cluster.name) == name);
        let cluster = named.and_then(|named| named.cluster.as_ref());
        let address = cluster.and_then(|cluster| cluster.proxy_url.as_deref());
        let address = address.filter(|address| !address.is_empty());
        address.map(proxy::parse_proxy_url).transpose()
    }

    /// Fails if the selected user does not exist. kube would continue without credentials.
    fn check_user(&self, kubeconfig: &Kubeconfig) -> Result<()> {
        let by_flags = self.token.is_some() || self.client_certificate.is_some();
        let contexts = || {
            let user = self.selected_context(kubeconfig)?.user.as_ref();
            user.filter(|_| !by_flags)
        };
        let Some(name) = self.user.as_ref().or_else(contexts) else {
            return Ok(());
        };
        if kubeconfig.auth_infos.iter().any(|user| user.name == *name) {
            return Ok(());
        }
        let message = format!("auth info {name:?} does not exist");
        Err(Error::Configuration(message))
    }
}

/// The environment variable KUBECONFIG, unless it is empty.
fn kubeconfig_env() -> Option<OsString> {
    env::var_os("KUBECONFIG").filter(|list| !list.is_empty())
}

fn read_error_message(path: &Path, error: &KubeconfigError) -> String {
    let reason: &dyn std::error::Error = match error {
        KubeconfigError::ReadConfig(reason, _) => reason,
        other => other,
    };
    format!("error loading config file \"{}\": {reason}", path.display())
}

/// Drops empty names, as kubectl does. kube would look for an object with an empty name.
fn forget_empty(kubeconfig: &mut Kubeconfig) {
    let current = &mut kubeconfig.current_context;
    current.take_if(|name| name.is_empty());
    for named in &mut kubeconfig.contexts {
        if let Some(context) = &mut named.context {
            context.namespace.take_if(|name| name.is_empty());
            context.user.take_if(|name| name.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::tests::{connect, kubeconfig_file, with_context};

    fn with_user(user: &str) -> tempfile::NamedTempFile {
        with_context(&format!("{{cluster: k, user: {user}}}"))
    }

    #[tokio::test]
    async fn missing_kubeconfig_entries_use_kubectl_errors() {
        let file = with_user("u");
        let unknown_user = with_user("nobody");
        let broken = kubeconfig_file("{");
        let options_for = |file: &tempfile::NamedTempFile| ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            ..ConnectOptions::default()
        };
        let nope = || Some("nope".to_owned());
        for (options, expected) in [
            (
                ConnectOptions {
                    user: nope(),
                    ..options_for(&file)
                },
                "auth info \"nope\" does not exist",
            ),
            (
                options_for(&unknown_user),
                "auth info \"nobody\" does not exist",
            ),
            (
                ConnectOptions {
                    cluster: nope(),
                    ..options_for(&file)
                },
                "no server found for cluster \"nope\"",
            ),
            (
                ConnectOptions {
                    context: nope(),
                    ..options_for(&file)
                },
                "context \"nope\" does not exist",
            ),
            (
                ConnectOptions {
                    kubeconfig: Some("/nope".into()),
                    ..options_for(&file)
                },
                "error loading config file \"/nope\": No such file or directory (os error 2)",
            ),
        ] {
            let error = connect(options).await.err().unwrap();
            assert_eq!(error.to_string(), expected);
        }
        let error = connect(options_for(&broken))
            .await
            .err()
            .unwrap()
            .to_string();
        let path = broken.path().display();
        assert!(
            error.starts_with(&format!("error loading config file \"{path}\": ")),
            "{error}"
        );
        let with_token = ConnectOptions {
            token: Some("t".into()),
            ..options_for(&unknown_user)
        };
        connect(with_token).await.unwrap();
    }
}
