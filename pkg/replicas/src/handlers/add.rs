mod scheduling;

use std::collections::HashSet;

use axum::{body::Body, extract::State as Extract, http::HeaderMap, response::Response};
use di_api::{AggregatorConfig, PlanEntry, RequestKind, Role, names};
use di_cache::{JobView, Key};
use di_plan::{
    AggregatorTemplate, Job, PodView, RandomSuffixes, Request, RestartPolicy, aggregator_of, find_entry,
    entry_kind, entries_of_request, retire_done, remove_entry,
};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject},
};
use tokio::time::{Instant, timeout_at};

use super::{authorize_change, check_job_active, owns_pod, read, replica_urls, success, told};
use crate::{
    State,
    authorize::{Requester, Source},
    error::{Error, Result},
    idempotency::{history, keys::is_client_key},
    mutate::{JobChange, mutate_job},
    state::{API_CALL_TIMEOUT, SharedState, call_api},
    wire::{AddRequest, ReplicaRequest, Replicas, Success},
};

/// Plans more replicas and answers with their URLs, once it is known which of them the cluster has room for.
#[utoipa::path(post, path = "/replicas", request_body = AddRequest,
    params(("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 128, description = "Makes it safe to send the request again")),
    responses((status = 200, description = "Those that were planned", body = Success<Replicas>), Error),
)]
pub(crate) async fn add(
    Extract(state): Extract<State>,
    source: Source,
    headers: HeaderMap,
    body: Body,
) -> Result<Response> {
    // One call more is for what is left to be done then.
    let wait = state
        .settings
        .request_timeout
        .saturating_sub(API_CALL_TIMEOUT);
    let last = Instant::now() + wait;
    let body = read(&state, body).await?;
    let request = AddRequest::parse(&body, state.settings.max_replicas_per_request)?;
    let (key, requester) = authorize_change(&state, &source, &request.target).await?;
    let idempotency_key =
        state
            .in_flight_keys
            .idempotency_key(RequestKind::Add, &source, &headers, &body)?;
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
    let told = told(request.is_empty(), "the replicas are planned");
    success(told, added)
}

/// Nobody waits for pods beyond `last`.
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
    let asked = request.asked();
    let began = Timestamp::now();
    let template = aggregator_template(state, key, &parts).await?;
    wait_for_restart_status(state, key, &parts, requester, request_key).await;
    let (job, planned) = mutate_job(state, key, requester, |job, draft| {
        let incarnation = incarnation(state, key, job, requester).map(|own| own.id);
        let (kind, now) = (RequestKind::Add, Timestamp::now());
        if history::find_replay(job, kind, request_key, &asked, now)?.is_some() {
            let plan = &mut draft.plan;
            return Ok(entries_of_request(plan, request_key, incarnation.as_deref()));
        }
        check_job_active(job)?;
        for (role, part) in &parts {
            check_role(job, *role, part)?;
        }
        // Made before the entries are: by its time they are known should they be taken back.
        let note = history::new_record(kind, request_key, &asked, Vec::new());
        let before = wanted(&draft.plan);
        let planned = plan(
            job,
            draft,
            &parts,
            &Request {
                coordinator_instance: incarnation,
                key: Some(request_key.to_owned()),
                aggregator_port: template.pod_port(),
                ..Request::default()
            },
            |name| {
                state.pods.read_objects(key, |pods| {
                    // The place of one that was lost is about to be taken by another.
                    pods.get(name).is_some_and(PodView::has_completed)
                })
            },
        );
        check_aggregator_ports(&draft.plan, &planned, &template, &key.0)?;
        let fits = |plan: &[PlanEntry]| wanted(plan) <= most.max(before);
        retire_done(&mut draft.plan, fits);
        if !fits(&draft.plan) {
            return Err(Error::Invalid(format!(
                "DIJob {} has {before} replicas and may have at most {most}",
                job.name_any()
            )));
        }
        if !planned.is_empty() || is_client_key(request_key) {
            draft.answers = Some(note);
        }
        Ok(planned)
    })
    .await?;
    // Whoever does not wait is not told either: what was refused before says nothing of these.
    if !state.settings.create_wait.is_zero() {
        if let Some(why) = scheduling::wait_for_scheduling(state, key, &job, &planned, last).await {
            rollback_request(state, key, requester, request_key, began).await?;
            return Err(Error::Unavailable(why));
        }
        if scheduling::are_gone(state, key, &planned) {
            let why = "some of the replicas were taken back meanwhile; ask again";
            return Err(Error::Unavailable(why.to_owned()));
        }
    }
    state
        .metrics
        .planned
        .inc_by(u64::try_from(planned.len()).unwrap_or(0));
    let planned = planned.iter().map(|(role, name)| (*role, name.as_str()));
    Ok(replica_urls(state, key, &job, planned).named(&request.target.coordinator))
}

