//! The pods that the reconciler would build from an object.

use std::collections::BTreeSet;

use di_api::{
    AggregatorConfig, CoordinatorSpec, DIJob, DIJobSpec, Origin, PlanEntry, PodTemplate, Role,
    UnitPlace, names,
};
use di_plan::{BuildSettings, NewPod, build_pod, template_of};
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Volume};
use kube::ResourceExt;

use super::field_map::FieldMap;
use crate::review::ValidObject;

/// Builds one pod of each template of the object in this namespace. Groups have no pods of their
/// own: they differ only in quantities that the webhook validates itself.
pub(super) fn build_pods(
    object: ValidObject,
    namespace: &str,
    settings: &BuildSettings,
) -> Vec<(NewPod, FieldMap)> {
    match object {
        ValidObject::DIJob(mut job) => {
            job.metadata.namespace = Some(namespace.to_owned());
            let entries = Role::DECLARED
                .into_iter()
                .flat_map(|role| representative_entries(&job, role));
            let pods = entries.filter_map(|(entry, field)| {
                let template = template_of(&job, &entry, None)?;
                let pod = build_pod(&job, &entry, None, settings)?;
                let path = format!("spec.{}.{field}", entry.role);
                let fields = FieldMap::new(path, template, Some(&job), &pod);
                Some((pod, fields))
            });
            pods.collect()
        }
        ValidObject::AggregatorConfig(config) => {
            let template = &config.spec.aggregator.template;
            let job = job_of_config(&config, namespace);
            let entry = PlanEntry {
                port: template.named_port(),
                ..representative_entry(&job, Role::Aggregator)
            };
            let Some(pod) = build_pod(&job, &entry, Some(template), settings) else {
                return Vec::new();
            };
            let path = "spec.aggregator.template".to_owned();
            let fields = FieldMap::new(path, template, None, &pod);
            vec![(pod, fields)]
        }
    }
}

/// A job whose learner groups use the configuration. It has the volumes that the template mounts and
/// does not define, since a job's volumes are added to its aggregators.
fn job_of_config(config: &AggregatorConfig, namespace: &str) -> DIJob {
    let spec = DIJobSpec {
        group: String::new(),
        priority_class_name: String::new(),
        clean_pod_policy: di_api::CleanPodPolicy::default(),
        volumes: undefined_volumes(&config.spec.aggregator.template),
        coordinator: CoordinatorSpec {
            template: PodTemplate::default(),
        },
        collector: None,
        learner: None,
        suspend: false,
        active_deadline_seconds: None,
        ttl_seconds_after_finished: None,
        backoff_limit: 0,
        failure_rules: Vec::new(),
        failure_tails: true,
        queueing: None,
        scheduling: None,
    };
    let mut job = DIJob::new(&config.name_any(), spec);
    job.metadata.namespace = Some(namespace.to_owned());
    job
}

/// A volume for each name that the containers mount, or use as a device, and the template does not
/// define.
fn undefined_volumes(template: &PodTemplate) -> Vec<Volume> {
    let Some(pod) = template.decode().ok().and_then(|template| template.spec) else {
        return Vec::new();
    };
    let defined = pod.volumes.iter().flatten().map(|volume| &*volume.name);
    let defined: BTreeSet<_> = defined.collect();
    let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
    let used = containers.flat_map(|container| {
        let mounts = container.volume_mounts.iter().flatten();
        let devices = container.volume_devices.iter().flatten();
        let mounted = mounts.map(|mount| &*mount.name);
        mounted.chain(devices.map(|device| &*device.name))
    });
    let used: BTreeSet<_> = used.filter(|name| !name.is_empty()).collect();
    // A claim can be both mounted and used as a device.
    let volumes = used.difference(&defined).map(|&name| Volume {
        name: name.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: name.to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    });
    volumes.collect()
}

/// A plan entry for each template of a role, and the field of the role with the template.
fn representative_entries(job: &DIJob, role: Role) -> Vec<(PlanEntry, &'static str)> {
    let mut first = representative_entry(job, role);
    let Some(unit) = job.spec.unit(role) else {
        return vec![(first, "template")];
    };
    first.unit = Some(UnitPlace::of_leader(unit.size));
    if unit.leader_template.is_none() {
        return vec![(first, "template")];
    }
    let other = PlanEntry {
        name: names::unit_member_name(&first.name, 1),
        unit: Some(UnitPlace {
            leader: Some(first.name.clone()),
            index: 1,
            size: unit.size,
        }),
        ..first.clone()
    };
    vec![(first, "unit.leaderTemplate"), (other, "template")]
}

/// The plan entry of the first replica of a role.
fn representative_entry(job: &DIJob, role: Role) -> PlanEntry {
    let job = job.name_any();
    let name = match role {
        Role::Coordinator => names::coordinator_name(&job),
        role => names::replica_name(&job, role, &"x".repeat(names::SUFFIX_LEN)),
    };
    PlanEntry::new(name, role, Origin::Declared, 0)
}
