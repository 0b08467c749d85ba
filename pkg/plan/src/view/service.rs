use di_api::names;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

use super::controlling_job;

/// What the rules need to know of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceView {
    /// Its name, which is its pod's.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Name of its job, by label.
    pub job: String,
    /// UID of the `DIJob` that controls it.
    pub owner: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl ServiceView {
    /// The view of a service of one of our jobs; nothing for other services.
    pub fn new(service: &Service) -> Option<Self> {
        Some(Self {
            name: service.name_any(),
            namespace: service.namespace().unwrap_or_default(),
            uid: service.uid().unwrap_or_default(),
            job: service.labels().get(names::labels::JOB)?.clone(),
            owner: controlling_job(service),
            deleting: service.metadata.deletion_timestamp.is_some(),
        })
    }
}
