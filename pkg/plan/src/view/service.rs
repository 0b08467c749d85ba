use di_api::names;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;

use super::owner::controlling_job;

/// The part of a service that this crate needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceView {
    /// Name, equal to the name of its pod.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Name of the job, from the job label.
    pub job: String,
    /// UID of the `DIJob` that is its controller.
    pub owner: Option<String>,
    /// Whether the service is being deleted.
    pub deleting: bool,
}

impl ServiceView {
    /// The view of a service; `None` if the service has no job label.
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
