//! Requested replicas: those that the coordinator asks for at run time.

use di_api::{Origin, PlanEntry, QueueState, ReplicaResources, Role};
use jiff::Timestamp;

use super::{learner_groups::entry_kind, name_allocator::NameAllocator};
use crate::{job::Job, names::Suffixes};

/// A request of a coordinator for replicas.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Number of replicas.
    pub count: usize,
    /// Resources that override those of the template.
    pub resources: ReplicaResources,
    /// The coordinator instance as `pod UID/restart count`; `None` if the requester is not the
    /// coordinator.
    pub coordinator_instance: Option<String>,
    /// `Idempotency-Key` of the request.
    pub key: Option<String>,
    /// Port of aggregators, for learners with several GPUs.
    pub aggregator_port: Option<i32>,
    /// State of new replicas in the queue of Kueue; `None` without a queue.
    pub queue: Option<QueueState>,
}

/// Plans the replicas of a request, and returns their names.
///
/// `has_ended` says whether the pod of a name has ended; such replicas are not handed out again.
///
/// A repeated request with the same key gets the [remaining entries](entries_of_request) of the
/// first one, and new entries up to its count. A restarted coordinator first gets the replicas of
/// its previous instances, so that the number of replicas does not double. See docs/decisions/0009.
/// These keep their state in the queue.
pub fn plan_request(
    job: &impl Job,
    plan: &mut Vec<PlanEntry>,
    role: Role,
    request: &Request,
    has_ended: impl Fn(&str) -> bool,
    suffixes: &mut dyn Suffixes,
    now: Timestamp,
) -> Vec<String> {
    let (planned_role, resources) = entry_kind(job, role, &request.resources);
    let mut names = Vec::with_capacity(request.count);
    if let Some(key) = &request.key {
        let instance = request.coordinator_instance.as_deref();
        let existing = entries_of_request(plan, key, instance).into_iter();
        let existing = existing.filter(|(planned, _)| planned.counted_as() == role);
        names.extend(existing.map(|(_, name)| name));
    }
    if request.coordinator_instance.is_some() {
        let unclaimed = plan.iter_mut().filter(|e| {
            e.role == planned_role
                && e.origin == Origin::Requested
                && e.is_wanted()
                && e.resources == resources
                && e.claimed_by.is_some()
                && e.claimed_by != request.coordinator_instance
                && !e.done
                && !has_ended(&e.name)
        });
        for entry in unclaimed.take(request.count.saturating_sub(names.len())) {
            entry.claimed_by.clone_from(&request.coordinator_instance);
            entry.request_key.clone_from(&request.key);
            names.push(entry.name.clone());
        }
    }
    let mut allocator = NameAllocator::new(job, plan, planned_role);
    while names.len() < request.count {
        let name = allocator.allocate_name(suffixes);
        names.push(name.clone());
        plan.push(PlanEntry {
            resources: resources.clone(),
            port: request
                .aggregator_port
                .filter(|_| planned_role == Role::Aggregator),
            claimed_by: request.coordinator_instance.clone(),
            request_key: request.key.clone(),
            queue: request.queue,
            ..allocator.new_entry(Origin::Requested, name, now)
        });
    }
    names
}

/// Roles and names of the wanted entries that were planned for the request with this key.
///
/// If a coordinator instance repeats the request, it claims these entries.
pub fn entries_of_request(
    plan: &mut [PlanEntry],
    key: &str,
    coordinator_instance: Option<&str>,
) -> Vec<(Role, String)> {
    let has_key = |e: &&mut PlanEntry| e.is_wanted() && e.request_key.as_deref() == Some(key);
    let claimed = plan.iter_mut().filter(has_key).map(|entry| {
        if let Some(instance) = coordinator_instance {
            entry.claimed_by = Some(instance.to_owned());
        }
        (entry.role, entry.name.clone())
    });
    claimed.collect()
}

#[cfg(test)]
mod tests {
    use di_api::DIJob;
    use di_fixtures::Job;

    use super::*;
    use crate::RandomSuffixes;

    #[test]
    fn new_replicas_have_queue_state_of_request() {
        let job: DIJob = Job::test().collectors(0).build();
        let mut plan = Vec::new();
        let mut request_two = |instance: &str, queue| {
            let request = Request {
                count: 2,
                coordinator_instance: Some(instance.to_owned()),
                queue,
                ..Request::default()
            };
            let suffixes = &mut RandomSuffixes;
            let now = Timestamp::UNIX_EPOCH;
            let role = Role::Collector;
            plan_request(&job, &mut plan, role, &request, |_| false, suffixes, now);
            plan.iter().map(|entry| entry.queue).collect::<Vec<_>>()
        };
        let (unset, waiting): (Option<QueueState>, _) = (None, Some(QueueState::Waiting));
        assert_eq!(request_two("uid/0", unset), [unset; 2]);
        assert_eq!(request_two("uid/1", waiting), [unset; 2], "reclaimed");
        let states = request_two("uid/1", waiting);
        assert_eq!(states, [unset, unset, waiting, waiting]);
    }
}
