use di_api::{
    ConditionType, DIJob, DIJobStatus, ListWhen, PlanEntry, PodTemplate, Reason, ReplicaResources,
    Role, find_condition, names,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// The part of a job that the functions of this crate need.
///
/// Callers can pass a whole job or a small cached view of it. See docs/decisions/0001.
pub trait Job: Resource {
    /// Namespace and name of the job.
    fn job_key(&self) -> (&str, &str) {
        let ObjectMeta {
            namespace, name, ..
        } = self.meta();
        (
            namespace.as_deref().unwrap_or_default(),
            name.as_deref().unwrap_or_default(),
        )
    }

    /// The entries of `status.plan`.
    fn plan_entries(&self) -> &[PlanEntry];

    /// Message of the API server if it rejected the last attempt to create a pod of the job, for
    /// example because of a quota.
    fn rejection_message(&self) -> Option<&str>;

    /// Port of the replicas of a role: `di-port` of the template (of units: of their leaders), or
    /// else the default of the role.
    ///
    /// For ddp learners it is the port of the process with rank 0.
    fn role_port(&self, role: Role) -> i32;

    /// When the replicas of a role are listed.
    fn list_when(&self, role: Role) -> ListWhen;

    /// Number of pods in each replica of a role. `None` without units.
    fn unit_size(&self, role: Role) -> Option<i32>;

    /// GPUs of a learner with these resources, or else of the template. More than one GPU makes the
    /// learner a learner group. 0 with units.
    fn learner_gpus(&self, resources: &ReplicaResources) -> i32;
}

/// Message of the API server if it rejected the last attempt to create a pod, from the status.
pub fn rejection_in_status(status: &DIJobStatus) -> Option<&str> {
    let condition = find_condition(&status.conditions, ConditionType::ReplicasReady)?;
    Reason::find_in(&Reason::REJECTIONS, &condition.reason).map(|_| condition.message.as_str())
}

impl Job for DIJob {
    fn plan_entries(&self) -> &[PlanEntry] {
        self.status.as_ref().map_or(&[], |status| &status.plan)
    }

    fn rejection_message(&self) -> Option<&str> {
        rejection_in_status(self.status.as_ref()?)
    }

    fn role_port(&self, role: Role) -> i32 {
        let owner = match role {
            Role::DdpLearner => Role::Learner,
            role => role,
        };
        self.spec
            .leader_template(owner)
            .and_then(PodTemplate::named_port)
            .unwrap_or_else(|| role.default_port())
    }

    fn list_when(&self, role: Role) -> ListWhen {
        self.spec.list_when(role)
    }

    fn unit_size(&self, role: Role) -> Option<i32> {
        let size = self.spec.unit(role)?.size;
        Some(size.clamp(1, names::MAX_UNIT_SIZE))
    }

    fn learner_gpus(&self, resources: &ReplicaResources) -> i32 {
        self.spec.learner_gpus(resources)
    }
}
