use std::fmt;

use di_api::{
    AnsweredRequest, DIJob, DIJobStatus, PlanEntry, ReplicaResources, Role, names, quantity,
};
use di_plan::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

/// What the replica endpoint needs to know of a job: a tenth of it, for most of a job is its templates.
///
/// It is read from what the API server says of a whole job, of which nothing else is kept.
#[derive(Clone, Debug, PartialEq, Deserialize, Resource)]
#[resource(inherit = DIJob)]
#[serde(from = "DIJob")]
pub struct JobView {
    /// Which job in which version it is, and, where it has annotations, those that the endpoint writes.
    pub metadata: ObjectMeta,
    /// Why it has no replicas now, if that is so.
    pub halted: Option<Halt>,
    /// Its collectors, if it may have some.
    pub collectors: Option<PartView>,
    /// Its learners, if it may have some.
    pub learners: Option<PartView>,
    /// GPUs of learners of which nothing else is said.
    pub learner_gpus: i32,
    /// Port of its coordinator.
    pub coordinator_port: i32,
    /// What the API server said when it refused a pod of it at the last try, if it did.
    pub refused: Option<Box<str>>,
    /// Whether it has a status.
    pub has_status: bool,
    /// Every replica that it should have, or is letting go.
    pub plan: Vec<PlanEntry>,
    /// Requests to the endpoint that changed the plan lately.
    pub requests: Vec<AnsweredRequest>,
}

/// What is declared of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartView {
    /// Port of each replica.
    pub port: i32,
    /// Replicas as the template has them.
    pub replicas: i32,
    /// Replicas with resources of their own: the name of each group, and how many it has.
    pub groups: Vec<(String, i32)>,
}

/// Why a job has no replicas now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// It is being deleted.
    Deleting,
    /// It has ended.
    Ended,
    /// It is suspended.
    Suspended,
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleting => "is being deleted",
            Self::Ended => "has ended",
            Self::Suspended => "is suspended",
        })
    }
}

impl Halt {
    fn of(job: &DIJob) -> Option<Self> {
        if job.metadata.deletion_timestamp.is_some() {
            return Some(Self::Deleting);
        }
        if job.status.as_ref().is_some_and(DIJobStatus::has_ended) {
            return Some(Self::Ended);
        }
        job.spec.suspend.then_some(Self::Suspended)
    }
}

impl From<DIJob> for JobView {
    fn from(job: DIJob) -> Self {
        let part = |role| {
            let declared = job.spec.declared(role)?;
            let groups = declared.groups.iter();
            Some(PartView {
                port: job.port(role),
                replicas: declared.replicas,
                groups: groups.map(|g| (g.name.clone(), g.replicas)).collect(),
            })
        };
        let mut view = Self {
            halted: Halt::of(&job),
            collectors: part(Role::Collector),
            learners: part(Role::Learner),
            learner_gpus: job.learner_gpus(&ReplicaResources::default()),
            coordinator_port: job.port(Role::Coordinator),
            refused: job.refused().map(Box::from),
            has_status: job.status.is_some(),
            plan: Vec::new(),
            requests: Vec::new(),
            metadata: short(job.metadata),
        };
        if let Some(status) = job.status {
            (view.plan, view.requests) = (status.plan, status.requests);
            // There are as many of them as jobs, and what reads them leaves room for twice as much.
            view.plan.shrink_to_fit();
            view.requests.shrink_to_fit();
        }
        view
    }
}

/// The annotations that the endpoint writes.
const WRITTEN: [&str; 2] = [names::LOWERED_ANNOTATION, names::LET_GO_ANNOTATION];

/// Of the metadata, what tells which job in which version it is, and the annotations that the endpoint writes.
fn short(whole: ObjectMeta) -> ObjectMeta {
    let annotations = whole.annotations.map(|all| {
        let all = all.into_iter();
        all.filter(|(key, _)| WRITTEN.contains(&key.as_str()))
            .collect()
    });
    ObjectMeta {
        namespace: whole.namespace,
        name: whole.name,
        uid: whole.uid,
        resource_version: whole.resource_version,
        annotations,
        ..ObjectMeta::default()
    }
}

impl JobView {
    /// What is declared of a role; nothing for roles that the job does not have, and for that of its coordinator.
    pub fn part(&self, role: Role) -> Option<&PartView> {
        match role {
            Role::Collector => self.collectors.as_ref(),
            Role::Learner => self.learners.as_ref(),
            Role::Coordinator | Role::Aggregator | Role::DdpLearner => None,
        }
    }
}

impl Job for JobView {
    fn plan(&self) -> &[PlanEntry] {
        &self.plan
    }

    fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    fn port(&self, role: Role) -> i32 {
        let of = |part: &Option<PartView>| part.as_ref().map(|part| part.port);
        let named = match role {
            Role::Coordinator => Some(self.coordinator_port),
            Role::Collector => of(&self.collectors),
            Role::Learner | Role::DdpLearner => of(&self.learners),
            Role::Aggregator => None,
        };
        named.unwrap_or_else(|| role.default_port())
    }

