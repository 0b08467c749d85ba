use di_api::{
    ConditionType, DIJob, DIJobStatus, PlanEntry, Reason, ReplicaResources, Role, condition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use crate::ports::named_port;

/// A job as the rules see it, so that a cache may hold a small part of one instead.
pub trait Job: Resource {
    /// Its namespace and name.
    fn key(&self) -> (&str, &str) {
        let ObjectMeta {
            namespace, name, ..
        } = self.meta();
        (
            namespace.as_deref().unwrap_or_default(),
            name.as_deref().unwrap_or_default(),
        )
    }

    /// Its plan.
    fn plan(&self) -> &[PlanEntry];

    /// What the API server said when it refused a pod of it at the last try, if it did: there is no room in a quota, say.
    fn refused(&self) -> Option<&str>;

    /// Port of its replicas of one role: the one named `di-port` in the template, else the role's default. Of ddp learners it is that of the
    /// process of rank 0.
    fn port(&self, role: Role) -> i32;

    /// GPUs of a learner with these resources: theirs, else those of the template. More than one make a logic learner.
    fn learner_gpus(&self, resources: &ReplicaResources) -> i32;
}

/// What the API server said when it refused a pod of a job of this status at the last try.
pub fn refusal(status: &DIJobStatus) -> Option<&str> {
    let told = condition(&status.conditions, ConditionType::ReplicasReady)?;
    Reason::among(&Reason::REFUSALS, &told.reason).map(|_| told.message.as_str())
}

impl Job for DIJob {
    fn plan(&self) -> &[PlanEntry] {
        self.status.as_ref().map_or(&[], |status| &status.plan)
    }

    fn refused(&self) -> Option<&str> {
        refusal(self.status.as_ref()?)
    }

    fn port(&self, role: Role) -> i32 {
        let owner = match role {
            Role::DdpLearner => Role::Learner,
            role => role,
        };
        self.spec
            .declared(owner)
            .and_then(|declared| named_port(declared.template.spec.as_ref()?))
            .unwrap_or_else(|| role.default_port())
    }

    fn learner_gpus(&self, resources: &ReplicaResources) -> i32 {
        self.spec.learner_gpus(resources)
    }
}
