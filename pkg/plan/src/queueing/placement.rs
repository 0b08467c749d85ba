//! Placements: what the flavors and admission checks of an admission add to pods.

use std::collections::{BTreeMap, BTreeSet};

use di_api::{
    Placement, PodTemplate,
    names::{self, kueue},
};
use k8s_openapi::api::core::v1::Toleration;
use serde::Deserialize;
use serde_json::Value;

use crate::view::{Admission, PodSetAssignment, WorkloadView};

/// The part of a ResourceFlavor that pods get.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorView {
    /// Labels of its nodes, which become the node selector of pods.
    pub node_labels: BTreeMap<String, String>,
    /// Tolerations that pods need on its nodes.
    pub tolerations: Vec<Toleration>,
}

/// Two sources set the same key of a pod to different values. The message says which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementConflict(pub String);

/// Names of all flavors of an admission.
pub fn flavors_of(admission: &Admission) -> BTreeSet<&str> {
    let assignments = admission.pod_set_assignments.iter();
    let flavors = assignments.flat_map(|assignment| assignment.flavors.values());
    flavors.map(String::as_str).collect()
}

/// Builds the placement of each admitted pod set.
///
/// `flavors` has those of [`flavors_of`]; `template` returns the pod template of a pod set.
///
/// # Errors
/// When a flavor, an admission check and the template set the same key to different values. Kueue
/// does not start such a job either.
pub fn build_placements<'a>(
    workload: &WorkloadView,
    queue: &str,
    flavors: &BTreeMap<String, FlavorView>,
    template: impl Fn(&str) -> Option<&'a PodTemplate>,
) -> Result<Vec<Placement>, PlacementConflict> {
    let Some(admission) = &workload.admission else {
        return Ok(Vec::new());
    };
    let assignments = admission.pod_set_assignments.iter();
    assignments
        .map(|assignment| {
            let mut placement = new_placement(assignment, queue, &admission.cluster_queue);
            if let Some(written) = workload.summary.pod_sets.get(&assignment.name) {
                placement.template.clone_from(&written.template);
            }
            for name in &placement.flavors.clone() {
                let flavor = flavors.get(name).cloned().unwrap_or_default();
                let what = format!("node label of flavor {name}");
                merge(&mut placement.node_selector, &flavor.node_labels, &what)?;
                add_tolerations(&mut placement, &flavor.tolerations);
            }
            for update in check_updates(workload, &assignment.name) {
                let what = "value of an admission check";
                merge(&mut placement.node_selector, &update.node_selector, what)?;
                merge(&mut placement.labels, &update.labels, what)?;
                merge(&mut placement.annotations, &update.annotations, what)?;
                add_tolerations(&mut placement, &update.tolerations);
            }
            if let Some(template) = template(&assignment.name) {
                check_template(&placement, template)?;
            }
            Ok(placement)
        })
        .collect()
}

fn new_placement(assignment: &PodSetAssignment, queue: &str, cluster_queue: &str) -> Placement {
    let labels = [
        (kueue::POD_SET_LABEL, assignment.name.as_str()),
        (kueue::CLUSTER_QUEUE_LABEL, cluster_queue),
        (kueue::LOCAL_QUEUE_LABEL, queue),
    ];
    // A longer name is no valid label.
    let labels = labels
        .into_iter()
        .filter(|(_, value)| value.len() <= names::MAX_POD_NAME_LEN)
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
    let flavors: BTreeSet<&String> = assignment.flavors.values().collect();
    Placement {
        pod_set: assignment.name.clone(),
        flavors: flavors.into_iter().cloned().collect(),
        labels: labels.collect(),
        ..Placement::default()
    }
}

/// What admission checks add to the pods of a pod set.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSetUpdate {
    name: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<Toleration>,
}

fn check_updates(workload: &WorkloadView, pod_set: &str) -> Vec<PodSetUpdate> {
    let checks = workload.admission_fields.get("admissionChecks");
    let checks = checks.and_then(Value::as_array).into_iter().flatten();
    let updates = checks.filter_map(|check| Vec::deserialize(&check["podSetUpdates"]).ok());
    let updates = updates.flat_map(|updates: Vec<PodSetUpdate>| updates);
    updates.filter(|update| update.name == pod_set).collect()
}

/// Adds `more` to `all`.
fn merge(
    all: &mut BTreeMap<String, String>,
    more: &BTreeMap<String, String>,
    what: &str,
) -> Result<(), PlacementConflict> {
    for (key, value) in more {
        let known = all.entry(key.clone()).or_insert_with(|| value.clone());
        if known != value {
            let message = format!("{what} {key}={value} contradicts {key}={known}");
            return Err(PlacementConflict(message));
        }
    }
    Ok(())
}

fn add_tolerations(placement: &mut Placement, more: &[Toleration]) {
    for toleration in more {
        if !placement.tolerations.contains(toleration) {
            placement.tolerations.push(toleration.clone());
        }
    }
}

fn check_template(placement: &Placement, template: &PodTemplate) -> Result<(), PlacementConflict> {
    let (spec, metadata) = (template.part("spec"), template.part("metadata"));
    for (added, own, what) in [
        (
            &placement.node_selector,
            &spec["nodeSelector"],
            "nodeSelector",
        ),
        (&placement.labels, &metadata["labels"], "label"),
        (
            &placement.annotations,
            &metadata["annotations"],
            "annotation",
        ),
    ] {
        for (key, value) in added {
            if let Some(own) = own[key].as_str().filter(|own| own != value) {
                return Err(PlacementConflict(format!(
                    "{what} {key}={own} of the template of pod set {} contradicts {key}={value} of its admission",
                    placement.pod_set
                )));
            }
        }
    }
    Ok(())
}
