mod response;

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State as Extract,
    http::{HeaderMap, Uri},
    response::Response,
};
use di_api::names;
use di_cache::{JobView, Key, VersionedMap};
use di_plan::{
    Job, Listing, PodView, find_entry, leader_of, list_members, list_processes, list_replicas,
    next_change,
};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde::Serialize;
use utoipa::ToSchema;

use self::response::{json_response, list_response};
use super::{
    aggregator_not_found, coordinator_not_found, find_aggregator, replica_urls, success_response,
};
use crate::{
    authorize::{
        access::Access,
        authorize,
        identity::{Identity, owns_pod},
        source::Source,
    },
    error::{Error, Result},
    list_cache::{CachedList, Membership, join_lists},
    polls::LongPolled,
    state::{JobRef, SharedState, State},
    versions::is_legacy_path,
    wire::{ListedReplicas, Query, Replicas, Success},
};

/// Lists the replicas of one coordinator, or of all coordinators that the requester may read. With
/// a generation, waits until the list of a coordinator has changed.
#[utoipa::path(get, path = "/replicas",
    params(Query, ("If-None-Match" = Option<String>, Header, description = "ETags of known lists of one coordinator")),
    responses(
        (status = 200, description = "The replicas that can be used now", body = Success<ListData>,
            headers(("ETag" = String, description = "Of the list of one coordinator, if it has a generation"))),
        (status = 304, description = "The list has one of the ETags"),
        Error,
    ),
)]
pub(crate) async fn list(
    Extract(state): Extract<State>,
    source: Source,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response> {
    let query = Query::parse(&uri)?;
    state.wait_for_cache_sync().await?;
    let identity = authorize(&state, &source, access_of_query(&query)).await?;
    let is_legacy = is_legacy_path(uri.path());
    let Some(namespace) = query.namespace.as_deref() else {
        return list_all(&state, identity.pod_namespace(), is_legacy);
    };
    match (&query.aggregator, &query.name, &query.coordinator) {
        (Some(aggregator), ..) => list_aggregator(&state, namespace, aggregator, &query).await,
        (None, Some(name), coordinator) => {
            let replica = single_replica(&state, namespace, coordinator.as_deref(), name)?;
            success_response("", ListData::One(replica.into()))
        }
        (None, None, Some(coordinator)) => {
            let key = key_of_coordinator(namespace, coordinator)?;
            if let Some(known) = query.generation {
                let wait = query.wait.unwrap_or_default();
                // Boxed because few requests are polls: it keeps the futures of the others small.
                let list = Box::pin(poll_members(&state, &key, identity, known, wait)).await?;
                let mut response = list_response(&list, &headers);
                response.extensions_mut().insert(LongPolled);
                return Ok(response);
            }
            let job = job_of_identity(&state, &key, identity).await?;
            let list = list_of_job(&state, &job, is_legacy)?;
            Ok(list_response(&list, &headers))
        }
        (None, None, None) => list_all(&state, Some(namespace), is_legacy),
    }
}

/// The access that a query needs: to the job that it names, if any.
fn access_of_query(query: &Query) -> Access<'_> {
    let job_of_aggregator = || names::job_of_aggregator(query.aggregator.as_deref()?);
    Access::Read {
        namespace: query.namespace.as_deref(),
        job: match query.coordinator.as_deref() {
            Some(name) => Some(names::job_of_coordinator(name).unwrap_or(name)),
            None => job_of_aggregator(),
        },
    }
}

/// Lists the ddp learners of an aggregator, or the one that the query names.
async fn list_aggregator(
    state: &SharedState,
    namespace: &str,
    aggregator: &str,
    query: &Query,
) -> Result<Response> {
    // The requester may read this coordinator's job only, so the existence of aggregators of
    // other jobs is not revealed.
    let own_coordinator = names::job_of_aggregator(aggregator).map(names::coordinator_name);
    if let Some(coordinator) = &query.coordinator
        && own_coordinator.as_ref() != Some(coordinator)
    {
        return Err(Error::NotFound(format!(
            "coordinator {coordinator} has no aggregator {aggregator}"
        )));
    }
    let Some(job) = names::job_of_aggregator(aggregator) else {
        return Err(aggregator_not_found(namespace, aggregator));
    };
    let key = (namespace.to_owned(), job.to_owned());
    let job = Box::pin(find_aggregator(state, &key, aggregator)).await?;
    let only = query.name.as_deref();
    if let Some(name) = only
        && find_entry(job.plan_entries(), name).and_then(leader_of) != Some(aggregator)
    {
        return Err(replica_not_found(namespace, name));
    }
    let query = AggregatorQuery { aggregator, only };
    success_response("", aggregator_processes(state, &key, &job, query))
}

