use std::{io, net::SocketAddr, path::PathBuf};

use di_cache::CallError;

use crate::renewal::Renewal;

/// An error of the webhooks or of their certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body of a request is not a supported `AdmissionReview`.
    #[error("malformed AdmissionReview: {0}")]
    Malformed(String),

    /// The body of a request exceeds the limit.
    #[error(
        "the AdmissionReview is larger than 4 MiB, the limit for two objects of the maximum size"
    )]
    BodyTooLarge,

    /// The body of a request ended early.
    #[error("the request body is incomplete")]
    BodyIncomplete,

    /// The body of a request did not arrive in time.
    #[error("timed out waiting for the request body")]
    BodyTimeout,

    /// A response cannot be encoded as JSON.
    #[error("cannot encode the response to an AdmissionReview")]
    Encode(#[source] serde_json::Error),

    /// A certificate cannot be issued.
    #[error("cannot issue the webhook certificate")]
    Issue(#[source] rcgen::Error),

    /// A certificate that another program provides cannot be served.
    #[error("cannot serve the webhook certificate: {0}")]
    Unusable(Renewal),

    /// A certificate file cannot be read.
    #[error("cannot read certificate file {path}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        #[source]
        source: io::Error,
    },

    /// The TLS configuration is invalid.
    #[error("cannot configure TLS for the webhook server")]
    Tls(#[source] rustls::Error),

    /// A call to the API server failed or timed out.
    #[error(transparent)]
    Call(#[from] CallError),

    /// Other replicas changed the Secret during each attempt.
    #[error("cannot write the certificate Secret: conflict at every attempt (retrying)")]
    Contended,

    /// A webhook configuration does not exist, so the API server does not call its webhooks.
    #[error("{0} does not exist, so the API server does not call its webhooks: create it")]
    ConfigurationMissing(String),

    /// The address cannot be bound.
    #[error("cannot listen on webhook address {addr}")]
    Listen {
        /// Address of the webhook server.
        addr: SocketAddr,
        /// Cause of the failure.
        #[source]
        source: io::Error,
    },

    /// The server stopped without a shutdown request.
    #[error("the webhook server stopped unexpectedly")]
    Stopped,
}

impl Error {
    /// Whether another replica wrote the object first.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Contended => true,
            Self::Call(CallError::Api { source, .. }) => {
                matches!(&**source, kube::Error::Api(status) if status.is_conflict() || status.is_already_exists())
            }
            _ => false,
        }
    }
}

/// A result with [`Error`] as its error.
pub type Result<T, E = Error> = std::result::Result<T, E>;
