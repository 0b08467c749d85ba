//! Plans the replicas of a request in one state of the job.

use std::collections::HashSet;

use di_api::{ElasticQueueing, PlanEntry, QueueState, RequestKind, Role, names};
use di_cache::JobView;
use di_plan::{
    AggregatorTemplate, Job, PodView, RandomSuffixes, Request, entries_of_request, find_entry,
    leader_of, retire_done,
};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    super::check_job_active, addition::Addition, coordinator_instance::coordinator_instance,
    scheduling::unplanned_members,
};
use crate::{
    error::{Error, Result},
    idempotency::{history, keys::is_client_key},
    mutate::job_change::JobChange,
    wire::ReplicaRequest,
};

/// Adds plan entries for the request, and returns their roles and names. A repeated request gets
/// the entries of the first one.
pub(super) fn plan_addition(
    addition: &Addition<'_>,
    template: &AggregatorTemplate,
    job: &JobView,
    draft: &mut JobChange,
) -> Result<Vec<(Role, String)>> {
    let request_key = addition.request_key;
    let description = addition.request.description();
    let coordinator_instance = coordinator_instance(addition, job).map(|own| own.id);
    if is_replay(addition, job, &description)? {
        let instance = coordinator_instance.as_deref();
        return Ok(entries_of_request(&mut draft.plan, request_key, instance));
    }
    check_job_active(job)?;
    check_roles(job, &addition.roles)?;
    // Create the record first: a rollback removes the entries planned after its time.
    let record = history::new_record(RequestKind::Add, request_key, &description, Vec::new());
    let request = Request {
        coordinator_instance,
        key: Some(request_key.to_owned()),
        aggregator_port: template.pod_port(),
        queue: job.queue.map(|_| QueueState::Waiting),
        ..Request::default()
    };
    let pods_before = count_pods(&draft.plan);
    let planned = plan_replicas(addition, job, &mut draft.plan, &request);
    check_queue(job, &draft.plan)?;
    check_aggregator_ports(&draft.plan, &planned, template, &addition.key.0)?;
    let most = addition.state.settings.max_replicas_per_job;
    check_quota(job, &mut draft.plan, pods_before, most)?;
    if !planned.is_empty() || is_client_key(request_key) {
        draft.new_record = Some(record);
    }
    Ok(planned)
}

/// Whether an earlier attempt of the request has changed the plan. See docs/decisions/0009.
fn is_replay(addition: &Addition<'_>, job: &JobView, description: &str) -> Result<bool> {
    let (kind, key, now) = (RequestKind::Add, addition.request_key, Timestamp::now());
    Ok(history::find_replay(job, kind, key, description, now)?.is_some())
}

/// Fails if the job cannot have replicas of one of the roles.
pub(super) fn check_roles(job: &JobView, roles: &[(Role, &ReplicaRequest)]) -> Result<()> {
    let mut roles = roles.iter();
    roles.try_for_each(|(role, part)| check_role(job, *role, part))
}

/// Fails if the job has no template for the role, or a learner has too many GPUs.
fn check_role(job: &JobView, role: Role, part: &ReplicaRequest) -> Result<()> {
    if job.role_view(role).is_none() {
        return Err(Error::Invalid(format!(
            "DIJob {} has no spec.{role}.template, so it cannot have {role}s",
            job.name_any()
        )));
    }
    let gpus = match role {
        Role::Learner => job.learner_gpus(&part.resources),
        _ => 0,
    };
    // Each process listens on its own port.
    let ports = i32::from(u16::MAX) - job.role_port(role) + 1;
    let most = names::MAX_LEARNER_GPUS.min(ports);
    if gpus > most {
        return Err(Error::Invalid(format!(
            "a learner of DIJob {} may have at most {most} GPUs",
            job.name_any()
        )));
    }
    Ok(())
}

/// Adds plan entries for each role and returns their names.
fn plan_replicas(
    addition: &Addition<'_>,
    job: &JobView,
    plan: &mut Vec<PlanEntry>,
    request: &Request,
) -> Vec<(Role, String)> {
    // A lost replica still counts: a replacement takes its index.
    let has_ended = |name: &str| {
        let pods = &addition.state.pods;
        pods.read_objects(addition.key, |pods| {
            pods.get(name).is_some_and(PodView::has_completed)
        })
    };
    let mut planned = Vec::new();
    for (role, part) in &addition.roles {
        let role_request = Request {
            count: part.count,
            resources: part.resources.clone(),
            ..request.clone()
        };
        let names = di_plan::plan_request(
            job,
            plan,
            *role,
            &role_request,
            has_ended,
            &mut RandomSuffixes,
            Timestamp::now(),
        );
        planned.extend(names.into_iter().map(|name| (*role, name)));
    }
    planned
}