fn plan(
    job: &JobView,
    draft: &mut JobChange,
    parts: &[(Role, &ReplicaRequest)],
    request: &Request,
    is_over: impl Fn(&str) -> bool,
) -> Vec<(Role, String)> {
    let mut planned = Vec::new();
    for (role, part) in parts {
        let wish = Request {
            count: part.count,
            resources: part.resources.clone(),
            ..request.clone()
        };
        let plan = &mut draft.plan;
        let names = di_plan::plan_request(
            job,
            plan,
            *role,
            &wish,
            &is_over,
            &mut RandomSuffixes,
            Timestamp::now(),
        );
        planned.extend(names.into_iter().map(|name| (*role, name)));
    }
    planned
}

/// Pods that are wanted. Aggregators whose ddp learners are not planned yet count as if each of their GPUs were to have its own.
fn wanted(plan: &[PlanEntry]) -> usize {
    let led: HashSet<&str> = plan.iter().filter_map(aggregator_of).collect();
    let of = |entry: &PlanEntry| {
        let bare = entry.role == Role::Aggregator && !led.contains(&*entry.name);
        1 + usize::try_from(entry.gpu_count()).unwrap_or(0) * usize::from(bare)
    };
    plan.iter().filter(|e| e.is_wanted()).map(of).sum()
}

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
    // Each process has a port of its own.
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

/// Whether learners of several GPUs are asked for, whose aggregators are made from an `AggregatorConfig`.
fn needs_aggregators(job: &JobView, parts: &[(Role, &ReplicaRequest)]) -> bool {
    parts
        .iter()
        .any(|(role, part)| entry_kind(job, *role, &part.resources).0 == Role::Aggregator)
}

/// An aggregator's port is known once it is planned. That there is no usable configuration for it will pass: somebody is to write it.
fn check_aggregator_ports(
    plan: &[PlanEntry],
    planned: &[(Role, String)],
    template: &AggregatorTemplate,
    namespace: &str,
) -> Result<()> {
    let has_none = |name: &str| {
        find_entry(plan, name).is_some_and(|e| e.role == Role::Aggregator && e.port.is_none())
    };
    if !planned.iter().any(|(_, name)| has_none(name)) {
        return Ok(());
    }
    let lack = template.missing_reason(namespace).map(|(_, message)| message);
    Err(Error::Unavailable(lack.unwrap_or_else(|| {
        "the AggregatorConfig is not known yet".to_owned()
    })))
}

