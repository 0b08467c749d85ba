use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::State as Extract,
    http::{Uri, header},
    response::{IntoResponse, Response},
};
use di_api::{DIJob, names};
use di_cache::{JobRef, Key, Objects};
use di_plan::{Listing, find, listing};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use utoipa::ToSchema;

use super::{halted, key, no_coordinator, owns, success, urls};
use crate::{
    State,
    answers::{Rendered, join},
    authorize::{Action, Caller, Source, authorize},
    error::{Error, Result},
    mutate::plan_of,
    state::Shared,
    wire::{Query, Replicas, Success},
};

/// Lists the replicas of one coordinator, or of all that the caller may see.
#[utoipa::path(get, path = "/replicas", params(Query), responses(
    (status = 200, description = "Those that can be used now", body = Success<Found>), Error,
))]
pub(crate) async fn list(
    Extract(state): Extract<State>,
    source: Source,
    uri: Uri,
) -> Result<Response> {
    let query = Query::parse(&uri)?;
    state.wait_synced().await?;
    let coordinator = query.coordinator.as_deref();
    let action = Action::Read {
        namespace: query.namespace.as_deref(),
        job: coordinator.map(|name| names::job_of_coordinator(name).unwrap_or(name)),
    };
    let caller = authorize(&state, &source, action).await?;
    let Some(namespace) = query.namespace.as_deref() else {
        let own = match &caller {
            Caller::Pod(pod, _) => Some(pod.namespace.as_str()),
            Caller::Other => None,
        };
        return all(&state, own);
    };
    if let Some(aggregator) = &query.aggregator {
        return Err(Error::NotFound(format!(
            "there is no aggregator {aggregator} in namespace {namespace}"
        )));
    }
    if let Some(name) = &query.name {
        return success(
            "",
            Found::One(replica(&state, namespace, coordinator, name)?),
        );
    }
    let Some(coordinator) = coordinator else {
        return all(&state, Some(namespace));
    };
    let key = key(namespace, coordinator)?;
    let job = match caller {
        Caller::Pod(pod, own) if pod.namespace == key.0 && pod.job == key.1 => own,
        _ => match state.find_job(&key).await {
            Err(Error::NotFound(_)) => return Err(no_coordinator(namespace, coordinator)),
            found => found?,
        },
    };
    Ok(json(rendered(&state, &job)?.envelope()))
}

/// One record where one coordinator, aggregator or replica was asked for, else one for each coordinator.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // lists are kept as bytes; this tells their schema
pub(crate) enum Found {
    One(Replicas),
    All(Vec<Replicas>),
}

/// The list of the replicas that the job's coordinator may use now.
fn rendered(state: &Shared, job: &JobRef) -> Result<Arc<Rendered>> {
    let now = Timestamp::now();
    let revision = |key: &Key| state.pods.read(key, Objects::revision);
    if let Some(list) = state.answers.get(job, now, revision) {
        return Ok(list);
    }
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    let (pods, list) = of_job(state, &key, job, now);
    let list = Rendered::new(key, job.clone(), pods, next_start(job, now), &list)?;
    let list = Arc::new(list);
    state.answers.keep(list.clone(), |key| state.jobs.get(key));
    Ok(list)
}

/// When the next replica that is to be made later may be made: the only thing that time changes.
fn next_start(job: &DIJob, now: Timestamp) -> Option<Timestamp> {
    let starts = plan_of(job)
        .iter()
        .filter_map(|entry| entry.not_before.as_ref());
    starts
        .map(|start| start.0)
        .filter(|start| *start > now)
        .min()
}

/// The replicas that the job's coordinator may use now, and the revision of the pods that tell so.
fn of_job(state: &Shared, key: &Key, job: &DIJob, now: Timestamp) -> (u64, Replicas) {
    let (revision, list) = state.pods.read(key, |pods| {
        if halted(job).is_some() {
            return (pods.revision(), Listing::default());
        }
        let pod = |name: &str| pods.get(name).filter(|pod| owns(job, pod));
        (pods.revision(), listing(job, pod, now))
    });
    (revision, Replicas::new(key, list))
}

/// One record for each coordinator that there is or is to be.
fn all(state: &Shared, namespace: Option<&str>) -> Result<Response> {
    let live = jobs(state, namespace).filter(|job| halted(job).is_none());
    let lists = live.map(|job| rendered(state, &job));
    Ok(json(join(lists.collect::<Result<_>>()?)))
}

fn json(bytes: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

fn jobs(state: &Shared, namespace: Option<&str>) -> impl Iterator<Item = JobRef> {
    let asked = move |job: &JobRef| {
        let of = job.metadata.namespace.as_deref();
        namespace.is_none_or(|namespace| of == Some(namespace))
    };
    state.jobs.all().into_iter().filter(asked)
}

/// The record of one replica; its URL is missing while it cannot be used.
fn replica(
    state: &Shared,
    namespace: &str,
    coordinator: Option<&str>,
    name: &str,
) -> Result<Replicas> {
    let asked =
        |job: &JobRef| coordinator.is_none_or(|asked| asked == names::coordinator(&job.name_any()));
    for job in jobs(state, Some(namespace)).filter(asked) {
        let key = (namespace.to_owned(), job.name_any());
        let Some(entry) = find(plan_of(&job), name).filter(|entry| entry.is_wanted()) else {
            continue;
        };
        let mut one = urls(state, &key, &job, [(entry.role, name)]);
        let (_, usable) = of_job(state, &key, &job, Timestamp::now());
        one.collectors.retain(|url| usable.collectors.contains(url));
        one.learners.retain(|url| usable.learners.contains(url));
        return Ok(one);
    }
    Err(Error::NotFound(format!(
        "there is no replica {name} in namespace {namespace}"
    )))
}
