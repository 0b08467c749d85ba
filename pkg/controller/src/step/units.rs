//! Logic learners: what their units wait for.

use std::{collections::HashSet, time::Duration};

use di_api::{PlanEntry, Reason, Role};
use di_plan::{Simple, Suffixes, aggregator_of, expand, find, is_whole, members};
use kube::ResourceExt;

use super::{Note, Observed, Step, replicas::Loss};

/// Nodes are known within this time of the start, or their watch is told of as failing.
const UNTIL_NODES_ARE_KNOWN: Duration = Duration::from_secs(1);

/// Gives aggregators their port and their ddp learners.
pub(super) fn tend(
    seen: &Observed<'_>,
    plan: &mut Vec<PlanEntry>,
    step: &mut Step,
    suffixes: &mut dyn Suffixes,
) {
    let new = plan.iter_mut().filter(|e| e.role == Role::Aggregator);
    for entry in new.filter(|entry| entry.port.is_none()) {
        entry.port = seen.aggregator.port();
    }
    match seen.nodes {
        Some(nodes) => expand(seen.job, plan, nodes, &Simple, suffixes, seen.now),
        None if aggregators(plan).any(|unit| members(plan, &unit.name).next().is_none()) => {
            step.look_within(UNTIL_NODES_ARE_KNOWN);
        }
        None => {}
    }
    // While something else went wrong, that is the job's reason, which does not tell whether this was told.
    if seen.trouble.is_none()
        && let Some((reason, message)) = stuck(seen, plan)
        && step.status.reason.as_deref() != Some(reason.as_str())
    {
        step.notes.push(Note::warning(reason, message));
    }
}

fn aggregators(plan: &[PlanEntry]) -> impl Iterator<Item = &PlanEntry> {
    plan.iter()
        .filter(|entry| entry.role == Role::Aggregator && entry.is_wanted())
}

/// Whom a replica is made with: the aggregator of its unit, or nobody but itself.
pub(super) fn leader(entry: &PlanEntry) -> &str {
    aggregator_of(entry).unwrap_or(&entry.name)
}

/// The entry of that one; a ddp learner's own where it has none.
pub(super) fn lead<'a>(plan: &'a [PlanEntry], entry: &'a PlanEntry) -> &'a PlanEntry {
    let aggregator = aggregator_of(entry).and_then(|name| find(plan, name));
    aggregator.unwrap_or(entry)
}

/// Units of which one pod goes while another stays, by their leaders.
pub(super) fn torn(seen: &Observed<'_>, plan: &[PlanEntry]) -> HashSet<String> {
    let of_units = |entry: &&PlanEntry| entry.role == Role::Aggregator || entry.ddp.is_some();
    let leaders = |goes: bool| {
        let is_so = move |entry: &&PlanEntry| {
            let pod = seen.pod(&entry.name);
            entry.is_wanted() && pod.is_some_and(|pod| pod.deleting == goes)
        };
        plan.iter().filter(of_units).filter(is_so).map(leader)
    };
    let stay: HashSet<_> = leaders(false).collect();
    let both = leaders(true).filter(|leader| stay.contains(leader));
    both.map(str::to_owned).collect()
}

/// Units whose ddp learners are not all planned: some were lost before they were taken in.
pub(super) fn broken(plan: &[PlanEntry]) -> Vec<(String, Loss)> {
    aggregators(plan)
        .filter(|unit| members(plan, &unit.name).next().is_some())
        .filter(|unit| {
            // Those that were seen before it was have gone without it.
            let lost = |member: &PlanEntry| !member.is_wanted();
            !is_whole(plan, &unit.name) || members(plan, &unit.name).any(lost)
        })
        .map(|unit| {
            let loss = Loss {
                how: "lacks some of its ddp learners".to_owned(),
                ran: None,
            };
            (unit.name.clone(), loss)
        })
        .collect()
}

/// Whether this is an aggregator whose pod cannot be made yet.
pub(super) fn lacks_template(seen: &Observed<'_>, entry: &PlanEntry) -> bool {
    let unmade = entry.uid.is_none() && seen.aggregator.found().is_none();
    entry.role == Role::Aggregator && (entry.port.is_none() || unmade)
}

/// Why aggregators are not made, if any waits.
pub(super) fn stuck(seen: &Observed<'_>, plan: &[PlanEntry]) -> Option<(Reason, String)> {
    let waits = !seen.job.spec.suspend && aggregators(plan).any(|e| lacks_template(seen, e));
    let namespace = seen.job.namespace().unwrap_or_default();
    waits.then(|| seen.aggregator.lack(&namespace)).flatten()
}
