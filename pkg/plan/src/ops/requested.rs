//! Requested replicas: what the coordinator asks for at run time.

use di_api::{Origin, PlanEntry, ReplicaResources, Role};
use jiff::Timestamp;

use super::{planned_as, slots::Slots};
use crate::{Job, names::Suffixes};

/// What a coordinator asks for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// How many replicas.
    pub count: usize,
    /// Resources that differ from the template's.
    pub resources: ReplicaResources,
    /// The coordinator's incarnation, as `pod UID/restart count`; none when somebody else asks in its name.
    pub incarnation: Option<String>,
    /// `Idempotency-Key` of the request.
    pub key: Option<String>,
    /// Port of aggregators, where learners of several GPUs are asked for.
    pub aggregator_port: Option<i32>,
}

/// Plans what a coordinator asks for and returns the names.
///
/// `is_over` tells of a name whether its pod has ended for good: such a replica is of no use to anybody any more.
///
/// A request of the same key is answered with [what is left](planned_for) of what it planned the first time, and as much more as it asks for. A
/// coordinator that was restarted is served first with what earlier incarnations of it left, so that the fleet never doubles.
pub fn request(
    job: &impl Job,
    plan: &mut Vec<PlanEntry>,
    role: Role,
    wish: &Request,
    is_over: impl Fn(&str) -> bool,
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) -> Vec<String> {
    let (planned_role, resources) = planned_as(job, role, &wish.resources);
    let mut names = Vec::with_capacity(wish.count);
    if let Some(key) = &wish.key {
        let before = planned_for(plan, key, wish.incarnation.as_deref()).into_iter();
        let before = before.filter(|(planned, _)| planned.counted_as() == role);
        names.extend(before.map(|(_, name)| name));
    }
    if wish.incarnation.is_some() {
        let left = plan.iter_mut().filter(|e| {
            e.role == planned_role
                && e.origin == Origin::Requested
                && e.is_wanted()
                && e.resources == resources
                && e.claimed_by.is_some()
                && e.claimed_by != wish.incarnation
                && !e.done
                && !is_over(&e.name)
        });
        for entry in left.take(wish.count.saturating_sub(names.len())) {
            entry.claimed_by.clone_from(&wish.incarnation);
            entry.request_key.clone_from(&wish.key);
            names.push(entry.name.clone());
        }
    }
    let mut slots = Slots::new(job, plan, planned_role);
    while names.len() < wish.count {
        let name = slots.name(suffixes);
        names.push(name.clone());
        plan.push(PlanEntry {
            resources: resources.clone(),
            port: wish
                .aggregator_port
                .filter(|_| planned_role == Role::Aggregator),
            claimed_by: wish.incarnation.clone(),
            request_key: wish.key.clone(),
            ..slots.entry(Origin::Requested, name, now)
        });
    }
    names
}

/// Those of the replicas planned for the request of this key that are wanted. Where an incarnation of the coordinator sends it again they are
/// that one's from then on: they are not left to it.
pub fn planned_for(
    plan: &mut [PlanEntry],
    key: &str,
    incarnation: Option<&str>,
) -> Vec<(Role, String)> {
    let of_key = |e: &&mut PlanEntry| e.is_wanted() && e.request_key.as_deref() == Some(key);
    let claimed = plan.iter_mut().filter(of_key).map(|entry| {
        if let Some(incarnation) = incarnation {
            entry.claimed_by = Some(incarnation.to_owned());
        }
        (entry.role, entry.name.clone())
    });
    claimed.collect()
}
