//! What the kubeconfig says of the cluster and the user that are meant.

use std::{
    env,
    ffi::OsString,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use http::Uri;
use kube::config::{Context, Kubeconfig, KubeconfigError};

use crate::{ConnectOptions, Error, Result, proxy};

impl ConnectOptions {
    /// Like kubectl, skips files of the list KUBECONFIG that do not exist; kube would stop at them.
    pub(crate) fn kubeconfig(&self) -> Result<Option<Kubeconfig>> {
        let paths: Vec<PathBuf> = match (&self.kubeconfig, listed()) {
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
            let next = next.map_err(|error| Error::Configuration(unreadable(&path, &error)))?;
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

    /// The context that is meant.
    fn chosen<'a>(&'a self, kubeconfig: &'a Kubeconfig) -> Option<&'a Context> {
        let name = self
            .context
            .as_ref()
            .or(kubeconfig.current_context.as_ref());
        let mut contexts = kubeconfig.contexts.iter();
        let named = contexts.find(|context| Some(&context.name) == name)?;
        named.context.as_ref()
    }

    /// The proxy that is meant, whatever the environment says.
    pub(crate) fn proxy(&self, kubeconfig: &Kubeconfig) -> Result<Option<Uri>> {
        let context = || Some(&self.chosen(kubeconfig)?.cluster);
        let name = self.cluster.as_ref().or_else(context);
        let mut clusters = kubeconfig.clusters.iter();
        let named = clusters.find(|cluster| Some(&cluster.name) == name);
        let cluster = named.and_then(|named| named.cluster.as_ref());
        let address = cluster.and_then(|cluster| cluster.proxy_url.as_deref());
        let address = address.filter(|address| !address.is_empty());
        address.map(proxy::parse).transpose()
    }

    /// kube would go on as nobody where the user is not there.
    pub(crate) fn check_user(&self, kubeconfig: &Kubeconfig) -> Result<()> {
        let by_flags =
            self.token.is_some() || self.username.is_some() || self.client_certificate.is_some();
        let contexts = || {
            let user = self.chosen(kubeconfig)?.user.as_ref();
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

/// The files that KUBECONFIG names.
pub(crate) fn listed() -> Option<OsString> {
    env::var_os("KUBECONFIG").filter(|list| !list.is_empty())
}

/// As kubectl says it.
fn unreadable(path: &Path, error: &KubeconfigError) -> String {
    let shown = path.display();
    match error {
        KubeconfigError::ReadConfig(error, _) if error.kind() == ErrorKind::NotFound => {
            format!("stat {shown}: no such file or directory")
        }
        KubeconfigError::ReadConfig(error, _) => {
            format!("error loading config file \"{shown}\": {error}")
        }
        other => format!("error loading config file \"{shown}\": {other}"),
    }
}

/// What is written as empty is not given: kube would look for something of that name.
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
    use crate::cluster::tests::{connect, kubeconfig, with_context};

    fn with_user(user: &str) -> tempfile::NamedTempFile {
        with_context(&format!("{{cluster: k, user: {user}}}"))
    }

    #[tokio::test]
    async fn what_is_not_in_a_kubeconfig_is_told_as_kubectl_does() {
        let file = with_user("u");
        let nobodys = with_user("nobody");
        let broken = kubeconfig("{");
        let of = |file: &tempfile::NamedTempFile| ConnectOptions {
            kubeconfig: Some(file.path().to_owned()),
            ..ConnectOptions::default()
        };
        let nope = || Some("nope".to_owned());
        for (options, told) in [
            (
                ConnectOptions {
                    user: nope(),
                    ..of(&file)
                },
                "auth info \"nope\" does not exist",
            ),
            (of(&nobodys), "auth info \"nobody\" does not exist"),
            (
                ConnectOptions {
                    cluster: nope(),
                    ..of(&file)
                },
                "no server found for cluster \"nope\"",
            ),
            (
                ConnectOptions {
                    context: nope(),
                    ..of(&file)
                },
                "context \"nope\" does not exist",
            ),
            (
                ConnectOptions {
                    kubeconfig: Some("/nope".into()),
                    ..of(&file)
                },
                "stat /nope: no such file or directory",
            ),
        ] {
            let error = connect(options).await.err().unwrap();
            assert_eq!(error.to_string(), told);
        }
        let error = connect(of(&broken)).await.err().unwrap().to_string();
        let path = broken.path().display();
        assert!(
            error.starts_with(&format!("error loading config file \"{path}\": ")),
            "{error}"
        );
        let with_token = ConnectOptions {
            token: Some("t".into()),
            ..of(&nobodys)
        };
        connect(with_token).await.unwrap();
    }
}
