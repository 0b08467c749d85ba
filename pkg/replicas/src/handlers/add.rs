use std::collections::HashSet;

use axum::{body::Body, extract::State as Extract, http::HeaderMap, response::Response};
use di_api::{DIJob, GPU_RESOURCE, PlanEntry, ReplicaResources, RequestKind, Role, names};
use di_cache::Key;
use di_plan::{PodView, RandomSuffixes, Request};
use jiff::Timestamp;
use kube::ResourceExt;
use tokio::time::{Instant, timeout_at};

use super::{admit, check_live, owns, read, success, urls};
use crate::{
    State,
    authorize::{Caller, Source},
    error::{Error, Result},
    mutate::{Draft, answered, mutate, plan_of},
    quantity,
    state::Shared,
    wire::{AddRequest, Part, Replicas, Success},
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
    let body = read(&state, body).await?;
    let request = AddRequest::parse(&body, state.settings.max_replicas_per_request)?;
    let (key, caller) = admit(&state, &source, &request.target).await?;
    let ticket = state
        .retries
        .ticket(RequestKind::Add, &source, &headers, &body)?;
    let added = add_to(&state, &key, &request, &caller, ticket.key()).await;
    success("the replicas are planned", ticket.settle(added)?)
}

async fn add_to(
    state: &Shared,
    key: &Key,
    request: &AddRequest,
    caller: &Caller,
    request_key: &str,
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
    let (job, planned) = mutate(state, key, |job, draft| {
        if answered::find(job, RequestKind::Add, request_key).is_some() {
            return Ok(planned_for(job, request_key));
        }
        check_live(job)?;
        for (role, part) in &parts {
            check_part(job, *role, part)?;
        }
        let incarnation = incarnation(state, key, job, caller);
        let before = wanted(&draft.plan);
        let planned = plan(
            job,
            draft,
            &parts,
            incarnation.as_ref(),
            request_key,
            |name| {
                state.pods.read(key, |pods| {
                    pods.get(name).is_some_and(|pod| pod.end.is_some())
                })
            },
        );
        let after = wanted(&draft.plan);
        if after > most && after > before {
            return Err(Error::Invalid(format!(
                "DIJob {} has {before} replicas and may have at most {most}",
                job.name_any()
            )));
        }
        draft.answers = Some(answered::new(RequestKind::Add, request_key, Vec::new()));
        Ok(planned)
    })
    .await?;
    state
        .metrics
        .planned
        .inc_by(u64::try_from(planned.len()).unwrap_or(0));
    let names: HashSet<&str> = planned.iter().map(|(_, name)| name.as_str()).collect();
    wait_for_verdicts(state, key, &job, names).await;
    let planned = planned.iter().map(|(role, name)| (*role, name.as_str()));
    Ok(urls(state, key, &job, planned))
}

/// What holds the places that a request was given before.
fn planned_for(job: &DIJob, request_key: &str) -> Vec<(Role, String)> {
    let of = |e: &&PlanEntry| e.is_wanted() && e.request_key.as_deref() == Some(request_key);
    let entries = plan_of(job).iter().filter(of);
    entries.map(|e| (e.role, e.name.clone())).collect()
}

fn plan(
    job: &DIJob,
    draft: &mut Draft,
    parts: &[(Role, &Part)],
    incarnation: Option<&String>,
    request_key: &str,
    is_over: impl Fn(&str) -> bool,
) -> Vec<(Role, String)> {
    let mut planned = Vec::new();
    for (role, part) in parts {
        let wish = Request {
            count: part.count,
            resources: part.resources.clone(),
            incarnation: incarnation.cloned(),
            key: Some(request_key.to_owned()),
        };
        let plan = &mut draft.plan;
        let names = di_plan::request(
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

fn wanted(plan: &[PlanEntry]) -> usize {
    plan.iter().filter(|entry| entry.is_wanted()).count()
}

fn check_part(job: &DIJob, role: Role, part: &Part) -> Result<()> {
    if job.spec.declared(role).is_none() {
        return Err(Error::Invalid(format!(
            "DIJob {} has no spec.{role}.template, so it cannot have {role}s",
            job.name_any()
        )));
    }
    if role == Role::Learner && gpus(job, role, &part.resources) > 1.0 {
        return Err(Error::Invalid(
            "learners of more than one GPU are not supported yet: ask for one GPU per learner, and for more learners".to_owned(),
        ));
    }
    Ok(())
}

/// GPUs of one replica: what is asked for, else what the template says.
fn gpus(job: &DIJob, role: Role, resources: &ReplicaResources) -> f64 {
    let of_template = || {
        let spec = job.spec.declared(role)?.template.spec.as_ref()?;
        let main = spec
            .containers
            .iter()
            .find(|container| container.name == names::MAIN_CONTAINER)?;
        let resources = main.resources.as_ref()?;
        let named = |list: &Option<std::collections::BTreeMap<String, _>>| {
            list.as_ref()
                .and_then(|list| list.get(GPU_RESOURCE).cloned())
        };
        named(&resources.limits).or_else(|| named(&resources.requests))
    };
    let gpus = resources.gpus.clone().or_else(of_template);
    gpus.and_then(|gpus| quantity::value(&gpus.0))
        .unwrap_or(0.0)
}

/// The coordinator's incarnation, when a pod of its job asks: a restarted one is served with what it had before.
fn incarnation(state: &Shared, key: &Key, job: &DIJob, caller: &Caller) -> Option<String> {
    let Caller::Pod(caller, _) = caller else {
        return None;
    };
    let of = |pod: &PodView| format!("{}/{}", pod.uid, pod.restarts);
    let coordinator = names::coordinator(&key.1);
    state.pods.read(key, |pods| {
        let pod = pods.get(&coordinator).filter(|pod| owns(job, pod));
        pod.map(of)
            .or_else(|| (caller.name == coordinator).then(|| of(caller)))
    })
}

/// Waits, but not long, until the scheduler has looked at each pod: a list right after shows no replica that has no room.
async fn wait_for_verdicts(state: &Shared, key: &Key, job: &DIJob, mut names: HashSet<&str>) {
    let deadline = Instant::now() + state.settings.create_wait;
    let mut changes = state.pods.changes();
    loop {
        changes.mark_unchanged();
        state.pods.read(key, |pods| {
            names.retain(|name| {
                !pods
                    .get(*name)
                    .is_some_and(|pod| owns(job, pod) && has_verdict(pod))
            });
        });
        if names.is_empty() {
            return;
        }
        let Ok(Ok(())) = timeout_at(deadline, changes.changed()).await else {
            return;
        };
    }
}

fn has_verdict(pod: &PodView) -> bool {
    pod.scheduled != Ok(false) || pod.stuck().is_some() || pod.deleting || !pod.uses_cluster()
}