fn key_of_coordinator(namespace: &str, coordinator: &str) -> Result<Key> {
    let job = names::job_of_coordinator(coordinator);
    let job = job.ok_or_else(|| coordinator_not_found(namespace, coordinator))?;
    Ok((namespace.to_owned(), job.to_owned()))
}

/// Finds a job, which is that of the requester if it is a pod of the job.
async fn job_of_identity(state: &SharedState, key: &Key, identity: Identity) -> Result<JobRef> {
    match identity {
        Identity::Pod(pod, own) if pod.namespace == key.0 && pod.job == key.1 => Ok(own),
        _ => find_listed_job(state, key).await,
    }
}

/// Finds a job, or fails with the name of its coordinator.
async fn find_listed_job(state: &SharedState, key: &Key) -> Result<JobRef> {
    let found = state.find_job(key).await;
    found.map_err(|error| name_coordinator(key, error))
}

/// Names the coordinator in the error about a job that does not exist.
fn name_coordinator(key: &Key, error: Error) -> Error {
    match error {
        Error::NotFound(_) => coordinator_not_found(&key.0, &names::coordinator_name(&key.1)),
        other => other,
    }
}

/// Returns the members of a job once their generation is not `known`, or the wait is over.
async fn poll_members(
    state: &SharedState,
    key: &Key,
    identity: Identity,
    known: i64,
    wait: Duration,
) -> Result<Arc<CachedList>> {
    let mut job = job_of_identity(state, key, identity).await?;
    if job.membership_generation.is_some_and(|last| last < known) {
        // Another pod of the endpoint has seen a newer status, or the status was lost.
        let read = state.look_up_job(key).await;
        job = read.map_err(|error| name_coordinator(key, error))?;
    }
    if job.membership_generation == Some(known) && !wait.is_zero() {
        drop(job);
        state.wait_for_members(key, known, wait).await?;
        job = find_listed_job(state, key).await?;
    }
    match cached_members(state, &job)? {
        Some(list) => Ok(list),
        None => cached_list(state, &job),
    }
}

/// One record for a request that names a coordinator, aggregator or replica, else one per coordinator.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[allow(dead_code)] // lists are cached as bytes; this type is their schema
pub(crate) enum ListData {
    One(ListedReplicas),
    All(Vec<ListedReplicas>),
}

/// Returns the list of the replicas that the coordinator can use. In the newer version it has a
/// generation if the recorded members are these replicas.
fn list_of_job(state: &SharedState, job: &JobRef, is_legacy: bool) -> Result<Arc<CachedList>> {
    if !is_legacy
        && let Some(list) = cached_members(state, job)?
        && list.membership().is_some_and(|members| members.is_current)
    {
        return Ok(list);
    }
    cached_list(state, job)
}

/// Returns the list of the recorded members, rendered or from the cache. `None` before they
/// are recorded.
fn cached_members(state: &SharedState, job: &JobRef) -> Result<Option<Arc<CachedList>>> {
    let Some(generation) = job.membership_generation else {
        return Ok(None);
    };
    let now = Timestamp::now();
    let revision = |key: &Key| state.pods.read_objects(key, VersionedMap::revision);
    if let Some(list) = state.member_cache.get(job, now, revision) {
        return Ok(Some(list));
    }
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    let (pods, members, usable) = state.pods.read_with_deleted(&key, |pods, was_deleted| {
        let pod = |name: &str| pods.get(name).filter(|pod| owns_pod(job, pod));
        let usable = list_usable(state, job, now, pods, was_deleted);
        (pods.revision(), list_members(&**job, pod), usable)
    });
    let until = next_change(&**job, now, scheduling_wait(state));
    let membership = Membership {
        generation,
        is_current: members == usable,
    };
    let list = Replicas::new(&key, members);
    let list = CachedList::new(key, job.clone(), pods, until, list, Some(membership))?;
    let list = Arc::new(list);
    let newest = |key: &Key| state.jobs.get(key);
    state.member_cache.insert(list.clone(), newest);
    Ok(Some(list))
}

/// Returns the list of the replicas that the coordinator can use, rendered or from the cache.
fn cached_list(state: &SharedState, job: &JobRef) -> Result<Arc<CachedList>> {
    let now = Timestamp::now();
    let revision = |key: &Key| state.pods.read_objects(key, VersionedMap::revision);
    if let Some(list) = state.list_cache.get(job, now, revision) {
        return Ok(list);
    }
    let key = (job.namespace().unwrap_or_default(), job.name_any());
    let (pods, list) = usable_replicas(state, &key, job, now);
    let until = next_change(&**job, now, scheduling_wait(state));
    let list = CachedList::new(key, job.clone(), pods, until, list, None)?;
    let list = Arc::new(list);
    state
        .list_cache
        .insert(list.clone(), |key| state.jobs.get(key));
    Ok(list)
}

