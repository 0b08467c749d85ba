use di_api::names;
use kube::{ResourceExt, core::DynamicObject};

use super::owner::job_reference;

/// The part of a PodGroup of a gang scheduler that this crate needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupView {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Version of the object, for writes.
    pub resource_version: String,
    /// Name of the job that is its controller, else from the job label.
    pub job: String,
    /// UID of the `DIJob` that is its controller.
    pub owner: Option<String>,
    /// Whether the group is being deleted.
    pub deleting: bool,
    /// Number of pods that start together.
    pub min_member: i32,
}

impl GroupView {
    /// The view of a group; `None` if no job is its controller and it has no job label.
    pub fn new(group: &DynamicObject) -> Option<Self> {
        let owner = job_reference(group);
        // The owner cannot be lost by a change of labels.
        let job = owner.map(|owner| &owner.name);
        let job = job.or_else(|| group.labels().get(names::labels::JOB))?;
        let spec = &group.data["spec"];
        // The second field is that of Kubernetes' own groups.
        let min_count = &spec["schedulingPolicy"]["gang"]["minCount"];
        let min_member = spec["minMember"].as_i64().or(min_count.as_i64());
        Some(Self {
            name: group.name_any(),
            namespace: group.namespace().unwrap_or_default(),
            uid: group.uid().unwrap_or_default(),
            resource_version: group.resource_version().unwrap_or_default(),
            job: job.clone(),
            owner: owner.map(|owner| owner.uid.clone()),
            deleting: group.metadata.deletion_timestamp.is_some(),
            min_member: i32::try_from(min_member.unwrap_or(0)).unwrap_or(i32::MAX),
        })
    }
}
