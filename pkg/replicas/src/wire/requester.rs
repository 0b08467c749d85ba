use di_api::names;
use di_cache::Key;

/// The coordinator or aggregator that a request names, and the job that its name belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// The coordinator of this job.
    Coordinator(Key),
    /// An aggregator of this job, and its name.
    Aggregator(Key, String),
    /// A namespace, and a name that no coordinator or aggregator can have. It is authorized like a
    /// job before it is rejected.
    Unknown(Key),
}

impl Requester {
    pub(super) fn new(namespace: String, name: String) -> Self {
        if let Some(job) = names::job_of_coordinator(&name) {
            Self::Coordinator((namespace, job.to_owned()))
        } else if let Some(job) = names::job_of_aggregator(&name) {
            Self::Aggregator((namespace, job.to_owned()), name)
        } else {
            Self::Unknown((namespace, name))
        }
    }

    /// The job that the request is for.
    pub(crate) fn job_key(&self) -> &Key {
        match self {
            Self::Coordinator(key) | Self::Aggregator(key, _) | Self::Unknown(key) => key,
        }
    }

    /// The name in the request.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Coordinator((_, job)) => names::coordinator_name(job),
            Self::Aggregator(_, name) | Self::Unknown((_, name)) => name.clone(),
        }
    }
}