/// Fails if the plan has new replicas that the queue of the job does not accept.
fn check_queue(job: &JobView, plan: &[PlanEntry]) -> Result<()> {
    let before = job.plan_entries();
    let (Some(elastic), Some(added)) = (job.queue, plan.get(before.len())) else {
        return Ok(());
    };
    let name = job.name_any();
    if elastic == ElasticQueueing::None {
        let role = added.role.counted_as();
        return Err(Error::Conflict(format!(
            "spec.queueing.elastic of DIJob {name} is None, so it cannot add replicas; set it to PerReplica, or raise spec.{role}.replicas"
        )));
    }
    let max_waiting = names::kueue::MAX_WAITING;
    if count_waiting(plan) > max_waiting {
        let waiting = count_waiting(before);
        return Err(Error::Conflict(format!(
            "the queue has no room: {waiting} replicas of DIJob {name} wait for quota already, and at most {max_waiting} may"
        )));
    }
    Ok(())
}

/// Counts the replicas that wait for quota of their own. A unit or learner group has one quota.
fn count_waiting(plan: &[PlanEntry]) -> usize {
    let waits =
        |e: &&PlanEntry| e.is_wanted() && e.is_replica() && e.queue == Some(QueueState::Waiting);
    plan.iter().filter(waits).count()
}

/// Fails if a planned aggregator has no port, because the `AggregatorConfig` is missing or invalid.
/// The error is retryable: an administrator can create the configuration.
fn check_aggregator_ports(
    plan: &[PlanEntry],
    planned: &[(Role, String)],
    template: &AggregatorTemplate,
    namespace: &str,
) -> Result<()> {
    let has_no_port = |name: &str| {
        find_entry(plan, name).is_some_and(|e| e.role == Role::Aggregator && e.port.is_none())
    };
    if !planned.iter().any(|(_, name)| has_no_port(name)) {
        return Ok(());
    }
    let problem = template
        .missing_reason(namespace)
        .map(|(_, message)| message);
    Err(Error::Unavailable(problem.unwrap_or_else(|| {
        "the AggregatorConfig has not been read yet".to_owned()
    })))
}

/// Fails if the plan has more pods than a job may have. Removes finished entries first if they take
/// the place. A job that has more pods already keeps them.
fn check_quota(
    job: &JobView,
    plan: &mut [PlanEntry],
    pods_before: usize,
    max_pods: usize,
) -> Result<()> {
    let fits = |plan: &[PlanEntry]| count_pods(plan) <= max_pods.max(pods_before);
    retire_done(plan, fits);
    if fits(plan) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "DIJob {} has {pods_before} replicas and may have at most {max_pods}",
        job.name_any()
    )))
}

/// Counts the pods of the plan, also those that follow an aggregator or a leader and are not planned
/// yet.
fn count_pods(plan: &[PlanEntry]) -> usize {
    let with_members: HashSet<&str> = plan.iter().filter_map(leader_of).collect();
    let pods_of = |entry: &PlanEntry| {
        let has_no_members = entry.leads_group() && !with_members.contains(&*entry.name);
        1 + unplanned_members(entry) * usize::from(has_no_members)
    };
    plan.iter().filter(|e| e.is_wanted()).map(pods_of).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn learner_group_waits_for_one_quota() {
        let entry = |role: &str, state: &str, queue: &str| {
            json!({
                "name": "a", "type": role, "origin": "Requested", "index": 0, "state": state, "queue": queue,
            })
        };
        let plan = json!([
            entry("Aggregator", "Wanted", "Waiting"),
            entry("DDPLearner", "Wanted", "Waiting"),
            entry("Collector", "Wanted", "Admitted"),
            entry("Collector", "Removing", "Waiting"),
        ]);
        let plan: Vec<PlanEntry> = serde_json::from_value(plan).unwrap();
        assert_eq!(count_waiting(&plan), 1);
    }

    #[test]
    fn learner_group_counts_all_pods_before_they_are_planned() {
        let aggregator = |name: &str| {
            json!({
                "name": name, "type": "Aggregator", "origin": "Requested", "index": 0, "resources": {"gpus": "4"},
            })
        };
        let member = |name: &str| {
            json!({
                "name": name, "type": "DDPLearner", "origin": "Requested", "index": 0,
                "ddp": {"aggregator": "with_members", "worldSize": 4, "startRank": 0},
            })
        };
        let count = |plan: serde_json::Value| {
            let plan: Vec<PlanEntry> = serde_json::from_value(plan).unwrap();
            count_pods(&plan)
        };
        assert_eq!(count(json!([aggregator("without_members")])), 5);
        assert_eq!(
            count(json!([
                aggregator("with_members"),
                member("d"),
                member("e")
            ])),
            3
        );
        assert_eq!(
            count(json!([
                aggregator("with_members"),
                member("d"),
                aggregator("without_members")
            ])),
            7
        );
    }
}
