use std::sync::Arc;

use axum::{
    body::Bytes,
    extract::State as Extract,
    http::{Uri, header},
    response::{IntoResponse, Response},
};
use di_api::names;
use di_cache::{JobView, Key, VersionedMap};
use di_plan::{Job, Listing, aggregator_of, find_entry, list_replicas, next_change, list_processes};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde::Serialize;
use utoipa::ToSchema;

use super::{coordinator_not_found, find_aggregator, key, owns_pod, replica_urls, success};
use crate::{
    State,
    authorize::{Action, Requester, Source, authorize},
    error::{Error, Result},
    list_cache::{CachedList, join},
    state::{JobRef, SharedState},
    wire::{Query, Replicas, Success},
};

/// Lists the replicas of one coordinator, or of all that the requester may see.
#[utoipa::path(get, path = "/replicas", params(Query), responses(
    (status = 200, description = "Those that can be used now", body = Success<ListData>), Error,
))]
pub(crate) async fn list(
    Extract(state): Extract<State>,
    source: Source,
    uri: Uri,
) -> Result<Response> {
    let query = Query::parse(&uri)?;
    state.wait_for_cache_sync().await?;
    let coordinator = query.coordinator.as_deref();
    let action = Action::Read {
        namespace: query.namespace.as_deref(),
        job: coordinator
            .map(|name| names::job_of_coordinator(name).unwrap_or(name))
            .or_else(|| {
                query
                    .aggregator
                    .as_deref()
                    .and_then(names::job_of_aggregator)
            }),
    };
    let requester = authorize(&state, &source, action).await?;
    let Some(namespace) = query.namespace.as_deref() else {
        let own = match &requester {
            Requester::Pod(pod, _) => Some(pod.namespace.as_str()),
            Requester::Other => None,
        };
        return all(&state, own);
    };
    if let Some(aggregator) = &query.aggregator {
        // The requester may know of the coordinator's job only: whether there is such an aggregator of another is not told.
        let of = names::job_of_aggregator(aggregator).map(names::coordinator_name);
        if let Some(coordinator) = coordinator
            && of.as_deref() != Some(coordinator)
        {
            return Err(Error::NotFound(format!(
                "coordinator {coordinator} has no aggregator {aggregator}"
            )));
        }
        let (key, job) = Box::pin(find_aggregator(&state, namespace, aggregator)).await?;
        if let Some(name) = &query.name
            && find_entry(job.plan_entries(), name).and_then(aggregator_of) != Some(aggregator)
        {
            return Err(replica_not_found(namespace, name));
        }
        let of = AggregatorQuery {
            aggregator,
            only: query.name.as_deref(),
        };
        return success("", of_aggregator(&state, &key, &job, of));
    }
    if let Some(name) = &query.name {
        return success(
            "",
            ListData::One(replica(&state, namespace, coordinator, name)?),
        );
    }
    let Some(coordinator) = coordinator else {
        return all(&state, Some(namespace));
    };
    let key = key(namespace, coordinator)?;
    let job = match requester {
        Requester::Pod(pod, own) if pod.namespace == key.0 && pod.job == key.1 => own,
        _ => match state.find_job(&key).await {
            Err(Error::NotFound(_)) => return Err(coordinator_not_found(namespace, coordinator)),
            found => found?,
        },
    };
    Ok(json(cached_list(&state, &job)?.envelope()))
}

/// One record where one coordinator, aggregator or replica was asked for, else one for each coordinator.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // lists are kept as bytes; this tells their schema
pub(crate) enum ListData {
    One(Replicas),
    All(Vec<Replicas>),
}

/// The list of the replicas that the job's coordinator may use now.
fn cached_list(state: &SharedState, job: &JobRef) -> Result<Arc<CachedList>> {
    let now = Timestamp::now();
    let revision = |key: &Key| state.pods.read_objects(key, VersionedMap::revision);
    if let Some(list) = state.list_cache.get(job, now, revision) {
        return Ok(list);
    }
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    let (pods, list) = of_job(state, &key, job, now);
    let until = next_change(&**job, now, scheduling_grace_period(state));
    let list = CachedList::new(key, job.clone(), pods, until, &list)?;
    let list = Arc::new(list);
    state
        .list_cache
        .keep(list.clone(), |key| state.jobs.get(key));
    Ok(list)
}

