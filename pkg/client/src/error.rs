use std::{error::Error as StdError, fmt, io};

use k8s_openapi::jiff::Timestamp;
use kube::core::Status;
use thiserror::Error;

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a cluster operation. The text is written for the user.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server rejected the request.
    #[error("{}", server_message(.0))]
    Server(Box<Status>),
    /// The API server could not be reached.
    #[error("{}", connection_message(server, source.as_ref()))]
    Unreachable {
        /// Address of the API server.
        server: String,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The API server does not serve a kind.
    #[error(
        "the server doesn't have a resource type {plural:?} in {version}{}",
        install_hint(version)
    )]
    NoSuchResource {
        /// Plural name of the kind.
        plural: String,
        /// Group and version.
        version: String,
    },
    /// The connection settings are not usable.
    #[error("{0}")]
    Configuration(String),
    /// A name that no object can have.
    #[error("{0}")]
    InvalidName(String),
    /// A request could not be built, or a response could not be decoded.
    #[error("{0}")]
    Client(kube::Error),
    /// A manifest file does not exist.
    #[error("the path {0:?} does not exist")]
    NoSuchPath(String),
    /// A manifest cannot be read or decoded.
    #[error("{origin}: {message}")]
    Manifest {
        /// File or `STDIN`.
        origin: String,
        /// The cause.
        message: String,
    },
    /// Some objects are invalid, so no object was sent.
    #[error("{}\nnothing was sent", rejected_lines(.0))]
    Rejected(Vec<Rejected>),
    /// Some objects are invalid. Used for checks that never send objects.
    #[error("{}", rejected_lines(.0))]
    InvalidDocuments(Vec<Rejected>),
    /// A change would make a job invalid, so it was not sent.
    #[error("{}", invalid_message(name, faults))]
    Invalid {
        /// Name of the job.
        name: String,
        /// All faults of the changed job.
        faults: Vec<String>,
    },
    /// The request is not possible: no such replica or logs, or the job cannot be changed so.
    #[error("{0}")]
    Refused(String),
    /// Lines of a followed log may be missing.
    #[error(
        "lines of pod {pod} after {since} may be missing: its kubelet has rotated the log before they were read"
    )]
    MissingLines {
        /// Name of the pod.
        pod: String,
        /// Time of the last line before the gap.
        since: Timestamp,
    },
    /// The job has ended and cannot be changed any more.
    #[error("{0}")]
    JobEnded(String),
    /// The awaited state cannot be reached any more.
    #[error("{0}")]
    NeverReached(String),
    /// The deadline has passed.
    #[error("timed out waiting for {0}")]
    Timeout(String),
    /// A log stream broke.
    #[error("cannot read the logs of pod {pod}: {source}")]
    Stream {
        /// Name of the pod.
        pod: String,
        /// The cause.
        source: io::Error,
    },
}

impl Error {
    /// Converts an error of the kube crate. `server` is the address of the API server.
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

    /// Adds the rejected action to the message, for example `error when creating "job.yaml"`.
    #[must_use]
    pub fn with_action(self, doing: impl fmt::Display) -> Self {
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

    /// Whether the server denied the request with 403 Forbidden.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Server(status) if status.is_forbidden())
    }
}

fn server_message(status: &Status) -> String {
    if status.reason == "Unauthorized" {
        return format!(
            "error: You must be logged in to the server ({})",
            status.message
        );
    }
    // A response that is no Status, such as the page of a proxy, has no CamelCase reason.
    if status.reason.is_empty() || status.reason.contains(' ') {
        format!("Error from server: {}", status.message)
    } else {
        format!("Error from server ({}): {}", status.reason, status.message)
    }
}

fn connection_message(server: &str, source: &(dyn StdError + 'static)) -> String {
    let mut root = source;
    loop {
        if let Some(io) = root.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::ConnectionRefused
        {
            return format!(
                "the connection to the server {server} was refused - did you specify the right host or port? check: kubectl config current-context"
            );
        }
        match root.source() {
            Some(next) => root = next,
            None => return format!("unable to connect to the server {server}: {root}"),
        }
    }
}

fn invalid_message(name: &str, faults: &[String]) -> String {
    match faults {
        [one] => format!("The DIJob {name:?} is invalid: {one}"),
        many => {
            format!("The DIJob {name:?} is invalid: \n* {}", many.join("\n* "))
        }
    }
}

fn install_hint(version: &str) -> &'static str {
    if version.starts_with(di_api::names::GROUP) {
        "; is DI Orchestrator installed in this cluster?"
    } else {
        ""
    }
}

/// An invalid object with its faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Manifest that contains the object.
    pub origin: String,
    /// Kind and name of the object.
    pub object: String,
    /// All faults of the object.
    pub faults: Vec<String>,
}

fn rejected_lines(rejected: &[Rejected]) -> String {
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
    fn server_error_uses_kubectl_wording() {
        let status = Status::failure(r#"dijobs.diengine.opendilab.org "x" not found"#, "NotFound");
        assert_eq!(
            Error::Server(status.boxed()).to_string(),
            r#"Error from server (NotFound): dijobs.diengine.opendilab.org "x" not found"#
        );
        let unauthorized = Status::failure("Unauthorized", "Unauthorized");
        assert_eq!(
            Error::Server(unauthorized.boxed()).to_string(),
            "error: You must be logged in to the server (Unauthorized)"
        );
        let page = Status::failure("404 page not found", "Failed to parse error data");
        assert_eq!(
            Error::Server(page.boxed())
                .with_action("creating \"a.yaml\"")
                .to_string(),
            r#"Error from server: error when creating "a.yaml": 404 page not found"#
        );
    }

    #[test]
    fn refused_connection_names_the_check() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = Error::from_kube(kube::Error::Service(Box::new(refused)), "https://h:1");
        assert!(
            error.to_string().starts_with(
                "the connection to the server https://h:1 was refused - did you specify the right host or port?"
            ),
            "{error}"
        );
    }
}
