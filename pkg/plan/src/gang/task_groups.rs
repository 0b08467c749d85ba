//! Task groups of YuniKorn, which reserves the nodes of a gang with placeholders of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use di_api::{
    DIJob, PlanEntry, PodTemplate, names,
    quantity::{NANOS_PER_UNIT, parse_nanos},
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::groups::{group_name, topology_term};
use crate::{
    build::{BuildSettings, PodSpecEditor, build_placed_pod},
    job::Job,
    queueing::{coordinator_entry, pod_set_name},
};

/// Builds the annotation with the task groups of a gang: one for each pod set of the floor. All pods
/// of the floor have the same annotation.
pub(super) fn build_task_groups(
    job: &DIJob,
    floor: &BTreeSet<&str>,
    aggregator: Option<&PodTemplate>,
) -> String {
    let coordinator = coordinator_entry(job);
    let replicas = job.plan_entries().iter();
    let replicas = replicas.filter(|entry| floor.contains(&*entry.name));
    let mut pod_sets: BTreeMap<String, (i32, &PlanEntry)> = BTreeMap::new();
    for entry in iter::once(&coordinator).chain(replicas) {
        pod_sets.entry(pod_set_name(entry)).or_insert((0, entry)).0 += 1;
    }
    let groups = pod_sets.into_iter().filter_map(|(name, (count, entry))| {
        let pod = build_placed_pod(job, entry, aggregator, &BuildSettings::default())?;
        Some(new_task_group(job, &name, count, &pod.spec))
    });
    groups.collect::<Value>().to_string()
}

/// Placeholders must fit on the same nodes as the pods that take their places.
fn new_task_group(job: &DIJob, name: &str, count: i32, pod: &Map<String, Value>) -> Value {
    let set = |field: &str| pod.get(field).filter(|value| !value.is_null());
    let copied = ["nodeSelector", "tolerations"].into_iter();
    let copied = copied.filter_map(|field| Some((field.to_owned(), set(field)?.clone())));
    let mut spec = PodSpecEditor::from_fields(copied.collect());
    if let Some(affinity) = set("affinity").and_then(|affinity| affinity.get("nodeAffinity")) {
        spec.set_node_affinity(affinity);
    }
    let term = topology_term(job);
    if let Some(term) = &term {
        spec.add_pod_affinity(term.clone());
    }
    let mut group = Value::Object(spec.into_fields());
    group["name"] = json!(name);
    group["minMember"] = json!(count);
    group["minResource"] = json!(sum_requests(pod));
    if term.is_some() {
        group["labels"] = json!({(names::GANG_LABEL): group_name(job)});
    }
    group
}

/// The resources that the scheduler counts for a pod.
fn sum_requests(pod: &Map<String, Value>) -> BTreeMap<String, String> {
    let list = |name: &str| pod.get(name).and_then(Value::as_array);
    let (inits, others) = (list("initContainers"), list("containers"));
    let is_sidecar = |container: &&Value| container["restartPolicy"] == "Always";
    let (sidecars, inits): (Vec<_>, Vec<_>) = inits.into_iter().flatten().partition(is_sidecar);
    let mut sums: BTreeMap<String, i128> = BTreeMap::new();
    for container in others.into_iter().flatten().chain(sidecars) {
        for (resource, nanos) in requests_of(container) {
            let sum = sums.entry(resource).or_default();
            *sum = sum.saturating_add(nanos);
        }
    }
    // Init containers run one at a time, before the others.
    for (resource, nanos) in inits.into_iter().flat_map(requests_of) {
        let sum = sums.entry(resource).or_default();
        *sum = nanos.max(*sum);
    }
    let sums = sums.into_iter();
    sums.map(|(resource, nanos)| (resource, format_nanos(nanos)))
        .collect()
}

/// The requests of a container. An unset request is equal to its limit.
fn requests_of(container: &Value) -> BTreeMap<String, i128> {
    let mut requests = BTreeMap::new();
    for list in ["limits", "requests"] {
        let quantities = &container["resources"][list];
        let quantities: BTreeMap<String, Quantity> =
            BTreeMap::deserialize(quantities).unwrap_or_default();
        let quantities = quantities.into_iter();
        requests.extend(
            quantities.filter_map(|(resource, text)| Some((resource, parse_nanos(&text.0)?))),
        );
    }
    requests
}

fn format_nanos(nanos: i128) -> String {
    const NANOS_PER_MILLI: i128 = NANOS_PER_UNIT / 1000;
    if nanos % NANOS_PER_UNIT == 0 {
        (nanos / NANOS_PER_UNIT).to_string()
    } else {
        format!("{}m", (nanos + NANOS_PER_MILLI - 1) / NANOS_PER_MILLI)
    }
}