/// The pod of aggregators as the API server has it now, where learners of several GPUs are asked for.
async fn aggregator_template(
    state: &SharedState,
    key: &Key,
    parts: &[(Role, &ReplicaRequest)],
) -> Result<AggregatorTemplate> {
    let job = state.find_job(key).await?;
    let fits = |(role, part): &(Role, &ReplicaRequest)| check_role(&job, *role, part).is_ok();
    // Whoever is refused is told so by the job as it is when it is changed.
    let refused = check_job_active(&job).is_err() || !parts.iter().all(fits);
    if refused || !needs_aggregators(&job, parts) {
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

/// The coordinator as it is since its last start.
struct CoordinatorInstance {
    /// Tells it from the one that it was before, which left replicas.
    id: String,
    /// Whether its kubelet may have started it again without having told of that.
    may_have_restarted: bool,
}

/// The coordinator that asks, when a pod of its job does: a restarted one is served with what it had before.
fn incarnation(
    state: &SharedState,
    key: &Key,
    job: &JobView,
    requester: &Requester,
) -> Option<CoordinatorInstance> {
    let Requester::Pod(requester, _) = requester else {
        return None;
    };
    let of = |pod: &PodView| CoordinatorInstance {
        id: pod.coordinator_instance(),
        may_have_restarted: pod.restart_policy != RestartPolicy::Never,
    };
    let coordinator = names::coordinator_name(&key.1);
    state.pods.read_objects(key, |pods| {
        let pod = pods.get(&coordinator).filter(|pod| owns_pod(job, pod));
        pod.map(of)
            .or_else(|| (requester.name == coordinator).then(|| of(requester)))
    })
}

/// A coordinator that was restarted in place may ask before its kubelet has told of that, and would get its fleet twice. So one that asks for more
/// of what it has, and may be such a one, waits for that news.
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
        let may_have_some = state.jobs.get(key).is_some_and(|job| {
            let own = incarnation(state, key, &job, requester).filter(|own| own.may_have_restarted);
            own.is_some_and(|own| has_replicas_of_kinds(&job, parts, &own.id, request_key))
        });
        if !may_have_some || !matches!(timeout_at(deadline, changes.changed()).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Whether an incarnation of the coordinator has replicas of one of these kinds, by other requests than this one.
fn has_replicas_of_kinds(
    job: &JobView,
    parts: &[(Role, &ReplicaRequest)],
    incarnation: &str,
    request_key: &str,
) -> bool {
    let kinds: Vec<_> = parts
        .iter()
        .map(|(role, part)| entry_kind(job, *role, &part.resources))
        .collect();
    job.plan_entries()
        .iter()
        .filter(|e| e.is_wanted() && e.claimed_by.as_deref() == Some(incarnation))
        .filter(|e| e.request_key.as_deref() != Some(request_key))
        .any(|e| {
            kinds
                .iter()
                .any(|kind| (kind.0, &kind.1) == (e.role, &e.resources))
        })
}

/// Takes back what was planned for a request of whose pods the API server refuses some, such as for want of quota, also by an earlier try of it:
/// nothing of it is left, and the client asks again. What it was given that an earlier request had planned, and that is there, stays.
async fn rollback_request(
    state: &SharedState,
    key: &Key,
    requester: &Requester,
    request_key: &str,
    began: Timestamp,
) -> Result<()> {
    let is_there = |name: &str| state.pods.read_objects(key, |pods| pods.get(name).is_some());
    let taken_back = mutate_job(state, key, requester, |job, draft| {
        // The first try has noted when it was.
        let noted = history::find_request(job, RequestKind::Add, request_key, Timestamp::now());
        let since = noted.map_or(began, |noted| noted.at.0.min(began));
        let is_new = |e: &PlanEntry| e.planned_at.as_ref().is_some_and(|at| at.0 >= since);
        let of_request = draft
            .plan
            .iter()
            .filter(|e| e.is_wanted() && e.request_key.as_deref() == Some(request_key));
        let names: Vec<String> = of_request
            .filter(|e| is_new(e) || !is_there(&e.name))
            .map(|e| e.name.clone())
            .collect();
        for name in &names {
            remove_entry(&mut draft.plan, name);
        }
        draft.rolled_back_request = Some((RequestKind::Add, request_key.to_owned()));
        Ok(())
    });
    Box::pin(taken_back).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_unit_counts_with_all_its_pods_also_before_these_are_planned() {
        let unit = |name: &str| {
            json!({
                "name": name, "type": "Aggregator", "origin": "Requested", "index": 0, "resources": {"gpus": "4"},
            })
        };
        let member = |name: &str| {
            json!({
                "name": name, "type": "DDPLearner", "origin": "Requested", "index": 0,
                "ddp": {"aggregator": "led", "worldSize": 4, "startRank": 0},
            })
        };
        let count = |plan: serde_json::Value| {
            let plan: Vec<PlanEntry> = serde_json::from_value(plan).unwrap();
            wanted(&plan)
        };
        assert_eq!(count(json!([unit("bare")])), 5);
        assert_eq!(count(json!([unit("led"), member("d"), member("e")])), 3);
        assert_eq!(count(json!([unit("led"), member("d"), unit("bare")])), 7);
    }
}