/// How long a new replica without a node is left out of lists: as long as the POST waits for it.
/// See docs/decisions/0012.
fn scheduling_wait(state: &SharedState) -> SignedDuration {
    state
        .settings
        .scheduling_wait
        .try_into()
        .unwrap_or_default()
}

/// Returns the replicas that the coordinator can use, and the revision of the pods in this result.
fn usable_replicas(
    state: &SharedState,
    key: &Key,
    job: &JobView,
    now: Timestamp,
) -> (u64, Replicas) {
    let (revision, list) = state.pods.read_with_deleted(key, |pods, was_deleted| {
        let list = list_usable(state, job, now, pods, was_deleted);
        (pods.revision(), list)
    });
    (revision, Replicas::new(key, list))
}

/// Lists the replicas that the coordinator can use, by these pods.
fn list_usable(
    state: &SharedState,
    job: &JobView,
    now: Timestamp,
    pods: &VersionedMap<PodView>,
    was_deleted: &dyn Fn(&str) -> bool,
) -> Listing {
    if job.halted.is_some() {
        return Listing::default();
    }
    let pod = |name: &str| pods.get(name).filter(|pod| owns_pod(job, pod));
    list_replicas(job, pod, was_deleted, now, scheduling_wait(state))
}

/// Selects ddp learners of one aggregator.
#[derive(Clone, Copy)]
struct AggregatorQuery<'a> {
    aggregator: &'a str,
    /// Only the ddp learner of this name.
    only: Option<&'a str>,
}

/// Returns the processes that an aggregator can use.
fn aggregator_processes(
    state: &SharedState,
    key: &Key,
    job: &JobView,
    query: AggregatorQuery<'_>,
) -> Replicas {
    let mut learners = Vec::new();
    if job.halted.is_none() {
        learners = state.pods.read_with_deleted(key, |pods, was_deleted| {
            let pod = |name: &str| pods.get(name).filter(|pod| owns_pod(job, pod));
            list_processes(job, query.aggregator, pod, was_deleted, Timestamp::now())
        });
    }
    if let Some(only) = query.only {
        let host = format!("{only}.{}:", key.0);
        learners.retain(|url| url.starts_with(&host));
    }
    Replicas::for_aggregator(&key.0, query.aggregator, learners)
}

fn replica_not_found(namespace: &str, name: &str) -> Error {
    Error::NotFound(format!(
        "there is no replica {name} in namespace {namespace}"
    ))
}

/// Returns one record for each active job.
fn list_all(state: &SharedState, namespace: Option<&str>, is_legacy: bool) -> Result<Response> {
    let live = jobs_in_namespace(state, namespace).filter(|job| job.halted.is_none());
    let lists = live.map(|job| list_of_job(state, &job, is_legacy));
    Ok(json_response(join_lists(lists.collect::<Result<_>>()?)))
}

fn jobs_in_namespace(state: &SharedState, namespace: Option<&str>) -> impl Iterator<Item = JobRef> {
    let in_namespace = move |job: &JobRef| {
        let job_namespace = job.metadata.namespace.as_deref();
        namespace.is_none_or(|namespace| job_namespace == Some(namespace))
    };
    state.jobs.list_all().into_iter().filter(in_namespace)
}

/// Returns the record of one replica, without its URL while it cannot be used.
fn single_replica(
    state: &SharedState,
    namespace: &str,
    coordinator: Option<&str>,
    name: &str,
) -> Result<Replicas> {
    let has_coordinator = |job: &JobRef| {
        coordinator
            .is_none_or(|coordinator| coordinator == names::coordinator_name(&job.name_any()))
    };
    for job in jobs_in_namespace(state, Some(namespace)).filter(has_coordinator) {
        let key = (namespace.to_owned(), job.name_any());
        let Some(entry) = find_entry(job.plan_entries(), name).filter(|entry| entry.is_wanted())
        else {
            continue;
        };
        if let Some(place) = &entry.ddp {
            // A ddp learner belongs to the list of its aggregator.
            let query = AggregatorQuery {
                aggregator: &place.aggregator,
                only: Some(name),
            };
            return Ok(aggregator_processes(state, &key, &job, query));
        }
        let mut one = replica_urls(state, &key, &job, [(entry.role, name)]);
        let (_, usable) = usable_replicas(state, &key, &job, Timestamp::now());
        one.collectors.retain(|url| usable.collectors.contains(url));
        one.learners.retain(|url| usable.learners.contains(url));
        return Ok(one);
    }
    Err(replica_not_found(namespace, name))
}
