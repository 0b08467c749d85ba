//! Kueue's rules of admission and preemption in one ClusterQueue without a cohort. As by its
//! default, `BestEffortFIFO`, a Workload that does not fit does not block those behind it.

use std::{cmp::Reverse, collections::BTreeMap, mem, slice};

use serde_json::Value;

use crate::workload::{
    Amounts, Assignment, PODS, PodSet, WorkloadView, add_amounts, format_amount, items,
    parse_amount,
};

#[cfg(test)]
mod tests;

/// Amounts by flavor and resource.
type Usage = BTreeMap<(String, String), i128>;

/// Quota of a ClusterQueue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quota {
    /// Resource groups: flavors in order of preference, each with its nominal quotas.
    groups: Vec<Vec<(String, Amounts)>>,
    /// Whether a Workload preempts those with a lower priority.
    preempts: bool,
}

/// What the stand-in does with a Workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Reserves quota and admits it.
    Admit(Vec<Assignment>),
    /// Leaves it in the queue; the message says why.
    Wait(String),
    /// Evicts it; the message names the other Workload.
    Preempt(String),
}

impl Quota {
    /// Parses the spec of a ClusterQueue.
    pub(crate) fn parse(spec: &Value) -> Self {
        let parse_flavor = |flavor: &Value| {
            let resources = items(&flavor["resources"]).filter_map(|resource| {
                let quota = parse_amount(&resource["nominalQuota"])?;
                Some((resource["name"].as_str()?.to_owned(), quota))
            });
            let name = flavor["name"].as_str().unwrap_or_default();
            (name.to_owned(), resources.collect())
        };
        let groups = items(&spec["resourceGroups"]);
        Self {
            groups: groups
                .map(|group| items(&group["flavors"]).map(parse_flavor).collect())
                .collect(),
            preempts: spec["preemption"]["withinClusterQueue"] == "LowerPriority",
        }
    }

    /// Nominal quota of all flavors together.
    pub(crate) fn nominal(&self) -> Amounts {
        let mut sum = Amounts::new();
        for (_, quotas) in self.groups.iter().flatten() {
            add_amounts(&mut sum, quotas);
        }
        sum
    }
}

/// Decides for the Workloads of a ClusterQueue, by name. Workloads that keep their quota are left
/// out.
pub(crate) fn decide(quota: &Quota, workloads: &[WorkloadView]) -> BTreeMap<String, Decision> {
    let (mut reserved, mut pending): (Vec<WorkloadView>, Vec<WorkloadView>) = workloads
        .iter()
        .cloned()
        .partition(|workload| workload.reserved.is_some());
    pending.sort_by_key(|workload| {
        let name = workload.name.clone();
        (Reverse(workload.priority), workload.created, name)
    });
    let mut used = Usage::new();
    for workload in &reserved {
        change_usage(&mut used, usage_of(workload), 1);
    }
    let mut decisions = BTreeMap::new();
    for workload in &pending {
        let decision = match assign_flavors(quota, workload, &used) {
            Ok(assignments) => {
                change_usage(&mut used, &assignments, 1);
                Decision::Admit(assignments)
            }
            Err(message) => match find_victims(quota, workload, &reserved, &used) {
                None => Decision::Wait(message),
                Some((victims, assignments)) => {
                    // No other Workload gets the quota that the victims will release.
                    change_usage(&mut used, &assignments, 1);
                    let count = victims.len();
                    for victim in victims {
                        let victim = &mut reserved[victim];
                        if !mem::replace(&mut victim.is_evicting, true) {
                            let preempted = Decision::Preempt(preemption_message(workload));
                            decisions.insert(victim.name.clone(), preempted);
                        }
                    }
                    Decision::Wait(format!(
                        "{message}. Pending the preemption of {count} workload(s)"
                    ))
                }
            },
        };
        decisions.insert(workload.name.clone(), decision);
    }
    decisions
}

fn preemption_message(preemptor: &WorkloadView) -> String {
    format!(
        "Preempted to accommodate a workload (UID: {}) due to prioritization in the ClusterQueue",
        preemptor.uid
    )
}

fn usage_of(workload: &WorkloadView) -> &[Assignment] {
    workload.reserved.as_deref().unwrap_or_default()
}

/// Adds what pod sets use, or subtracts it with sign -1.
fn change_usage(used: &mut Usage, assignments: &[Assignment], sign: i128) {
    for assignment in assignments {
        for (resource, amount) in &assignment.usage {
            let flavor = assignment.flavors[resource].clone();
            *used.entry((flavor, resource.clone())).or_default() += sign * amount;
        }
    }
}

