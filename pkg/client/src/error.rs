use std::{error::Error as StdError, fmt, io};

use kube::{config::KubeconfigError, core::Status};
use thiserror::Error;

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a user and a cluster; worded for the user.
#[derive(Debug, Error)]
pub enum Error {
    /// The server refused.
    #[error("{}", said(.0))]
    Server(Box<Status>),
    /// The server could not be asked.
    #[error("{}", unreachable(server, source.as_ref()))]
    Unreachable {
        /// Its address.
        server: String,
        /// Why.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The server does not know a kind.
    #[error(
        "the server doesn't have a resource type {plural:?} in {version}{}",
        hint(version)
    )]
    NoSuchResource {
        /// Plural name of the kind.
        plural: String,
        /// Group and version.
        version: String,
    },
    /// No cluster can be told from the configuration.
    #[error("{}", unusable(.0))]
    Kubeconfig(KubeconfigError),
    /// A configuration that cannot be used.
    #[error("{0}")]
    Configuration(String),
    /// A flag that cannot be honoured.
    #[error("{0}")]
    Flag(String),
    /// A name that nothing can have.
    #[error("{0}")]
    Name(String),
    /// A request or an answer that makes no sense.
    #[error("{0}")]
    Client(kube::Error),
    /// A manifest that is not there.
    #[error("the path {0:?} does not exist")]
    NoSuchPath(String),
    /// A manifest that cannot be read or decoded.
    #[error("{origin}: {message}")]
    Manifest {
        /// Where it came from.
        origin: String,
        /// What is wrong.
        message: String,
    },
    /// Objects that must not be sent; none of the others was sent either.
    #[error("{}\nnothing was sent", lines(.0))]
    Rejected(Vec<Rejected>),
    /// Objects that are not valid, where none was to be sent.
    #[error("{}", lines(.0))]
    Faulty(Vec<Rejected>),
    /// A change that would leave a job invalid; it was not sent.
    #[error("{}", invalid(name, faults))]
    Invalid {
        /// Name of the job.
        name: String,
        /// All that would be wrong with it.
        faults: Vec<String>,
    },
    /// The job cannot be changed so.
    #[error("{0}")]
    Refused(String),
    /// The job is over, and cannot be changed any more.
    #[error("{0}")]
    Ended(String),
    /// What is waited for cannot come any more.
    #[error("{0}")]
    Never(String),
    /// A JSONPath that cannot be read, or leads nowhere.
    #[error("{0}")]
    JsonPath(String),
    /// There is nothing to read logs from, or too much.
    #[error("{0}")]
    Logs(String),
    /// There is no such replica, or none that can be entered.
    #[error("{0}")]
    Replica(String),
    /// It took too long.
    #[error("timed out waiting for {0}")]
    Timeout(String),
    /// A log stream broke off.
    #[error("reading the logs of {pod}: {source}")]
    Stream {
        /// Whose.
        pod: String,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// Sorts an error of the client library; `server` is the address that was asked.
    pub(crate) fn from_kube(error: kube::Error, server: &str) -> Self {
        let source = match error {
            kube::Error::Api(status) => return Self::Server(status),
            kube::Error::Service(source) => source,
            kube::Error::HyperError(source) => source.into(),
            other => return Self::Client(other),
        };
        Self::Unreachable {
            server: server.to_owned(),
            source,
        }
    }

    /// Tells what the server was doing when it refused, as `error when creating "job.yaml"`.
    #[must_use]
    pub fn when(self, doing: impl fmt::Display) -> Self {
        match self {
            Self::Server(mut status) => {
                status.message = format!("error when {doing}: {}", status.message);
                Self::Server(status)
            }
            other => other,
        }
    }

    /// Whether the server has no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Server(status) if status.is_not_found())
    }

    /// Whether the user may not do that.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Server(status) if status.is_forbidden())
    }
}

fn said(status: &Status) -> String {
    if status.reason == "Unauthorized" {
        return format!(
            "error: You must be logged in to the server ({})",
            status.message
        );
    }
    // What is not a Status, as a proxy's page, has no reason that a user could look up.
    if status.reason.is_empty() || status.reason.contains(' ') {
        format!("Error from server: {}", status.message)
    } else {
        format!("Error from server ({}): {}", status.reason, status.message)
    }
}

fn unreachable(server: &str, source: &(dyn StdError + 'static)) -> String {
    let mut root = source;
    loop {
        if let Some(io) = root.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::ConnectionRefused
        {
            return format!(
                "the connection to the server {server} was refused; check that the cluster is up, and that it is the one you mean: kubectl config current-context"
            );
        }
        match root.source() {
            Some(next) => root = next,
            None => return format!("unable to connect to the server {server}: {root}"),
        }
    }
}

fn unusable(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::FindPath | KubeconfigError::CurrentContextNotSet => {
            format!("no cluster is configured ({error}); set KUBECONFIG or pass --kubeconfig")
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            format!("no server found for cluster {name:?}")
        }
        KubeconfigError::ParseNoProxy(why) => format!("invalid NO_PROXY: {why}"),
        KubeconfigError::LoadContext(name) => format!("context {name:?} does not exist"),
        other => other.to_string(),
    }
}

fn invalid(name: &str, faults: &[String]) -> String {
    match faults {
        [one] => format!("The DIJob {name:?} is invalid: {one}"),
        many => {
            format!("The DIJob {name:?} is invalid: \n* {}", many.join("\n* "))
        }
    }
}

fn hint(version: &str) -> &'static str {
    if version.starts_with(di_api::names::GROUP) {
        "; is DI Orchestrator installed in this cluster?"
    } else {
        ""
    }
}

/// An object that must not be sent, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Manifest that it stands in.
    pub origin: String,
    /// Its kind and name.
    pub object: String,
    /// All that is wrong with it.
    pub faults: Vec<String>,
}

fn lines(rejected: &[Rejected]) -> String {
    let mut text = Vec::new();
    for one in rejected {
        text.push(format!("{}: {} is invalid:", one.origin, one.object));
        text.extend(one.faults.iter().map(|fault| format!("* {fault}")));
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_worded_as_kubectl_does() {
        let status = Status::failure(r#"dijobs.diengine.opendilab.org "x" not found"#, "NotFound");
        assert_eq!(
            Error::Server(status.boxed()).to_string(),
            r#"Error from server (NotFound): dijobs.diengine.opendilab.org "x" not found"#
        );
        let nobody = Status::failure("Unauthorized", "Unauthorized");
        assert_eq!(
            Error::Server(nobody.boxed()).to_string(),
            "error: You must be logged in to the server (Unauthorized)"
        );
        let page = Status::failure("404 page not found", "Failed to parse error data");
        assert_eq!(
            Error::Server(page.boxed())
                .when("creating \"a.yaml\"")
                .to_string(),
            r#"Error from server: error when creating "a.yaml": 404 page not found"#
        );
    }

    #[test]
    fn a_refused_connection_says_what_to_check() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = Error::from_kube(kube::Error::Service(Box::new(refused)), "https://h:1");
        assert!(
            error.to_string().starts_with(
                "the connection to the server https://h:1 was refused; check that the cluster is up"
            ),
            "{error}"
        );
    }
}
