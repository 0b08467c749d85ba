//! What goes over the wire: queries, bodies and answers. Pure.

mod body;
mod envelope;
mod query;
mod schema;

pub(crate) use body::{AddRequest, FailedRequest, RemoveRequest, ReplicaRequest, Target};
pub(crate) use envelope::{Failure, Nothing, Replicas, Success};
pub(crate) use query::Query;

use crate::error::{Error, Result};

/// The longest name that Kubernetes knows.
const MAX_NAME_LEN: usize = 253;

/// A namespace or name as Kubernetes allows it, so that it can stand in a path.
fn name(what: &str, value: &str) -> Result<String> {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends_well = value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value.ends_with(|c: char| c.is_ascii_alphanumeric());
    if value.len() <= MAX_NAME_LEN && ends_well && value.chars().all(known) {
        return Ok(value.to_owned());
    }
    Err(Error::Invalid(if value.is_empty() {
        format!("{what} is missing")
    } else {
        format!("{what} is no name that Kubernetes knows")
    }))
}

#[cfg(test)]
mod tests;
