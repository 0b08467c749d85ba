use std::fmt;

use di_api::{
    DIJob, DIJobStatus, ElasticQueueing, ListWhen, PlanEntry, ReplicaResources, RequestRecord,
    Role, names, quantity,
};
use di_plan::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

/// The part of a job that the replica endpoint needs.
///
/// It has a tenth of the size of the job, because it has no templates. It is decoded from a whole
/// job.
#[derive(Clone, Debug, PartialEq, Deserialize, Resource)]
#[resource(inherit = DIJob)]
#[serde(from = "DIJob")]
pub struct JobView {
    /// Name, UID and version of the job, and the annotations that the endpoint writes.
    pub metadata: ObjectMeta,
    /// Why the job has no replicas; `None` if it may have some.
    pub halted: Option<Halt>,
    /// How replicas that are added later get quota; `None` if the job is in no queue of Kueue.
    pub queue: Option<ElasticQueueing>,
    /// Declared collectors; `None` if the spec has no collectors.
    pub collectors: Option<RoleView>,
    /// Declared learners; `None` if the spec has no learners.
    pub learners: Option<RoleView>,
    /// GPUs of a learner that sets no resources of its replica group.
    pub learner_gpus: i32,
    /// Port of the coordinator.
    pub coordinator_port: i32,
    /// Message of the API server if it rejected the last attempt to create a pod of the job.
    pub rejection: Option<Box<str>>,
    /// Whether the job has a status.
    pub has_status: bool,
    /// The entries of `status.plan`: replicas that should exist or are being removed.
    pub plan: Vec<PlanEntry>,
    /// Number of changes of the listed replicas of the plan; `None` while they are not counted.
    pub membership_generation: Option<i64>,
    /// Recent requests to the endpoint that changed the plan.
    pub requests: Vec<RequestRecord>,
}

/// The declared replicas of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleView {
    /// Port of each replica; of units, of their leaders.
    pub port: i32,
    /// Number of replicas with the resources of the template.
    pub replicas: i32,
    /// Name and number of replicas of each replica group.
    pub groups: Vec<(String, i32)>,
    /// When a replica is listed.
    pub list_when: ListWhen,
    /// Number of pods in each replica; `None` without units.
    pub unit_size: Option<i32>,
}

/// Why a job has no replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The job is being deleted.
    Deleting,
    /// The job has ended.
    Ended,
    /// The job is suspended.
    Suspended,
    /// The job is in a queue of Kueue, and not admitted.
    Queued,
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deleting => "is being deleted",
            Self::Ended => "has ended",
            Self::Suspended => "is suspended",
            Self::Queued => "waits in its queue",
        })
    }
}

impl Halt {
    fn for_job(job: &DIJob) -> Option<Self> {
        if job.metadata.deletion_timestamp.is_some() {
            return Some(Self::Deleting);
        }
        if job.status.as_ref().is_some_and(DIJobStatus::has_ended) {
            return Some(Self::Ended);
        }
        if job.spec.suspend {
            return Some(Self::Suspended);
        }
        // The phase is late: it is Queued until the coordinator of an admitted job runs, which sends
        // requests at once, and not yet Queued while the pods of a preempted job end.
        let status = job.status.as_ref();
        let is_admitted = status.is_some_and(|status| status.queueing.is_some());
        (job.queue_name().is_some() && !is_admitted).then_some(Self::Queued)
    }
}

impl From<DIJob> for JobView {
    fn from(job: DIJob) -> Self {
        let role_view = |role| {
            let declared = job.spec.declared(role)?;
            let groups = declared.groups.iter();
            Some(RoleView {
                port: job.role_port(role),
                replicas: declared.replicas,
                groups: groups.map(|g| (g.name.clone(), g.replicas)).collect(),
                list_when: job.spec.list_when(role),
                unit_size: job.unit_size(role),
            })
        };
        let mut view = Self {
            halted: Halt::for_job(&job),
            queue: elastic_queueing(&job),
            collectors: role_view(Role::Collector),
            learners: role_view(Role::Learner),
            learner_gpus: job.learner_gpus(&ReplicaResources::default()),
            coordinator_port: job.role_port(Role::Coordinator),
            rejection: job.rejection_message().map(Box::from),
            has_status: job.status.is_some(),
            plan: Vec::new(),
            membership_generation: None,
            requests: Vec::new(),
            metadata: trim_metadata(job.metadata),
        };
        if let Some(status) = job.status {
            (view.plan, view.requests) = (status.plan, status.requests);
            view.membership_generation = status.membership_generation;
            // serde's vectors have spare capacity, which adds up over all jobs.
            view.plan.shrink_to_fit();
            view.requests.shrink_to_fit();
        }
        view
    }
}

