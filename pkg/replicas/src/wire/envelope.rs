use di_cache::Key;
use di_plan::Listing;
use serde::Serialize;
use serde_json::Value;

/// Every answer.
#[derive(Debug, Serialize)]
pub(crate) struct Envelope {
    success: bool,
    code: u8,
    message: String,
    data: Value,
}

/// The replicas of one coordinator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Replicas {
    pub(crate) namespace: String,
    pub(crate) coordinator: String,
    pub(crate) collectors: Vec<String>,
    pub(crate) learners: Vec<String>,
}

impl Replicas {
    pub(crate) fn new(job: &Key, listing: Listing) -> Self {
        Self {
            namespace: job.0.clone(),
            coordinator: di_api::names::coordinator(&job.1),
            collectors: listing.collectors,
            learners: listing.learners,
        }
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

impl Envelope {
    pub(crate) fn success(message: &str, data: Value) -> Self {
        Self {
            success: true,
            code: 0,
            message: speakable(message),
            data,
        }
    }

    pub(crate) fn failure(message: &str) -> Self {
        Self {
            success: false,
            code: 1,
            message: speakable(message),
            data: Value::Null,
        }
    }
}

/// DI-engine's command line turns answers into Python's notation and back, replacing quotes and the word None on the way.
fn speakable(message: &str) -> String {
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
