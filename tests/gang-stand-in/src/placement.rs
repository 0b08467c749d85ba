//! The decisions of the scheduler.

use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// Amounts by resource, in units of 10^-9.
pub(crate) type Amounts = BTreeMap<String, i128>;
/// The resource that counts pods.
pub(crate) const PODS: &str = "pods";

/// A pod that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct PodView {
    pub name: String,
    pub uid: String,
    pub job: String,
    /// Name of the PodGroup.
    pub group: Option<String>,
    pub requests: Amounts,
    /// Node that it was bound to.
    pub node: Option<String>,
    /// Why it had no node in an earlier round.
    pub message: Option<String>,
}

/// What happens to a pod without a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// It is bound to this node.
    Bind(String),
    /// It waits, with this message.
    Wait(String),
}

/// Decides on every pod without a node. The pods are sorted by name. `nodes` have their allocatable
/// amounts, `minimums` the `minMember` of each PodGroup.
pub(crate) fn decide<'a>(
    pods: &'a [PodView],
    mut nodes: BTreeMap<String, Amounts>,
    minimums: &BTreeMap<String, usize>,
) -> Vec<(&'a PodView, Decision)> {
    let mut groups: BTreeMap<&str, Vec<&PodView>> = BTreeMap::new();
    for pod in pods {
        if let Some(free) = pod.node.as_ref().and_then(|node| nodes.get_mut(node)) {
            subtract(free, &pod.requests);
        }
        if let Some(group) = &pod.group {
            groups.entry(group).or_default().push(pod);
        }
    }
    let mut decisions = Vec::new();
    for (group, members) in groups {
        let minimum = minimums.get(group).copied();
        decisions.extend(decide_on_group(&members, minimum, &mut nodes));
    }
    for pod in take_turns(pods) {
        let node = place(pod, &mut nodes);
        decisions.push((pod, node.map_or_else(Decision::Wait, Decision::Bind)));
    }
    decisions
}

/// Binds the pods of a group that fit, if with them at least `minimum` pods have nodes.
fn decide_on_group<'a>(
    members: &[&'a PodView],
    minimum: Option<usize>,
    nodes: &mut BTreeMap<String, Amounts>,
) -> Vec<(&'a PodView, Decision)> {
    let mut left = nodes.clone();
    let waiting = members.iter().filter(|pod| pod.node.is_none());
    let results: Vec<_> = waiting.map(|pod| (*pod, place(pod, &mut left))).collect();
    let mut failures = results
        .iter()
        .filter_map(|(_, result)| result.as_ref().err());
    let first_failure = failures.next().cloned();
    let failed = failures.count() + usize::from(first_failure.is_some());
    let reason = match minimum {
        None => Some("its PodGroup does not exist".to_owned()),
        Some(minimum) if members.len() < minimum => Some(format!(
            "the group has {} of at least {minimum} pods",
            members.len()
        )),
        Some(minimum) if members.len() - failed < minimum => first_failure,
        Some(_) => None,
    };
    if reason.is_none() {
        *nodes = left;
    }
    let conclude = |result: Result<String, String>| match &reason {
        Some(reason) => Decision::Wait(reason.clone()),
        None => result.map_or_else(Decision::Wait, Decision::Bind),
    };
    let results = results.into_iter();
    results.map(|(pod, node)| (pod, conclude(node))).collect()
}

/// Returns the pods without a group and without a node, one of each job in turn. A scheduler without
/// gangs may choose this order, in which jobs block each other.
fn take_turns(pods: &[PodView]) -> Vec<&PodView> {
    let mut single: Vec<_> = pods.iter().filter(|pod| pod.group.is_none()).collect();
    single.sort_by_key(|pod| pod.node.is_none());
    let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
    let mut waiting = Vec::new();
    for pod in single {
        let turn = turns.entry(&pod.job).or_default();
        *turn += 1;
        if pod.node.is_none() {
            waiting.push((*turn, pod));
        }
    }
    waiting.sort_by_key(|(turn, _)| *turn);
    waiting.into_iter().map(|(_, pod)| pod).collect()
}

/// Takes the requests of a pod from the first node with room, and returns the name of the node.
///
/// # Errors
///
/// The message of kube-scheduler if no node has room.
fn place(pod: &PodView, nodes: &mut BTreeMap<String, Amounts>) -> Result<String, String> {
    let mut lacking: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, free) in nodes.iter_mut() {
        let exceeds = |(resource, amount): &(&String, &i128)| {
            free.get(*resource).copied().unwrap_or_default() < **amount
        };
        let exceeded = pod.requests.iter().filter(exceeds);
        let exceeded: Vec<&str> = exceeded.map(|(resource, _)| resource.as_str()).collect();
        if exceeded.is_empty() {
            subtract(free, &pod.requests);
            return Ok(name.clone());
        }
        for resource in exceeded {
            *lacking.entry(resource).or_default() += 1;
        }
    }
    let reasons = lacking.into_iter().map(|(resource, count)| match resource {
        PODS => format!("{count} Too many pods"),
        _ => format!("{count} Insufficient {resource}"),
    });
    let reasons: Vec<String> = reasons.collect();
    let total = nodes.len();
    let reasons = reasons.join(", ");
    Err(format!("0/{total} nodes are available: {reasons}."))
}

fn subtract(free: &mut Amounts, requests: &Amounts) {
    for (resource, amount) in requests {
        *free.entry(resource.clone()).or_default() -= amount;
    }
}
