mod scheduling;

use std::collections::HashSet;

use axum::{body::Body, extract::State as Extract, http::HeaderMap, response::Response};
use di_api::{AggregatorConfig, PlanEntry, RequestKind, Role, names};
use di_cache::{JobView, Key};
use di_plan::{
    AggregatorTemplate, Job, PodView, RandomSuffixes, Request, RestartPolicy, aggregator_of,
    entries_of_request, entry_kind, find_entry, remove_entry, retire_done,
};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject},
};
use tokio::time::{Instant, timeout_at};

use super::{
    authorize_change, check_job_active, owns_pod, read_body, replica_urls, result_message,
    success_response,
};
use crate::{
    State,
    authorize::{Requester, Source},
    error::{Error, Result},
    idempotency::{history, keys::is_client_key},
    mutate::{JobChange, mutate_job},
    state::{API_CALL_TIMEOUT, SharedState, call_api},
    wire::{AddRequest, ReplicaRequest, Replicas, Success},
};

/// Plans more replicas and returns their URLs, after a short wait for the scheduler's result.
#[utoipa::path(post, path = "/replicas", request_body = AddRequest,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 128, description = "Makes it safe to repeat the request")),
    responses((status = 200, description = "The planned replicas", body = Success<Replicas>), Error),
)]
pub(crate) async fn add(
    Extract(state): Extract<State>,
    source: Source,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    // Reserve time for one more API call after the wait.
    let wait = state
        .settings
        .request_timeout
        .saturating_sub(API_CALL_TIMEOUT);
    let last = Instant::now() + wait;
    let body = read_body(&state, body).await?;
    let request = AddRequest::parse(&body, state.settings.max_replicas_per_request)?;
    let (key, requester) = authorize_change(&state, &source, &request.target).await?;
    let idempotency_key =
        state
            .unanswered_keys
            .key_for_request(RequestKind::Add, &source, &headers, &body)?;
    let added = add_replicas(
        &state,
        &key,
        &request,
        &requester,
        idempotency_key.key(),
        last,
    )
    .await;
    let added = idempotency_key.complete(added)?;
    let message = result_message(request.is_empty(), "the replicas are planned");
    success_response(message, added)
}

/// Plans the replicas of a request. The wait for pods ends at `last`.
async fn add_replicas(
    state: &SharedState,
    key: &Key,
    request: &AddRequest,
    requester: &Requester,
    request_key: &str,
    last: Instant,
) -> Result<Replicas> {
    let parts = [
        (Role::Collector, &request.collectors),
        (Role::Learner, &request.learners),
    ];
    let parts: Vec<_> = parts
        .into_iter()
        .filter(|(_, part)| part.count > 0)
        .collect();
    let most = state.settings.max_replicas_per_job;
    let description = request.description();
    let began = Timestamp::now();
    let template = aggregator_template(state, key, &parts).await?;
    wait_for_restart_status(state, key, &parts, requester, request_key).await;
    let (job, planned) = mutate_job(state, key, requester, |job, draft| {
        let instance = coordinator_instance(state, key, job, requester).map(|own| own.id);
        let (kind, now) = (RequestKind::Add, Timestamp::now());
        if history::find_replay(job, kind, request_key, &description, now)?.is_some() {
            let plan = &mut draft.plan;
            return Ok(entries_of_request(plan, request_key, instance.as_deref()));
        }
        check_job_active(job)?;
        for (role, part) in &parts {
            check_role(job, *role, part)?;
        }
        // Create the record first: a rollback removes the entries planned after its time.
        let record = history::new_record(kind, request_key, &description, Vec::new());
        let before = count_pods(&draft.plan);
        let planned = plan_replicas(
            job,
            draft,
            &parts,
            &Request {
                coordinator_instance: instance,
                key: Some(request_key.to_owned()),
                aggregator_port: template.pod_port(),
                ..Request::default()
            },
            |name| {
                state.pods.read_objects(key, |pods| {
                    // A lost replica still counts: a replacement takes its index.
                    pods.get(name).is_some_and(PodView::has_completed)
                })
            },
        );
        check_aggregator_ports(&draft.plan, &planned, &template, &key.0)?;
        let fits = |plan: &[PlanEntry]| count_pods(plan) <= most.max(before);
        retire_done(&mut draft.plan, fits);
        if !fits(&draft.plan) {
            return Err(Error::Invalid(format!(
                "DIJob {} has {before} replicas and may have at most {most}",
                job.name_any()
            )));
        }
        if !planned.is_empty() || is_client_key(request_key) {
            draft.new_record = Some(record);
        }
        Ok(planned)
    })
    .await?;
    // Without a wait, a quota error of earlier pods says nothing about the new ones.
    if !state.settings.scheduling_wait.is_zero() {
        if let Some(reason) =
            scheduling::wait_for_scheduling(state, key, &job, &planned, last).await
        {
            rollback_request(state, key, requester, request_key, began).await?;
            return Err(Error::Unavailable(reason));
        }
        if scheduling::are_gone(state, key, &planned) {
            let reason =
                "some of the planned replicas were rolled back by another attempt of this request";
            return Err(Error::Unavailable(reason.to_owned()));
        }
    }
    state
        .metrics
        .planned
        .inc_by(u64::try_from(planned.len()).unwrap_or(0));
    let planned = planned.iter().map(|(role, name)| (*role, name.as_str()));
    Ok(replica_urls(state, key, &job, planned).with_coordinator(&request.target.coordinator))
}

