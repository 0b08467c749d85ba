use std::{io, net::SocketAddr, path::PathBuf};

use crate::Renewal;

/// What can go wrong around the webhooks.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body of a request is not an `AdmissionReview` that can be answered.
    #[error("malformed AdmissionReview: {0}")]
    Malformed(String),

    /// An answer could not be written as JSON.
    #[error("failed to encode the answer to an AdmissionReview")]
    Encode(#[source] serde_json::Error),

    /// A certificate could not be made.
    #[error("failed to make a certificate")]
    Issue(#[source] rcgen::Error),

    /// What another program was to give cannot be served.
    #[error("the certificate cannot be served: {0}")]
    Unusable(Renewal),

    /// A file of the certificate cannot be read.
    #[error("failed to read {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },

    /// The server could not be set up.
    #[error("failed to configure TLS")]
    Tls(#[source] rustls::Error),

    /// A call to the API server failed.
    #[error("failed to {action} {object}")]
    Api {
        /// The verb.
        action: &'static str,
        /// Kind and name of the object.
        object: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },

    /// A call to the API server took too long.
    #[error("took too long to {action} {object}")]
    Timeout {
        /// The verb.
        action: &'static str,
        /// Kind and name of the object.
        object: String,
    },

    /// Other replicas kept changing the Secret.
    #[error("the Secret changed at every attempt to write it")]
    Contended,

    /// A webhook configuration is not there, so that the API server calls no webhook of it.
    #[error("{0} does not exist, so its webhooks are not called")]
    ConfigurationMissing(String),

    /// The address cannot be listened on.
    #[error("failed to listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },

    /// The server ended without being told to.
    #[error("the webhook server stopped by itself")]
    Stopped,
}

impl Error {
    /// Whether somebody else wrote the object first.
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Contended => true,
            Self::Api { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if status.is_conflict() || status.is_already_exists())
            }
            _ => false,
        }
    }
}

/// Of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