/// How replicas of the job that are added later get quota; `None` without a queue.
fn elastic_queueing(job: &DIJob) -> Option<ElasticQueueing> {
    job.queue_name()?;
    let queueing = job.spec.queueing.as_ref();
    let elastic = queueing.map(|queueing| queueing.elastic);
    Some(elastic.unwrap_or_default())
}

/// The annotations that the endpoint writes.
const ENDPOINT_ANNOTATIONS: [&str; 2] = [
    names::SCALE_DOWNS_ANNOTATION,
    names::PODS_TO_DELETE_ANNOTATION,
];

/// Reduces metadata to name, UID, version and the annotations that the endpoint writes.
fn trim_metadata(metadata: ObjectMeta) -> ObjectMeta {
    let annotations = metadata.annotations.map(|all| {
        let all = all.into_iter();
        all.filter(|(key, _)| ENDPOINT_ANNOTATIONS.contains(&key.as_str()))
            .collect()
    });
    ObjectMeta {
        namespace: metadata.namespace,
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        annotations,
        ..ObjectMeta::default()
    }
}

impl JobView {
    /// The declared replicas of a role; `None` for the coordinator and for roles without a spec.
    pub fn role_view(&self, role: Role) -> Option<&RoleView> {
        match role {
            Role::Collector => self.collectors.as_ref(),
            Role::Learner => self.learners.as_ref(),
            Role::Coordinator | Role::Aggregator | Role::DdpLearner => None,
        }
    }
}

impl Job for JobView {
    fn plan_entries(&self) -> &[PlanEntry] {
        &self.plan
    }

    fn rejection_message(&self) -> Option<&str> {
        self.rejection.as_deref()
    }

    fn role_port(&self, role: Role) -> i32 {
        let view_port = |view: &Option<RoleView>| view.as_ref().map(|view| view.port);
        let declared_port = match role {
            Role::Coordinator => Some(self.coordinator_port),
            Role::Collector => view_port(&self.collectors),
            Role::Learner | Role::DdpLearner => view_port(&self.learners),
            Role::Aggregator => None,
        };
        declared_port.unwrap_or_else(|| role.default_port())
    }

    fn list_when(&self, role: Role) -> ListWhen {
        let view = match role {
            Role::Coordinator => None,
            Role::Collector => self.collectors.as_ref(),
            Role::Learner | Role::Aggregator | Role::DdpLearner => self.learners.as_ref(),
        };
        view.map(|view| view.list_when).unwrap_or_default()
    }

    fn unit_size(&self, role: Role) -> Option<i32> {
        self.role_view(role)?.unit_size
    }