/// Adds plan entries for each role and returns their names.
fn plan_replicas(
    job: &JobView,
    draft: &mut JobChange,
    parts: &[(Role, &ReplicaRequest)],
    request: &Request,
    has_ended: impl Fn(&str) -> bool,
) -> Vec<(Role, String)> {
    let mut planned = Vec::new();
    for (role, part) in parts {
        let role_request = Request {
            count: part.count,
            resources: part.resources.clone(),
            ..request.clone()
        };
        let plan = &mut draft.plan;
        let names = di_plan::plan_request(
            job,
            plan,
            *role,
            &role_request,
            &has_ended,
            &mut RandomSuffixes,
            Timestamp::now(),
        );
        planned.extend(names.into_iter().map(|name| (*role, name)));
    }
    planned
}

/// Counts the pods of the plan. An aggregator without planned ddp learners counts one pod per GPU.
fn count_pods(plan: &[PlanEntry]) -> usize {
    let with_members: HashSet<&str> = plan.iter().filter_map(aggregator_of).collect();
    let pods_of = |entry: &PlanEntry| {
        let has_no_members = entry.role == Role::Aggregator && !with_members.contains(&*entry.name);
        1 + usize::try_from(entry.gpu_count()).unwrap_or(0) * usize::from(has_no_members)
    };
    plan.iter().filter(|e| e.is_wanted()).map(pods_of).sum()
}

/// Fails if the job has no template for the role, or the request has too many GPUs.
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