    fn learner_gpus(&self, resources: &ReplicaResources) -> i32 {
        match &resources.gpus {
            Some(gpus) => quantity::whole(&gpus.0).unwrap_or(0),
            None => self.learner_gpus,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{option::of as optional, prelude::*};
    use serde_json::{Value, json};

    use super::*;

    const ROLES: [Role; 5] = [
        Role::Coordinator,
        Role::Collector,
        Role::Learner,
        Role::Aggregator,
        Role::DdpLearner,
    ];

    /// A template with this port and these GPUs at one of its containers.
    fn template() -> impl Strategy<Value = Value> {
        let name = prop_oneof![Just("di-container"), Just("sidecar")];
        let port = optional(1..70_000_i32);
        let gpus = optional(prop_oneof!["[0-9]{1,3}", Just("lots".to_owned())]);
        (name, port, gpus, any::<bool>()).prop_map(|(name, port, gpus, limit)| {
            let mut main =
                json!({"name": name, "image": "x", "env": [{"name": "A", "value": "b"}]});
            if let Some(port) = port {
                main["ports"] = json!([{"name": "di-port", "containerPort": port}]);
            }
            if let Some(gpus) = gpus {
                let list = if limit { "limits" } else { "requests" };
                main["resources"] = json!({list: {"nvidia.com/gpu": gpus, "cpu": "1"}});
            }
            json!({"spec": {"containers": [{"name": "first"}, main]}})
        })
    }

    fn part() -> impl Strategy<Value = Value> {
        let groups = proptest::collection::vec(("[a-c]", 0..9_i32), 0..3);
        (template(), 0..9_i32, groups).prop_map(|(template, replicas, groups)| {
            let group = |(name, replicas)| json!({"name": name, "replicas": replicas});
            let groups: Vec<Value> = groups.into_iter().map(group).collect();
            json!({"template": template, "replicas": replicas, "groups": groups})
        })
    }

    fn status() -> impl Strategy<Value = Value> {
        let phase = prop_oneof![Just("Running"), Just("Succeeded"), Just("Failed")];
        let names = proptest::collection::vec("[a-z]{1,9}", 0..4);
        let readiness = prop_oneof![Just("QuotaExceeded"), Just("Forbidden"), Just("AllReady")];
        (phase, names, any::<bool>(), readiness).prop_map(|(phase, names, ended, readiness)| {
            let entry = |name: &String| {
                json!({"name": name, "type": "Collector", "origin": "Requested", "index": 0, "claimedBy": "u/0"})
            };
            let condition = json!({
                "type": "Succeeded", "status": if ended { "True" } else { "False" }, "reason": "", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let readiness = json!({
                "type": "ReplicasReady", "status": "False", "reason": readiness, "message": "no room",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let request = json!({"kind": "Add", "key": "k", "at": "2026-01-01T00:00:00Z"});
            json!({
                "phase": phase, "conditions": [condition, readiness], "requests": [request],
                "plan": names.iter().map(entry).collect::<Vec<_>>(),
            })
        })
    }

    fn job() -> impl Strategy<Value = Value> {
        let parts = (template(), optional(part()), optional(part()));
        let marks = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        (parts, optional(status()), marks).prop_map(|(parts, status, marks)| {
            let (coordinator, collector, learner) = parts;
            let (suspend, deleting, annotated, lowered) = marks;
            let mut job = json!({
                "apiVersion": "diengine.opendilab.org/v1alpha2", "kind": "DIJob",
                "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
                "spec": {"coordinator": {"template": coordinator}, "suspend": suspend},
            });
            let fields = [
                ("/spec", "collector", collector),
                ("/spec", "learner", learner),
                ("", "status", status),
                (
                    "/metadata",
                    "deletionTimestamp",
                    deleting.then(|| json!("2026-01-01T00:00:00Z")),
                ),
                (
                    "/metadata",
                    "annotations",
                    annotated.then(|| json!({"theirs": "long"})),
                ),
            ];
            for (parent, field, value) in fields {
                if let Some(value) = value {
                    job.pointer_mut(parent).unwrap()[field] = value;
                }
            }
            if annotated && lowered {
                for key in WRITTEN {
                    job["metadata"]["annotations"][key] = json!("[]");
                }
            }
            job
        })
    }

    proptest! {
        #[test]
        fn what_is_read_of_a_job_is_read_of_its_view_alike(json in job(), gpus in optional("[0-9]{1,3}|x")) {
            let whole: DIJob = serde_json::from_value(json.clone()).unwrap();
            let view: JobView = serde_json::from_value(json).unwrap();
            prop_assert_eq!((view.key(), view.plan()), (whole.key(), whole.plan()));
            let resources = ReplicaResources {
                gpus: gpus.map(k8s_openapi::apimachinery::pkg::api::resource::Quantity),
                ..ReplicaResources::default()
            };
            for resources in [resources, ReplicaResources::default()] {
                prop_assert_eq!(Job::learner_gpus(&view, &resources), Job::learner_gpus(&whole, &resources));
            }
            for role in ROLES {
                prop_assert_eq!(view.port(role), whole.port(role));
                let declared = whole.spec.declared(role).filter(|_| role != Role::Coordinator);
                let declared = declared.map(|of| {
                    let groups = of.groups.iter().map(|group| (group.name.clone(), group.replicas));
                    (of.replicas, groups.collect::<Vec<_>>())
                });
                let kept = view.part(role).map(|part| (part.replicas, part.groups.clone()));
                prop_assert_eq!(kept, declared);
            }
            let (kept, metadata) = (&view.metadata, &whole.metadata);
            prop_assert_eq!((&kept.uid, &kept.resource_version), (&metadata.uid, &metadata.resource_version));
            let written = |metadata: &ObjectMeta| {
                metadata.annotations.as_ref().map(|all| WRITTEN.map(|key| all.get(key).cloned()))
            };
            prop_assert_eq!(written(kept), written(metadata));
            prop_assert!(kept.annotations.iter().flatten().all(|(key, _)| key != "theirs"));
            prop_assert_eq!(view.halted, Halt::of(&whole));
            prop_assert_eq!(view.has_status, whole.status.is_some());
            prop_assert_eq!(Job::refused(&view), Job::refused(&whole));
            prop_assert_eq!(view.requests, whole.status.map(|status| status.requests).unwrap_or_default());
        }
    }
}
