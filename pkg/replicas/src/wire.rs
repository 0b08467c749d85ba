//! Queries, request bodies and responses, without I/O.

mod body;
mod body_schema;
mod envelope;
mod error_response;
mod name;
mod query;
mod requester;
mod schema;
mod unknown_fields;

pub(crate) use body::{AddRequest, FailedRequest, RemoveRequest, ReplicaRequest};
pub(crate) use envelope::{AddedReplicas, Failure, ListedReplicas, Nothing, Replicas, Success};
pub(crate) use error_response::Retryable;
pub(crate) use query::Query;
pub(crate) use requester::Requester;

#[cfg(test)]
mod tests;
