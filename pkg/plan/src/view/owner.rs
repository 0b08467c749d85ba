use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

/// The UID of the job that is the controller of an object, by its owner references.
pub fn controlling_job<K: Resource>(object: &K) -> Option<String> {
    job_reference(object).map(|owner| owner.uid.clone())
}

/// The owner reference to the job that is the controller of an object.
pub(super) fn job_reference<K: Resource>(object: &K) -> Option<&OwnerReference> {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true) && owner.kind == "DIJob")
}
