//! The environment variables that the orchestrator sets in a pod.

use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Port variable and default port of a role.
pub const COORDINATOR_PORT: (&str, u16) = ("COORDINATOR_PORT", 22273);
/// See [`COORDINATOR_PORT`].
pub const COLLECTOR_PORT: (&str, u16) = ("COLLECTOR_PORT", 22270);
/// See [`COORDINATOR_PORT`].
pub const LEARNER_PORT: (&str, u16) = ("LEARNER_PORT", 22271);
/// See [`COORDINATOR_PORT`].
pub const AGGREGATOR_PORT: (&str, u16) = ("AGGREGATOR_PORT", 22272);

/// The port of a replica of any role, from its environment.
pub fn port_from_env() -> Option<u16> {
    [
        "COORDINATOR_PORT",
        "COLLECTOR_PORT",
        "LEARNER_PORT",
        "AGGREGATOR_PORT",
    ]
    .iter()
    .find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// The variable with the coordinator's URL, set in all pods of a job.
const COORDINATOR_URL: &str = "KUBERNETES_COORDINATOR_URL";

/// The address of the coordinator, `host:port`.
pub fn coordinator_url() -> Result<String> {
    required_variable(COORDINATOR_URL, process_variable)
}

/// Folder of the job below the storage, `NAMESPACE/JOB`; empty outside of a job.
pub fn job_folder() -> Result<PathBuf> {
    let folder = process_variable(COORDINATOR_URL).map(|url| folder_from_url(&url));
    Ok(folder.transpose()?.unwrap_or_default())
}

fn process_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Folder of the job, from the URL of its coordinator.
fn folder_from_url(coordinator: &str) -> Result<PathBuf> {
    let label = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !text.is_empty() && text.bytes().all(fits)
    };
    let parts = || {
        let (host, _port) = coordinator.rsplit_once(':')?;
        let (pod, namespace) = host.split_once('.')?;
        let job = pod.strip_suffix("-coordinator")?;
        (label(namespace) && label(job)).then(|| Path::new(namespace).join(job))
    };
    parts().ok_or(Error::InvalidVariable {
        name: COORDINATOR_URL,
        expected: "<job>-coordinator.<namespace>:<port>, because the folder of the job is derived from it",
    })
}

/// The environment of this pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Namespace of the job.
    pub namespace: String,
    /// Name of this pod.
    pub pod: String,
    /// `host:port` of the replica endpoint.
    pub server: String,
    /// Path prefix of the replica endpoint.
    pub api_version: String,
    /// URL of the coordinator, as the orchestrator gives it.
    pub coordinator: Option<String>,
    /// Index of this replica within its role; a replacement keeps it.
    pub replica_index: u64,
    /// Where this role listens.
    pub port: u16,
}