/// Assigns flavors to all pod sets.
///
/// # Errors
///
/// The message of Kueue for the first pod set that does not fit.
fn assign_flavors(
    quota: &Quota,
    workload: &WorkloadView,
    used: &Usage,
) -> Result<Vec<Assignment>, String> {
    let mut used = used.clone();
    let mut assignments = Vec::new();
    for pod_set in &workload.pod_sets {
        let assignment = assign_pod_set(quota, pod_set, &used).map_err(|reason| {
            let name = &pod_set.name;
            format!("couldn't assign flavors to pod set {name}: {reason}")
        })?;
        change_usage(&mut used, slice::from_ref(&assignment), 1);
        assignments.push(assignment);
    }
    Ok(assignments)
}

fn assign_pod_set(quota: &Quota, pod_set: &PodSet, used: &Usage) -> Result<Assignment, String> {
    let mut assignment = Assignment {
        pod_set: pod_set.name.clone(),
        count: pod_set.count,
        flavors: BTreeMap::new(),
        usage: Amounts::new(),
    };
    let mut rest = pod_set.total();
    for flavors in &quota.groups {
        let is_covered = |resource: &String| {
            let mut flavors = flavors.iter();
            flavors.any(|(_, quotas)| quotas.contains_key(resource))
        };
        let (covered, others): (Amounts, Amounts) = rest
            .into_iter()
            .partition(|(resource, _)| is_covered(resource));
        rest = others;
        if covered.is_empty() {
            continue;
        }
        // All resources of a group have the same flavor.
        let flavor = choose_flavor(flavors, &covered, used)?;
        for (resource, amount) in covered {
            assignment.flavors.insert(resource.clone(), flavor.clone());
            assignment.usage.insert(resource, amount);
        }
    }
    // Pods count only if the ClusterQueue covers them.
    rest.remove(PODS);
    match rest.into_keys().next() {
        None => Ok(assignment),
        Some(resource) => Err(format!("resource {resource} unavailable in ClusterQueue")),
    }
}

/// Returns the first flavor in which the requests fit.
fn choose_flavor(
    flavors: &[(String, Amounts)],
    requests: &Amounts,
    used: &Usage,
) -> Result<String, String> {
    let mut reasons = Vec::new();
    for (flavor, quotas) in flavors {
        let lacking: Vec<String> = requests
            .iter()
            .filter_map(|(resource, request)| {
                let nominal = quotas.get(resource).copied().unwrap_or_default();
                let key = (flavor.clone(), resource.clone());
                let used = used.get(&key).copied().unwrap_or_default();
                let lacking = used + request - nominal;
                let [request_text, nominal_text, lacking_text] =
                    [*request, nominal, lacking].map(format_amount);
                if *request > nominal {
                    Some(format!(
                        "insufficient quota for {resource} in flavor {flavor}, \
                         request > maximum capacity ({request_text} > {nominal_text})"
                    ))
                } else if lacking > 0 {
                    Some(format!(
                        "insufficient unused quota for {resource} in flavor {flavor}, \
                         {lacking_text} more needed"
                    ))
                } else {
                    None
                }
            })
            .collect();
        if lacking.is_empty() {
            return Ok(flavor.clone());
        }
        reasons.extend(lacking);
    }
    Err(reasons.join(", "))
}

/// Returns the positions of the Workloads that must release their quota before this one fits, and
/// what it is then assigned. `None` if that is not enough, or the ClusterQueue does not preempt.
fn find_victims(
    quota: &Quota,
    workload: &WorkloadView,
    reserved: &[WorkloadView],
    used: &Usage,
) -> Option<(Vec<usize>, Vec<Assignment>)> {
    if !quota.preempts {
        return None;
    }
    let is_candidate =
        |other: &WorkloadView| other.is_evicting || other.priority < workload.priority;
    let candidates = reserved.iter().enumerate();
    let mut candidates: Vec<usize> = candidates
        .filter_map(|(position, other)| is_candidate(other).then_some(position))
        .collect();
    candidates.sort_by_key(|position| {
        let other = &reserved[*position];
        (!other.is_evicting, other.priority, Reverse(other.created))
    });
    let mut used = used.clone();
    let mut candidates = candidates.into_iter();
    let mut victims = Vec::new();
    while assign_flavors(quota, workload, &used).is_err() {
        let position = candidates.next()?;
        change_usage(&mut used, usage_of(&reserved[position]), -1);
        victims.push(position);
    }
    // Like Kueue, spare those that a later victim has made unnecessary.
    victims.reverse();
    victims.retain(|position| {
        let victim = &reserved[*position];
        change_usage(&mut used, usage_of(victim), 1);
        let is_spared = !victim.is_evicting && assign_flavors(quota, workload, &used).is_ok();
        if !is_spared {
            change_usage(&mut used, usage_of(victim), -1);
        }
        !is_spared
    });
    let assignments = assign_flavors(quota, workload, &used).ok()?;
    Some((victims, assignments))
}
