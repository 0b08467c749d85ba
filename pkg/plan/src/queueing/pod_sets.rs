//! Pod sets: the pods of a Workload, grouped by their resources.

use std::hash::Hasher;

use di_api::{DIJob, Origin, PlanEntry, PodTemplate, Role, names};
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::build::{BuildSettings, build_unplaced_pod};

/// Pods with the same template.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PodSet {
    /// Name, unique in its Workload.
    pub name: String,
    /// Number of pods.
    pub count: i32,
    /// Their template, without ports and environment variables: these differ from pod to pod, may
    /// have secrets, and Kueue needs only the resources and the constraints of nodes.
    pub template: Value,
}

impl PodSet {
    /// A hash of the resources and the constraints of nodes in the template. Pods with other ones
    /// need other quota.
    pub fn template_hash(&self) -> String {
        let spec = &self.template["spec"];
        let resources_of = |list: &str| -> Vec<Value> {
            let containers = spec[list].as_array().into_iter().flatten();
            let parts = containers.map(|one| json!([one["resources"], one["restartPolicy"]]));
            parts.collect()
        };
        let needs = json!([
            resources_of("initContainers"),
            resources_of("containers"),
            spec["resources"],
            spec["overhead"],
            spec["runtimeClassName"],
            spec["nodeSelector"],
            spec["affinity"],
            spec["tolerations"],
        ]);
        let mut hasher = fnv::FnvHasher::default();
        hasher.write(needs.to_string().as_bytes());
        format!("{:016x}", hasher.finish())
    }
}

/// Name of the pod set of an entry, a DNS label: its role, the resources that differ from the
/// template, and the size of the learner group, since its ddp learners share the other resources by
/// their GPUs. Leaders of units may have another template.
pub fn pod_set_name(entry: &PlanEntry) -> String {
    let mut parts = vec![entry.role.label().to_owned()];
    if entry.unit.is_some() && entry.is_replica() {
        parts.push("leader".to_owned());
    }
    // The resources of an aggregator are those of its ddp learners.
    if entry.role != Role::Aggregator {
        let resources = &entry.resources;
        for (resource, quantity) in [
            ("cpu", &resources.cpus),
            ("gpu", &resources.gpus),
            ("memory", &resources.memory),
        ] {
            if let Some(quantity) = quantity {
                let text = quantity.0.to_lowercase();
                let text = text.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
                parts.push(format!("{resource}-{text}"));
            }
        }
    }
    if let Some(ddp) = &entry.ddp {
        parts.push(format!("of-{}", ddp.world_size));
    }
    let mut name = parts.join("-");
    name.truncate(names::MAX_POD_NAME_LEN);
    name.truncate(name.trim_end_matches('-').len());
    name
}

/// Groups the pods of entries into pod sets, sorted by name. `None` if the template of aggregators
/// is missing.
///
/// With `has_coordinator`, the pod set of the coordinator comes first.
pub fn build_pod_sets<'a>(
    job: &DIJob,
    has_coordinator: bool,
    entries: impl IntoIterator<Item = &'a PlanEntry>,
    aggregator: Option<&PodTemplate>,
) -> Option<Vec<PodSet>> {
    let coordinator = coordinator_entry(job);
    let mut pod_sets: Vec<PodSet> = Vec::new();
    if has_coordinator {
        pod_sets.push(PodSet {
            name: pod_set_name(&coordinator),
            count: 1,
            template: pod_set_template(job, &coordinator, aggregator)?,
        });
    }
    for entry in entries {
        let name = pod_set_name(entry);
        if let Some(known) = pod_sets.iter_mut().find(|known| known.name == name) {
            known.count += 1;
            continue;
        }
        let template = pod_set_template(job, entry, aggregator)?;
        pod_sets.push(PodSet {
            name,
            count: 1,
            template,
        });
    }
    pod_sets[usize::from(has_coordinator)..].sort_by(|one, other| one.name.cmp(&other.name));
    Some(pod_sets)
}

/// The entry of the coordinator, which is not in the plan.
pub(crate) fn coordinator_entry(job: &DIJob) -> PlanEntry {
    let name = names::coordinator_name(&job.name_any());
    PlanEntry::new(name, Role::Coordinator, Origin::Declared, 0)
}

fn pod_set_template(
    job: &DIJob,
    entry: &PlanEntry,
    aggregator: Option<&PodTemplate>,
) -> Option<Value> {
    let mut entry = entry.clone();
    let gpus = entry.gpu_count();
    if let Some(ddp) = &mut entry.ddp {
        // Resources are split by ranks. The last share is the largest.
        ddp.start_rank = ddp.world_size - gpus;
    }
    let pod = build_unplaced_pod(job, &entry, aggregator, &BuildSettings::default())?;
    let mut spec = pod.spec;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        let containers = containers.into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            remove_unneeded(container);
        }
    }
    Some(json!({"spec": spec}))
}

fn remove_unneeded(container: &mut Map<String, Value>) {
    for field in ["env", "envFrom", "ports"] {
        container.remove(field);
    }
}
