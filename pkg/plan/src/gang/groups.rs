use std::collections::BTreeMap;

use di_api::{DIJob, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource, ResourceExt,
    core::{DynamicObject, TypeMeta},
};
use serde_json::{Value, json};

use super::scheduler::{GangScheduler, GroupKind};
use crate::names::job_object_name;

/// Name of the group of a job.
pub fn group_name(job: &DIJob) -> String {
    job_object_name(&job.name_any(), &job.uid().unwrap_or_default())
}

/// Builds the group of a job, of which `min_member` pods start together. `None` if the scheduler
/// needs none.
pub fn new_group(job: &DIJob, scheduler: &GangScheduler, min_member: i32) -> Option<DynamicObject> {
    let kind = scheduler.group_kind()?;
    let name = job.name_any();
    let labels = [
        (names::labels::GROUP, names::labels::GROUP_VALUE),
        (names::labels::JOB, &name),
        (names::labels::CONTROLLER, names::labels::CONTROLLER_VALUE),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Some(DynamicObject {
        types: Some(TypeMeta {
            api_version: kind.api_version(),
            kind: GroupKind::KIND.to_owned(),
        }),
        metadata: ObjectMeta {
            name: Some(group_name(job)),
            namespace: job.namespace(),
            labels: Some(BTreeMap::from(labels)),
            owner_references: job.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        // Without minResources: defaults of a LimitRange and the overhead of a RuntimeClass are not
        // known here, and a wrong sum would block the gang for ever.
        data: json!({ "spec": group_spec(job, scheduler, min_member) }),
    })
}

fn group_spec(job: &DIJob, scheduler: &GangScheduler, min_member: i32) -> Value {
    let scheduling = job.spec.scheduling.clone().unwrap_or_default();
    let topology = (!scheduling.topology_key.is_empty())
        .then(|| json!({"topology": [{"key": scheduling.topology_key}]}));
    let mut spec = match scheduler {
        GangScheduler::Volcano => json!({
            "minMember": min_member,
            "queue": scheduling.queue,
            "priorityClassName": job.spec.priority_class_name,
        }),
        GangScheduler::Coscheduling { .. } => {
            json!({"minMember": min_member, "scheduleTimeoutSeconds": 60})
        }
        GangScheduler::Yunikorn => json!({}),
        GangScheduler::Kai => json!({
            "minMember": min_member,
            "queue": scheduling.queue,
            // Otherwise KAI evicts all pods soon after the loss of one.
            "stalenessGracePeriod": "-1s",
        }),
        GangScheduler::Kubernetes => json!({
            "schedulingPolicy": {"gang": {"minCount": min_member}},
            "schedulingConstraints": topology,
            "disruptionMode": {"single": {}},
        }),
    };
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|_, value| !value.is_null() && *value != "");
    }
    spec
}

/// Builds the merge patch that changes how many pods of a group start together.
pub fn group_size_patch(scheduler: &GangScheduler, min_member: i32) -> Value {
    if *scheduler == GangScheduler::Kubernetes {
        return json!({"spec": {"schedulingPolicy": {"gang": {"minCount": min_member}}}});
    }
    json!({"spec": {"minMember": min_member}})
}

/// Builds the merge patch that takes a pod out of its group. `None` if the scheduler does not count
/// ended pods.
///
/// The patch is the same for all schedulers, since the pod may be older than a change of the
/// scheduler.
pub fn leave_group_patch(scheduler: &GangScheduler) -> Option<Value> {
    match scheduler {
        GangScheduler::Volcano | GangScheduler::Coscheduling { .. } | GangScheduler::Kai => {
            Some(json!({"metadata": {
                "annotations": {(names::gang::VOLCANO_GROUP): null, (names::gang::KAI_GROUP): null},
                "labels": {(names::gang::COSCHEDULING_GROUP): null},
            }}))
        }
        GangScheduler::Yunikorn | GangScheduler::Kubernetes => None,
    }
}

/// The term of a pod affinity that keeps the pods of the floor in one topology domain. `None` if any
/// nodes will do.
pub(super) fn topology_term(job: &DIJob) -> Option<Value> {
    let key = &job.spec.scheduling.as_ref()?.topology_key;
    (!key.is_empty()).then(|| {
        json!({
            "labelSelector": {"matchLabels": {(names::GANG_LABEL): group_name(job)}},
            "topologyKey": key,
        })
    })
}
