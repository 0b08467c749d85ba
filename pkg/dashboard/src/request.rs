//! The parts of a request that several routes read.

use std::time::Duration;

use axum::{
    extract::{FromRequestParts, Path, Request},
    http::request::Parts,
};
use http_body_util::{BodyExt, Collected};
use serde::{Deserialize, de::DeserializeOwned};

use crate::error::{Error, Result};

/// Maximum size of a request body.
const MAX_BODY_BYTES: usize = 4096;
/// Time limit of a client for the body of its request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The job that a path names.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct JobPath {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl JobPath {
    /// Parses `namespace/name`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let invalid = || Error::BadRequest("expected namespace/name of a job".to_owned());
        let (namespace, name) = text.split_once('/').ok_or_else(invalid)?;
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { namespace, name }.checked()
    }

    fn checked(self) -> Result<Self> {
        check_name(&self.namespace)?;
        check_name(&self.name)?;
        Ok(self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let Path(job) = Path::<Self>::from_request_parts(parts, state).await?;
        job.checked()
    }
}

/// Checks that a name is that of a Kubernetes object: it becomes part of paths and selectors.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let is_allowed = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
    };
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if begins_well && name.len() <= 253 && name.bytes().all(is_allowed) {
        return Ok(());
    }
    Err(Error::BadRequest(format!(
        "{name:?} is no name of an object"
    )))
}

/// Reads a JSON body.
pub(crate) async fn read_json<T: DeserializeOwned>(request: Request) -> Result<T> {
    let body = request.into_body();
    let body = di_serve::read_body(body, MAX_BODY_BYTES, BODY_TIMEOUT, BodyExt::collect).await;
    let bytes = body.map(Collected::to_bytes)?;
    serde_json::from_slice(&bytes).map_err(|error| Error::BadRequest(error.to_string()))
}
