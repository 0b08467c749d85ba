use di_cache::Key;
use di_plan::Listing;
use serde::Serialize;
use serde_json::json;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, schema::Schema},
};

use super::schema;

/// A successful response.
#[derive(Debug, Serialize, ToSchema)]
#[allow(clippy::struct_field_names)] // the wire format
pub(crate) struct Success<T> {
    #[schema(schema_with = schema::always_true)]
    success: bool,
    #[schema(schema_with = schema::always_zero)]
    code: u8,
    message: String,
    data: T,
}

/// An error response.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Failure {
    #[schema(schema_with = schema::always_false)]
    success: bool,
    #[schema(schema_with = schema::always_one)]
    code: u8,
    /// Human-readable reason, without quotes.
    message: String,
    data: Nothing,
}

/// The `null` data of a response without data.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Nothing;

/// The replicas of one coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Replicas {
    pub(crate) namespace: String,
    pub(crate) coordinator: String,
    /// As `pod.namespace:port`.
    pub(crate) collectors: Vec<String>,
    /// As `pod.namespace:port`.
    pub(crate) learners: Vec<String>,
}

/// The listed replicas of one coordinator.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListedReplicas {
    #[serde(flatten)]
    pub(crate) replicas: Replicas,
    /// Number of changes of the list since the job was created. Missing while a change is not counted
    /// yet, and in the record of an aggregator or of one replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) generation: Option<i64>,
}

/// The replicas that a request has planned.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AddedReplicas {
    #[serde(flatten)]
    pub(crate) replicas: Replicas,
    /// Number of these replicas that wait for quota; they are listed once they have it. Only for jobs
    /// in a queue of Kueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) queued: Option<usize>,
}

impl From<Replicas> for ListedReplicas {
    fn from(replicas: Replicas) -> Self {
        Self {
            replicas,
            generation: None,
        }
    }
}

impl Replicas {
    pub(crate) fn new(job: &Key, listing: Listing) -> Self {
        Self {
            namespace: job.0.clone(),
            coordinator: di_api::names::coordinator_name(&job.1),
            collectors: listing.collectors,
            learners: listing.learners,
        }
    }

    /// Whether there are no replicas.
    pub(crate) fn is_empty(&self) -> bool {
        self.collectors.is_empty() && self.learners.is_empty()
    }

    /// The record of an aggregator; its learners are the processes of its ddp learners.
    pub(crate) fn for_aggregator(namespace: &str, aggregator: &str, learners: Vec<String>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            coordinator: aggregator.to_owned(),
            collectors: Vec::new(),
            learners,
        }
    }

    /// Returns the record with the coordinator name that the request used.
    #[must_use]
    pub(crate) fn with_coordinator(self, coordinator: String) -> Self {
        Self {
            coordinator,
            ..self
        }
    }
}

impl PartialSchema for Nothing {
    fn schema() -> RefOr<Schema> {
        schema::to_schema(json!({"type": "null"}))
    }
}

impl ToSchema for Nothing {}

impl<T> Success<T> {
    pub(crate) fn new(message: &str, data: T) -> Self {
        Self {
            success: true,
            code: 0,
            message: to_client_safe(message),
            data,
        }
    }
}

impl Failure {
    pub(crate) fn new(message: &str) -> Self {
        Self {
            success: false,
            code: 1,
            message: to_client_safe(message),
            data: Nothing,
        }
    }
}

/// Removes quotes and the word None: the command line of DI-engine converts responses to Python
/// notation and back by text replacement.
fn to_client_safe(message: &str) -> String {
    message
        .chars()
        .map(|c| match c {
            '\'' | '"' => '`',
            '\\' => '/',
            c if c.is_control() => ' ',
            c => c,
        })
        .collect::<String>()
        .replace("None", "none")
}
