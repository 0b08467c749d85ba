//! Observes a job: everything that one step is computed from.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use di_cache::{JobRef, Key, OptionalApi, QueueApi, View, kueue_resource};
use di_plan::{FlavorView, PodView, RandomSuffixes, controlling_job};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::DynamicObject};
use serde::Deserialize;

use crate::{
    Error, Observed, ObservedGang, ObservedQueue, Step,
    apply::PARALLEL_REQUESTS,
    context::Context,
    error::Result,
    step::{step, waiting_reason},
};

/// Reads the caches.
pub(crate) fn observe(context: &Context, key: &Key, job: JobRef) -> Observed {
    let now = (context.settings.clock)();
    // Times in Kubernetes objects are whole seconds.
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let coordinator = job.status.as_ref().map(|status| &status.coordinator);
    let coordinator_uid = coordinator.and_then(|last| last.uid.as_deref());
    // The watch has reported these pods as deleted.
    let plan = job.status.iter().flat_map(|status| &status.plan);
    let deleted = plan.filter(|entry| {
        let is_deleted =
            |uid: &String| context.pods.was_deleted(uid) && !context.pods.may_be_unlabeled(uid);
        entry.uid.as_ref().is_some_and(is_deleted)
    });
    let pods = context.pods.list_by_job(key);
    Observed {
        waiting_since: update_waiting_since(context, key, &job, &pods, now),
        pods,
        services: context.services.list_by_job(key),
        nodes: context.nodes.list_all(),
        aggregator: context.aggregators.template_for(&key.0),
        queue: ObservedQueue {
            api: context.workloads.api(),
            workloads: context.workloads.objects.list_by_job(key),
            flavors: BTreeMap::new(),
        },
        gang: observe_gang(context, key),
        last_error: context.job_state(key).last_error,
        final_coordinator_state: coordinator_uid.and_then(|uid| context.pods.final_state(uid)),
        unlabeled_pods: HashMap::new(),
        live_reads: deleted.map(|entry| (entry.name.clone(), false)).collect(),
        now,
        job,
    }
}

fn observe_gang(context: &Context, key: &Key) -> ObservedGang {
    let scheduler = context.settings.build.gang.clone();
    let has_groups = scheduler
        .as_ref()
        .is_some_and(|scheduler| scheduler.group_kind().is_some());
    ObservedGang {
        api: if has_groups {
            context.groups.api()
        } else {
            OptionalApi::Served(())
        },
        groups: context.groups.objects.list_by_job(key),
        scheduler,
    }
}

/// Records the time since which each pod waits with a reason. Only failure rules need it. A restart
/// of the process resets it.
fn update_waiting_since(
    context: &Context,
    key: &Key,
    job: &JobRef,
    pods: &[PodView],
    now: Timestamp,
) -> HashMap<String, Timestamp> {
    if job.spec.failure_rules.is_empty() {
        return HashMap::new();
    }
    let before = context.job_state(key).waiting_since;
    // A container that crashes repeatedly runs for moments.
    let crashes_again = |pod: &&PodView| pod.crash_loop.is_some() && before.contains_key(&pod.uid);
    let waiting = pods.iter();
    let waiting = waiting.filter(|pod| waiting_reason(pod).is_some() || crashes_again(pod));
    let since: HashMap<_, _> = waiting
        .map(|pod| (pod.uid.clone(), *before.get(&pod.uid).unwrap_or(&now)))
        .collect();
    if since != *before {
        context.update_state(key, |state| state.waiting_since = Arc::new(since.clone()));
    }
    since
}

/// Computes the step.
pub(crate) fn compute(observed: &Observed) -> Step {
    step(observed, &mut RandomSuffixes)
}

/// Reads pods from the API server, bypassing the cache, and adds them to the observed ones.
///
/// Successful reads are kept: a failing API server rejects some of many requests, so reading all
/// again might never succeed.
///
/// # Errors
/// If no read succeeded.
pub(crate) async fn verify_live(
    context: &Context,
    key: &Key,
    observed: &mut Observed,
    names: Vec<String>,
) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(context.client.clone(), &key.0);
    let job_uid = observed.job_uid().to_owned();
    let reads = names.into_iter().map(|name| {
        let (api, job_uid) = (api.clone(), &job_uid);
        async move {
            let operation = || format!("get pods/{name}");
            let found = context.get("pods", operation, api.get_opt(&name)).await?;
            let view = found.as_ref().and_then(PodView::new);
            if let Some(view) = view.filter(|view| view.job_key() == *key) {
                context.pods.record_created(view);
                return Ok((name, true, None));
            }
            let unlabeled = found.filter(|pod| {
                let is_own = controlling_job(pod).as_ref() == Some(job_uid);
                is_own && pod.metadata.deletion_timestamp.is_none()
            });
            let uid = unlabeled.and_then(|pod| pod.uid());
            Ok((name, uid.is_some(), uid))
        }
        .boxed()
    });
    let reads: Vec<BoxFuture<'_, Result<_>>> = reads.collect();
    let results: Vec<_> = stream::iter(reads)
        .buffer_unordered(PARALLEL_REQUESTS)
        .collect()
        .await;
    let (found, failed): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    if found.is_empty() {
        return failed.into_iter().try_for_each(|result| result.map(drop));
    }
    for (name, exists, unlabeled) in found.into_iter().flatten() {
        if let Some(uid) = unlabeled {
            observed.unlabeled_pods.insert(name.clone(), uid);
        }
        observed.live_reads.insert(name, exists);
    }
    observed.pods = context.pods.list_by_job(key);
    Ok(())
}

/// Reads flavors of Kueue from the API server, and adds them to the observed ones. They are read
/// once per admission, so no watch is worth its cost.
///
/// # Errors
/// If a read failed, or a flavor does not exist.
pub(crate) async fn read_flavors(
    context: &Context,
    observed: &mut Observed,
    names: Vec<String>,
) -> Result<()> {
    let QueueApi::Served(version) = observed.queue.api else {
        return Ok(());
    };
    let resource = kueue_resource(version, "ResourceFlavor");
    let api: Api<DynamicObject> = Api::all_with(context.client.clone(), &resource);
    for name in names {
        let operation = || format!("get resourceflavors/{name}");
        let flavor = context.get("resourceflavors", operation, api.get(&name));
        let flavor = flavor.await.map_err(Error::map_kueue_error)?;
        let spec = Option::<FlavorView>::deserialize(&flavor.data["spec"]);
        let spec = spec.map_err(|error| Error::Api {
            operation: operation(),
            source: Box::new(kube::Error::SerdeError(error)),
        })?;
        let spec = spec.unwrap_or_default();
        observed.queue.flavors.insert(name, spec);
    }
    Ok(())
}
