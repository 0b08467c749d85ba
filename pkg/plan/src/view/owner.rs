use kube::Resource;

/// The UID of the job that is the controller of an object, by its owner references.
pub fn controlling_job<K: Resource>(object: &K) -> Option<String> {
    object
        .meta()
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true) && owner.kind == "DIJob")
        .map(|owner| owner.uid.clone())
}