impl Environment {
    /// Reads the process environment.
    pub fn from_env(port: (&'static str, u16)) -> Result<Self> {
        Self::from_lookup(port, |name| std::env::var(name).ok())
    }

    /// Reads the environment that `lookup` gives.
    pub fn from_lookup(
        port: (&'static str, u16),
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let get = |name| lookup(name).filter(|value| !value.is_empty());
        let or = |name, default: &str| get(name).unwrap_or_else(|| default.to_owned());
        let server = or("KUBERNETES_SERVER_URL", "di-server.di-system:8080");
        if server.contains('/') || !server.contains(':') {
            return Err(Error::InvalidVariable {
                name: "KUBERNETES_SERVER_URL",
                expected: "host:port without a scheme",
            });
        }
        let version = or("KUBERNETES_SERVER_API_VERSION", "/v1alpha1");
        Ok(Self {
            namespace: required_variable("KUBERNETES_POD_NAMESPACE", get)?,
            pod: required_variable("KUBERNETES_POD_NAME", get)?,
            server,
            api_version: format!("/{}", version.trim_matches('/')),
            coordinator: get(COORDINATOR_URL),
            replica_index: number_variable("DI_REPLICA_INDEX", "a number", 0, get)?,
            port: number_variable(port.0, "a port number", port.1, get)?,
        })
    }

    /// Name of the job, from the name of the coordinator's pod.
    pub fn job_name(&self) -> &str {
        self.pod.strip_suffix("-coordinator").unwrap_or(&self.pod)
    }

    /// Folder of the job below the storage, `NAMESPACE/JOB`: from the URL of the coordinator if it
    /// is set, else from the names of this pod.
    pub fn job_folder(&self) -> Result<PathBuf> {
        match &self.coordinator {
            Some(url) => folder_from_url(url),
            None => Ok(Path::new(&self.namespace).join(self.job_name())),
        }
    }
}

pub(crate) fn required_variable(
    name: &'static str,
    get: impl Fn(&'static str) -> Option<String>,
) -> Result<String> {
    get(name).ok_or(Error::MissingVariable(name))
}

pub(crate) fn number_variable<T: std::str::FromStr>(
    name: &'static str,
    expected: &'static str,
    default: T,
    get: impl Fn(&'static str) -> Option<String>,
) -> Result<T> {
    match get(name) {
        Some(value) => value
            .parse()
            .map_err(|_| Error::InvalidVariable { name, expected }),
        None => Ok(default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_vars(variables: &[(&str, &str)]) -> Result<Environment> {
        let mut all = vec![
            ("KUBERNETES_POD_NAMESPACE", "rl"),
            ("KUBERNETES_POD_NAME", "pole-coordinator"),
        ];
        all.extend_from_slice(variables);
        Environment::from_lookup(COORDINATOR_PORT, |name| {
            all.iter()
                .rev()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn missing_variables_have_defaults() {
        let environment = read_vars(&[]).unwrap();
        assert_eq!(environment.server, "di-server.di-system:8080");
        assert_eq!(environment.api_version, "/v1alpha1");
        assert_eq!((environment.port, environment.replica_index), (22273, 0));
        assert_eq!(environment.job_name(), "pole");
    }

    #[test]
    fn set_variables_override_defaults() {
        let environment = read_vars(&[
            ("KUBERNETES_SERVER_URL", "127.0.0.1:9"),
            ("KUBERNETES_SERVER_API_VERSION", "v1alpha2/"),
            ("COORDINATOR_PORT", "1234"),
            ("DI_REPLICA_INDEX", "3"),
        ])
        .unwrap();
        assert_eq!(environment.server, "127.0.0.1:9");
        assert_eq!(environment.api_version, "/v1alpha2");
        assert_eq!((environment.port, environment.replica_index), (1234, 3));
    }

    #[test]
    fn job_folder_is_same_for_all_pods() {
        let url = ("KUBERNETES_COORDINATOR_URL", "pole-coordinator.rl:22273");
        let other = ("KUBERNETES_POD_NAME", "other-coordinator");
        let folder = read_vars(&[url, other]).unwrap().job_folder().unwrap();
        assert_eq!(folder, Path::new("rl/pole"));
        let without = read_vars(&[other]).unwrap().job_folder().unwrap();
        assert_eq!(without, Path::new("rl/other"));
    }

    #[test]
    fn invalid_coordinator_url_names_variable() {
        for url in [
            "127.0.0.1:80",
            "pole-coordinator:80",
            "pole.rl:80",
            "pole-coordinator.rl",
            "-coordinator.rl:80",
            "pole-coordinator.:80",
            "../pole-coordinator.rl:80",
            "http://pole-coordinator.rl:80",
        ] {
            let environment = read_vars(&[("KUBERNETES_COORDINATOR_URL", url)]).unwrap();
            let error = environment.job_folder().unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let message = error.to_string();
            assert!(
                message.contains("KUBERNETES_COORDINATOR_URL") && !message.contains(url),
                "{message}"
            );
        }
    }

    #[test]
    fn errors_name_variable_without_value() {
        for (name, value) in [
            ("KUBERNETES_POD_NAME", ""),
            ("KUBERNETES_SERVER_URL", "http://secret:1"),
            ("COORDINATOR_PORT", "secret"),
            ("DI_REPLICA_INDEX", "secret"),
        ] {
            let error = read_vars(&[(name, value)]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(
                error.to_string().contains(name) && !error.to_string().contains("secret"),
                "{error}"
            );
        }
    }
}