/// Whether the request needs learner groups. Their aggregators need an `AggregatorConfig`.
fn needs_aggregators(job: &JobView, parts: &[(Role, &ReplicaRequest)]) -> bool {
    parts
        .iter()
        .any(|(role, part)| entry_kind(job, *role, &part.resources).0 == Role::Aggregator)
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

/// Reads the template of aggregator pods from the API server if the request needs learner groups.
async fn aggregator_template(
    state: &SharedState,
    key: &Key,
    parts: &[(Role, &ReplicaRequest)],
) -> Result<AggregatorTemplate> {
    let job = state.find_job(key).await?;
    let fits = |(role, part): &(Role, &ReplicaRequest)| check_role(&job, *role, part).is_ok();
    // Requests that the cached job rejects are checked again when the job is changed.
    let is_rejected = check_job_active(&job).is_err() || !parts.iter().all(fits);
    if is_rejected || !needs_aggregators(&job, parts) {
        return Ok(AggregatorTemplate::Unknown);
    }
    let kind = ApiResource::erase::<AggregatorConfig>(&());
    for namespace in [&key.0, names::SYSTEM_NAMESPACE] {
        let api: Api<DynamicObject> = Api::namespaced_with(state.client.clone(), namespace, &kind);
        let read = call_api("read the AggregatorConfig", async {
            api.get_opt(names::AGGREGATOR_CONFIG).await
        });
        if let Some(config) = read.await? {
            let config = serde_json::to_value(&config);
            let config = config.map_err(|error| Error::Invalid(error.to_string()))?;
            return Ok(AggregatorTemplate::from_config(&config));
        }
    }
    Ok(AggregatorTemplate::Missing)
}

/// A coordinator pod since its last restart.
struct CoordinatorInstance {
    /// Pod UID and restart count.
    id: String,
    /// Whether the kubelet may have restarted the container and not reported it yet.
    may_have_restarted: bool,
}

/// Returns the coordinator instance of the job if a pod of the job sent the request. A restarted
/// instance claims the replicas of the previous one.
fn coordinator_instance(
    state: &SharedState,
    key: &Key,
    job: &JobView,
    requester: &Requester,
) -> Option<CoordinatorInstance> {
    let Requester::Pod(requester, _) = requester else {
        return None;
    };
    let instance_of = |pod: &PodView| CoordinatorInstance {
        id: pod.coordinator_instance(),
        may_have_restarted: pod.restart_policy != RestartPolicy::Never,
    };
    let coordinator = names::coordinator_name(&key.1);
    state.pods.read_objects(key, |pods| {
        let pod = pods.get(&coordinator).filter(|pod| owns_pod(job, pod));
        pod.map(instance_of)
            .or_else(|| (requester.name == coordinator).then(|| instance_of(requester)))
    })
}

/// Waits for the restart status if the coordinator may have been restarted.
///
/// A coordinator that restarts in place may send requests before the kubelet reports the restart. Its
/// replicas would be planned twice. So a request for more replicas of existing kinds waits.
async fn wait_for_restart_status(
    state: &SharedState,
    key: &Key,
    parts: &[(Role, &ReplicaRequest)],
    requester: &Requester,
    request_key: &str,
) {
    let deadline = Instant::now() + state.settings.kubelet_wait;
    let mut changes = state.pods.subscribe_changes();
    loop {
        changes.mark_unchanged();
        let may_be_restarted = state.jobs.get(key).is_some_and(|job| {
            let own = coordinator_instance(state, key, &job, requester)
                .filter(|own| own.may_have_restarted);
            own.is_some_and(|own| has_replicas_of_kinds(&job, parts, &own.id, request_key))
        });
        if !may_be_restarted || !matches!(timeout_at(deadline, changes.changed()).await, Ok(Ok(())))
        {
            return;
        }
    }
}

/// Whether a coordinator instance has replicas of one of these kinds from other requests.
fn has_replicas_of_kinds(
    job: &JobView,
    parts: &[(Role, &ReplicaRequest)],
    instance: &str,
    request_key: &str,
) -> bool {
    let kinds: Vec<_> = parts
        .iter()
        .map(|(role, part)| entry_kind(job, *role, &part.resources))
        .collect();
    job.plan_entries()
        .iter()
        .filter(|e| e.is_wanted() && e.claimed_by.as_deref() == Some(instance))
        .filter(|e| e.request_key.as_deref() != Some(request_key))
        .any(|e| {
            kinds
                .iter()
                .any(|kind| (kind.0, &kind.1) == (e.role, &e.resources))
        })
}

/// Removes the plan entries of a request whose pods the API server rejects, for example by quota.
///
/// This includes entries of earlier attempts of the request. The client repeats the whole request.
/// Claimed replicas of earlier requests stay if their pods exist.
async fn rollback_request(
    state: &SharedState,
    key: &Key,
    requester: &Requester,
    request_key: &str,
    began: Timestamp,
) -> Result<()> {
    let pod_exists = |name: &str| {
        state
            .pods
            .read_objects(key, |pods| pods.get(name).is_some())
    };
    let rollback = mutate_job(state, key, requester, |job, draft| {
        // The first attempt has recorded its time.
        let record = history::find_record(job, RequestKind::Add, request_key, Timestamp::now());
        let since = record.map_or(began, |record| record.at.0.min(began));
        let is_new = |e: &PlanEntry| e.planned_at.as_ref().is_some_and(|at| at.0 >= since);
        let of_request = draft
            .plan
            .iter()
            .filter(|e| e.is_wanted() && e.request_key.as_deref() == Some(request_key));
        let names: Vec<String> = of_request
            .filter(|e| is_new(e) || !pod_exists(&e.name))
            .map(|e| e.name.clone())
            .collect();
        for name in &names {
            remove_entry(&mut draft.plan, name);
        }
        draft.rolled_back_request = Some((RequestKind::Add, request_key.to_owned()));
        Ok(())
    });
    Box::pin(rollback).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