/// For how long a new replica without a node is not listed: as long as the answer that tells of it may wait.
fn scheduling_grace_period(state: &SharedState) -> SignedDuration {
    state.settings.create_wait.try_into().unwrap_or_default()
}

/// The replicas that the job's coordinator may use now, and the revision of the pods that tell so.
fn of_job(state: &SharedState, key: &Key, job: &JobView, now: Timestamp) -> (u64, Replicas) {
    let (revision, list) = state.pods.read_with_deleted(key, |pods, saw_go| {
        if job.halted.is_some() {
            return (pods.revision(), Listing::default());
        }
        let pod = |name: &str| pods.get(name).filter(|pod| owns_pod(job, pod));
        let list = list_replicas(job, pod, saw_go, now, scheduling_grace_period(state));
        (pods.revision(), list)
    });
    (revision, Replicas::new(key, list))
}

/// The ddp learners that are asked for.
#[derive(Clone, Copy)]
struct AggregatorQuery<'a> {
    aggregator: &'a str,
    /// The one of this name.
    only: Option<&'a str>,
}

/// The processes that an aggregator may use now.
fn of_aggregator(
    state: &SharedState,
    key: &Key,
    job: &JobView,
    unit: AggregatorQuery<'_>,
) -> Replicas {
    let mut learners = Vec::new();
    if job.halted.is_none() {
        learners = state.pods.read_with_deleted(key, |pods, saw_go| {
            let pod = |name: &str| pods.get(name).filter(|pod| owns_pod(job, pod));
            list_processes(job, unit.aggregator, pod, saw_go, Timestamp::now())
        });
    }
    if let Some(only) = unit.only {
        let host = format!("{only}.{}:", key.0);
        learners.retain(|url| url.starts_with(&host));
    }
    Replicas::of_aggregator(&key.0, unit.aggregator, learners)
}

fn replica_not_found(namespace: &str, name: &str) -> Error {
    Error::NotFound(format!(
        "there is no replica {name} in namespace {namespace}"
    ))
}

/// One record for each coordinator that there is or is to be.
fn all(state: &SharedState, namespace: Option<&str>) -> Result<Response> {
    let live = jobs(state, namespace).filter(|job| job.halted.is_none());
    let lists = live.map(|job| cached_list(state, &job));
    Ok(json(join(lists.collect::<Result<_>>()?)))
}

fn json(bytes: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

fn jobs(state: &SharedState, namespace: Option<&str>) -> impl Iterator<Item = JobRef> {
    let asked = move |job: &JobRef| {
        let of = job.metadata.namespace.as_deref();
        namespace.is_none_or(|namespace| of == Some(namespace))
    };
    state.jobs.list_all().into_iter().filter(asked)
}

/// The record of one replica; its URL is missing while it cannot be used.
fn replica(
    state: &SharedState,
    namespace: &str,
    coordinator: Option<&str>,
    name: &str,
) -> Result<Replicas> {
    let asked =
        |job: &JobRef| coordinator.is_none_or(|asked| asked == names::coordinator_name(&job.name_any()));
    for job in jobs(state, Some(namespace)).filter(asked) {
        let key = (namespace.to_owned(), job.name_any());
        let Some(entry) = find_entry(job.plan_entries(), name).filter(|entry| entry.is_wanted()) else {
            continue;
        };
        if let Some(aggregator) = aggregator_of(entry) {
            // It is its aggregator's, not the coordinator's.
            let of = AggregatorQuery {
                aggregator,
                only: Some(name),
            };
            return Ok(of_aggregator(state, &key, &job, of));
        }
        let mut one = replica_urls(state, &key, &job, [(entry.role, name)]);
        let (_, usable) = of_job(state, &key, &job, Timestamp::now());
        one.collectors.retain(|url| usable.collectors.contains(url));
        one.learners.retain(|url| usable.learners.contains(url));
        return Ok(one);
    }
    Err(replica_not_found(namespace, name))
}
