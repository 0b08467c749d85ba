//! Parts of a Workload that the rules read.

use std::{collections::BTreeMap, slice};

use di_api::quantity::{NANOS_PER_UNIT, parse_nanos};
use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;

/// Amounts by resource, in units of 10^-9.
pub(crate) type Amounts = BTreeMap<String, i128>;

/// The resource that counts pods.
pub(crate) const PODS: &str = "pods";
/// Kueue up to 0.17 rejects Workloads with more pod sets.
pub(crate) const MAX_POD_SETS: usize = 8;

static NULL: Value = Value::Null;

/// A Workload that has quota or may get it.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadView {
    pub name: String,
    pub uid: String,
    pub priority: i64,
    pub created: Option<Timestamp>,
    pub pod_sets: Vec<PodSet>,
    /// What it uses. `None` while its quota is not reserved.
    pub reserved: Option<Vec<Assignment>>,
    /// Whether it was evicted. It uses quota until the operator releases it.
    pub is_evicting: bool,
}

/// A pod set without the pods that were reclaimed.
#[derive(Clone, Debug)]
pub(crate) struct PodSet {
    pub name: String,
    pub count: i128,
    /// Requests of one pod.
    pub requests: Amounts,
}

/// The flavors of one pod set, and what it uses of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assignment {
    pub pod_set: String,
    pub count: i128,
    /// Flavors by resource.
    pub flavors: BTreeMap<String, String>,
    pub usage: Amounts,
}

impl WorkloadView {
    pub(crate) fn new(workload: &DynamicObject) -> Self {
        let spec = &workload.data["spec"];
        let reclaimed = reclaimed_pods(workload);
        let pod_sets = items(&spec["podSets"]).map(|pod_set| {
            let name = pod_set["name"].as_str().unwrap_or_default();
            let reclaimed = reclaimed.get(name).copied().unwrap_or_default();
            PodSet {
                name: name.to_owned(),
                count: (pod_count(pod_set) - reclaimed).max(0).into(),
                requests: pod_requests(&pod_set["template"]["spec"]),
            }
        });
        let pod_sets: Vec<PodSet> = pod_sets.collect();
        let assignments = &workload.data["status"]["admission"]["podSetAssignments"];
        let reserved = is_true(workload, "QuotaReserved").then(|| {
            let assigned = items(assignments).filter_map(|assigned| {
                let mut sets = pod_sets.iter();
                let pod_set = sets.find(|pod_set| assigned["name"] == pod_set.name)?;
                Some(pod_set.assigned_usage(&assigned["flavors"]))
            });
            assigned.collect()
        });
        Self {
            name: workload.name_any(),
            uid: workload.uid().unwrap_or_default(),
            priority: spec["priority"].as_i64().unwrap_or_default(),
            created: workload.creation_timestamp().map(|time| time.0),
            pod_sets,
            reserved,
            is_evicting: is_true(workload, "Evicted"),
        }
    }
}

impl PodSet {
    /// Requests of all pods, without resources of which none is requested.
    pub(crate) fn total(&self) -> Amounts {
        let totals = self.requests.iter();
        let totals = totals.map(|(resource, amount)| (resource.clone(), amount * self.count));
        totals.filter(|(_, total)| *total > 0).collect()
    }

    fn assigned_usage(&self, flavors: &Value) -> Assignment {
        let flavors = flavors.as_object().into_iter().flatten();
        let flavors: BTreeMap<String, String> = flavors
            .filter_map(|(resource, flavor)| Some((resource.clone(), flavor.as_str()?.to_owned())))
            .collect();
        let mut usage = self.total();
        usage.retain(|resource, _| flavors.contains_key(resource));
        Assignment {
            pod_set: self.name.clone(),
            count: self.count,
            flavors,
            usage,
        }
    }
}

/// Requests of a pod. Kueue takes a limit as the request where no request is set. Init containers
/// and overhead are left out.
pub(crate) fn pod_requests(spec: &Value) -> Amounts {
    let mut sum = Amounts::from([(PODS.to_owned(), NANOS_PER_UNIT)]);
    for container in items(&spec["containers"]) {
        let mut requests = amounts(&container["resources"]["limits"]);
        requests.extend(amounts(&container["resources"]["requests"]));
        add_amounts(&mut sum, &requests);
    }
    sum
}

pub(crate) fn add_amounts(sum: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        *sum.entry(resource.clone()).or_default() += amount;
    }
}

fn amounts(quantities: &Value) -> Amounts {
    let quantities = quantities.as_object().into_iter().flatten();
    quantities
        .filter_map(|(resource, quantity)| Some((resource.clone(), parse_amount(quantity)?)))
        .collect()
}

/// Parses a quantity, which JSON may contain as a string or as a number.
pub(crate) fn parse_amount(quantity: &Value) -> Option<i128> {
    match quantity {
        Value::String(text) => parse_nanos(text),
        other => parse_nanos(&other.to_string()),
    }
}

/// Formats an amount in units, or in thousandths of a unit.
pub(crate) fn format_amount(nanos: i128) -> String {
    if nanos % NANOS_PER_UNIT == 0 {
        (nanos / NANOS_PER_UNIT).to_string()
    } else {
        format!("{}m", nanos * 1000 / NANOS_PER_UNIT)
    }
}

/// Number of pods of a pod set, as in the spec.
pub(crate) fn pod_count(pod_set: &Value) -> i64 {
    pod_set["count"].as_i64().unwrap_or(1)
}

/// Number of reclaimed pods by pod set.
pub(crate) fn reclaimed_pods(workload: &DynamicObject) -> BTreeMap<&str, i64> {
    let pod_sets = items(&workload.data["status"]["reclaimablePods"]);
    let pod_sets = pod_sets.filter_map(|item| Some((item["name"].as_str()?, pod_count(item))));
    pod_sets.collect()
}

/// The condition of this type, or null.
pub(crate) fn condition<'a>(workload: &'a DynamicObject, kind: &str) -> &'a Value {
    let mut conditions = items(&workload.data["status"]["conditions"]);
    let found = conditions.find(|condition| condition["type"] == kind);
    found.unwrap_or(&NULL)
}

/// Whether the condition of this type is true.
pub(crate) fn is_true(workload: &DynamicObject, kind: &str) -> bool {
    condition(workload, kind)["status"] == "True"
}

/// Items of a JSON array; none if it is absent.
pub(crate) fn items(list: &Value) -> slice::Iter<'_, Value> {
    list.as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
}