    fn learner_gpus(&self, resources: &ReplicaResources) -> i32 {
        if self.unit_size(Role::Learner).is_some() {
            return 0;
        }
        match &resources.gpus {
            Some(gpus) => quantity::parse_count(&gpus.0).unwrap_or(0),
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

    /// A template with a port and GPUs in one of its containers.
    fn any_template() -> impl Strategy<Value = Value> {
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

    fn any_role_spec() -> impl Strategy<Value = Value> {
        let groups = proptest::collection::vec(("[a-c]", 0..9_i32), 0..3);
        let list_when = prop_oneof![Just("Scheduled"), Just("Ready")];
        let leader = optional(any_template());
        let unit = (0..70_i32, leader).prop_map(|(size, template)| {
            let leader = template.map(|template| ("leaderTemplate", template));
            let fields = [("size", json!(size))].into_iter().chain(leader);
            fields.collect::<Value>()
        });
        let parts = (any_template(), 0..9_i32, groups, list_when, optional(unit));
        parts.prop_map(|(template, replicas, groups, list_when, unit)| {
            let group = |(name, replicas)| json!({"name": name, "replicas": replicas});
            let groups: Vec<Value> = groups.into_iter().map(group).collect();
            json!({
                "template": template, "replicas": replicas, "groups": groups, "listWhen": list_when,
                "unit": unit,
            })
        })
    }

    fn any_status() -> impl Strategy<Value = Value> {
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
                "type": "ReplicasReady", "status": "False", "reason": readiness, "message": "quota exceeded",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            });
            let request = json!({"kind": "Add", "key": "k", "at": "2026-01-01T00:00:00Z"});
            json!({
                "phase": phase, "conditions": [condition, readiness], "requests": [request],
                "membershipGeneration": names.len(),
                "plan": names.iter().map(entry).collect::<Vec<_>>(),
            })
        })
    }

    fn any_job() -> impl Strategy<Value = Value> {
        let parts = (
            any_template(),
            optional(any_role_spec()),
            optional(any_role_spec()),
        );
        let marks = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        let queue = prop_oneof![Just(""), Just("team-a")];
        let elastic = prop_oneof![Just("PerReplica"), Just("Whole"), Just("None")];
        let queueing = (optional(queue), optional(elastic));
        let all = (parts, optional(any_status()), marks, queueing);
        all.prop_map(|(parts, status, marks, queueing)| {
            let (coordinator, collector, learner) = parts;
            let (suspend, deleting, annotated, lowered) = marks;
            let (queue, elastic) = queueing;
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
                    "/spec",
                    "queueing",
                    elastic.map(|elastic| json!({"elastic": elastic})),
                ),
                (
                    "/metadata",
                    "labels",
                    queue.map(|queue| json!({names::kueue::QUEUE_LABEL: queue})),
                ),
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
                for key in ENDPOINT_ANNOTATIONS {
                    job["metadata"]["annotations"][key] = json!("[]");
                }
            }
            job
        })
    }

    proptest! {
        #[test]
        fn job_view_agrees_with_whole_job(json in any_job(), gpus in optional("[0-9]{1,3}|x")) {
            let whole: DIJob = serde_json::from_value(json.clone()).unwrap();
            let view: JobView = serde_json::from_value(json).unwrap();
            prop_assert_eq!((view.job_key(), view.plan_entries()), (whole.job_key(), whole.plan_entries()));
            let resources = ReplicaResources {
                gpus: gpus.map(k8s_openapi::apimachinery::pkg::api::resource::Quantity),
                ..ReplicaResources::default()
            };
            for resources in [resources, ReplicaResources::default()] {
                prop_assert_eq!(Job::learner_gpus(&view, &resources), Job::learner_gpus(&whole, &resources));
            }
            for role in ROLES {
                prop_assert_eq!(view.role_port(role), whole.role_port(role));
                prop_assert_eq!(Job::list_when(&view, role), Job::list_when(&whole, role));
                prop_assert_eq!(view.unit_size(role), whole.unit_size(role));
                let declared = whole.spec.declared(role).filter(|_| role != Role::Coordinator);
                let declared = declared.map(|spec| {
                    let groups = spec.groups.iter().map(|group| (group.name.clone(), group.replicas));
                    (spec.replicas, groups.collect::<Vec<_>>())
                });
                let kept = view.role_view(role).map(|view| (view.replicas, view.groups.clone()));
                prop_assert_eq!(kept, declared);
            }
            let (kept, metadata) = (&view.metadata, &whole.metadata);
            prop_assert_eq!((&kept.uid, &kept.resource_version), (&metadata.uid, &metadata.resource_version));
            let written = |metadata: &ObjectMeta| {
                metadata.annotations.as_ref().map(|all| ENDPOINT_ANNOTATIONS.map(|key| all.get(key).cloned()))
            };
            prop_assert_eq!(written(kept), written(metadata));
            prop_assert!(kept.annotations.iter().flatten().all(|(key, _)| key != "theirs"));
            prop_assert_eq!(view.halted, Halt::for_job(&whole));
            let elastic = whole.spec.queueing.as_ref().map(|queueing| queueing.elastic);
            prop_assert_eq!(view.queue, whole.queue_name().map(|_| elastic.unwrap_or_default()));
            prop_assert_eq!(view.has_status, whole.status.is_some());
            prop_assert_eq!(view.rejection_message(), whole.rejection_message());
            let generation = whole.status.as_ref().and_then(|status| status.membership_generation);
            prop_assert_eq!(view.membership_generation, generation);
            prop_assert_eq!(view.requests, whole.status.map(|status| status.requests).unwrap_or_default());
        }
    }

    #[test]
    fn job_in_queue_is_halted_until_admitted() {
        let admitted = json!({"queueing": {"workload": "dijob-j-00000"}, "phase": "Queued"});
        let preempted = json!({"phase": "Running"});
        for (queue, status, suspend, halted) in [
            ("team-a", json!({}), false, Some(Halt::Queued)),
            ("team-a", preempted, false, Some(Halt::Queued)),
            ("team-a", admitted, false, None),
            ("team-a", json!({}), true, Some(Halt::Suspended)),
            ("", json!({"phase": "Queued"}), false, None),
        ] {
            let job = di_fixtures::Job::test().status(status.clone());
            let job = job.metadata(json!({"labels": {names::kueue::QUEUE_LABEL: queue}}));
            let job: JobView = job.spec(json!({"suspend": suspend})).build();
            assert_eq!(job.halted, halted, "{queue}: {status}");
        }
    }
}
