use di_cache::Key;
use di_plan::Listing;
use serde::Serialize;
use utoipa::ToSchema;

use super::schema;

/// Every answer to a request that was served.
#[derive(Debug, Serialize, ToSchema)]
#[allow(clippy::struct_field_names)] // as it goes over the wire
pub(crate) struct Success<T> {
    #[schema(schema_with = schema::always_true)]
    success: bool,
    #[schema(schema_with = schema::always_zero)]
    code: u8,
    message: String,
    data: T,
}

/// Every answer to a request that was not served.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Failure {
    #[schema(schema_with = schema::always_false)]
    success: bool,
    #[schema(schema_with = schema::always_one)]
    code: u8,
    /// Why, for people; it has no quotes.
    message: String,
    data: Nothing,
}

/// The data of an answer that has none.
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

impl Replicas {
    pub(crate) fn new(job: &Key, listing: Listing) -> Self {
        Self {
            namespace: job.0.clone(),
            coordinator: di_api::names::coordinator_name(&job.1),
            collectors: listing.collectors,
            learners: listing.learners,
        }
    }

    /// Whether it has no replica.
    pub(crate) fn is_empty(&self) -> bool {
        self.collectors.is_empty() && self.learners.is_empty()
    }
}

impl Replicas {
    /// The record of an aggregator, whose learners are the processes of its ddp learners.
    pub(crate) fn of_aggregator(namespace: &str, aggregator: &str, learners: Vec<String>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            coordinator: aggregator.to_owned(),
            collectors: Vec::new(),
            learners,
        }
    }

    /// The same, for one who calls the coordinator by another of its job's names.
    #[must_use]
    pub(crate) fn named(self, coordinator: &str) -> Self {
        Self {
            coordinator: coordinator.to_owned(),
            ..self
        }
    }
}

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

/// DI-engine's command line turns answers into Python's notation and back, replacing quotes and the word None on the way.
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
