use std::{fmt::Debug, sync::Arc};

use di_api::{AggregatorConfig, names};
use di_plan::{AggregatorTemplate, NodeView};
use futures::{TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tracing::warn;

use crate::{
    key::Key,
    objects::{ObjectCache, PodCache, ServiceCache},
    projection::{Project, Projected},
    rate_limit::rate_limited,
    read_only_cache::{AggregatorCache, NodeCache},
    view::View,
    watch_backoff::WatchBackoff,
    watch_errors::WatchErrors,
};

/// Timeout of a watch request in seconds. It limits how long a dead connection stays unnoticed.
pub const WATCH_TIMEOUT_SECONDS: u32 = 60;

/// Timeout of the watch of services in seconds. Some API servers silently stop sending events on a
/// slow watch of services (<https://github.com/kubernetes/kubernetes/issues/102464>).
const SERVICES_TIMEOUT_SECONDS: u32 = 15;

/// Number of objects in one page of a list.
///
/// A page is decoded as a whole. kube's default of 500 objects needs tens of MiB, which the
/// allocator does not return to the system.
const PAGE_SIZE: u32 = 100;

pub(crate) fn watch_config() -> watcher::Config {
    watcher::Config::default()
        .timeout(WATCH_TIMEOUT_SECONDS)
        .page_size(PAGE_SIZE)
}

/// Feeds the pods of all jobs into `cache`, and sends the key of each changed job to `changed`.
///
/// Returns only when `changed` is closed.
pub async fn feed_pods(
    client: Client,
    cache: Arc<PodCache>,
    changed: mpsc::Sender<Key>,
    errors: WatchErrors,
) {
    feed_objects::<Pod, _>(client, watch_config(), &cache, changed, &errors, "pods").await;
}

/// Feeds the services of all jobs into `cache`, like [`feed_pods`].
pub async fn feed_services(
    client: Client,
    cache: Arc<ServiceCache>,
    changed: mpsc::Sender<Key>,
    errors: WatchErrors,
) {
    let config = watch_config().timeout(SERVICES_TIMEOUT_SECONDS);
    feed_objects::<Service, _>(client, config, &cache, changed, &errors, "services").await;
}

/// Feeds the nodes that have GPUs into `cache`.
pub async fn feed_nodes(client: Client, cache: Arc<NodeCache>, errors: WatchErrors) {
    let view = |node: &Node| Some(NodeView::new(node)).filter(|view| view.gpus > 0);
    let apply = |event| cache.apply_event(event, view);
    let api = Api::<Node>::all(rate_limited(client));
    run_watch(api, watch_config(), apply, None, &errors, "nodes").await;
}

/// Feeds the `AggregatorConfig`s into `cache`, and sends the key of each changed one to `changed`.
///
/// Only objects of the name `aggregator-config` are used. Returns only when `changed` is closed.
pub async fn feed_aggregator_configs(
    client: Client,
    cache: Arc<AggregatorCache>,
    changed: mpsc::Sender<Key>,
    errors: WatchErrors,
) {
    // Watch dynamic objects: an invalid config must be reported and must not stop the watch.
    let api: Api<DynamicObject> = Api::all_with(
        rate_limited(client),
        &ApiResource::erase::<AggregatorConfig>(&()),
    );
    let view = |object: &DynamicObject| {
        let config = serde_json::to_value(object).ok()?;
        Some(AggregatorTemplate::from_config(&config))
    };
    let name = format!("metadata.name={}", names::AGGREGATOR_CONFIG);
    let apply = |event| cache.apply_config_event(event, view);
    let config = watch_config().fields(&name);
    let resource = "aggregatorconfigs";
    run_watch(api, config, apply, Some(changed), &errors, resource).await;
}

async fn feed_objects<K, V>(
    client: Client,
    config: watcher::Config,
    cache: &ObjectCache<V>,
    changed: mpsc::Sender<Key>,
    errors: &WatchErrors,
    resource: &'static str,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    V: Project<K> + Debug + 'static,
{
    let apply = |event| apply_event(cache, event);
    let config = config.labels(names::labels::SELECTOR);
    let api = Api::<Projected<K, V>>::all(rate_limited(client));
    run_watch(api, config, apply, Some(changed), errors, resource).await;
}

async fn run_watch<K>(
    api: Api<K>,
    config: watcher::Config,
    apply: impl Fn(Event<K>) -> Vec<Key>,
    changed: Option<mpsc::Sender<Key>>,
    errors: &WatchErrors,
    resource: &'static str,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(api, config).backoff(WatchBackoff::default());
    pin_mut!(events);
    loop {
        let changed_keys: Vec<Key> = match events.try_next().await {
            Ok(Some(event)) => apply(event),
            Ok(None) => return,
            Err(error) => {
                errors.for_resource(resource).inc();
                warn!(
                    resource,
                    error = &error as &dyn std::error::Error,
                    "Watch failed, retrying"
                );
                continue;
            }
        };
        let Some(changed) = &changed else { continue };
        for key in changed_keys {
            if changed.send(key).await.is_err() {
                return;
            }
        }
    }
}

/// Applies a watch event to the cache, and returns the jobs with changed objects.
pub(crate) fn apply_event<K, V>(cache: &ObjectCache<V>, event: Event<Projected<K, V>>) -> Vec<Key>
where
    K: Resource,
    V: View,
{
    let changed_job = match event {
        Event::Init => {
            cache.on_init();
            None
        }
        Event::InitApply(Projected { view, .. }) => {
            if let Some(view) = view {
                cache.on_init_apply(view);
            }
            None
        }
        Event::InitDone => return cache.on_init_done().into_iter().collect(),
        Event::Apply(Projected {
            view: Some(view), ..
        }) => {
            let job = view.job_key();
            let former_job = cache.on_apply(view);
            return former_job.into_iter().chain([job]).collect();
        }
        Event::Apply(object) => cache.on_delete_or_unlabel(&object.uid().unwrap_or_default()),
        Event::Delete(object) => {
            let uid = object.uid().unwrap_or_default();
            let job = object.view.as_ref().map(View::job_key);
            let was_deleting = object.view.as_ref().is_some_and(View::is_deleting);
            if let Some(state) = object.view {
                cache.record_final_state(state);
            }
            // The event has the state before. It is the same for an object without its job label.
            let removed = if was_deleting {
                cache.on_delete(&uid)
            } else {
                cache.on_delete_or_unlabel(&uid)
            };
            removed.or(job)
        }
    };
    changed_job.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use di_plan::PodView;
    use serde_json::{Value, json};

    use super::*;
    use crate::VersionedMap;

    fn labeled_pod(labels: &Value) -> Projected<Pod, PodView> {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": labels},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn job_pod(job: &str) -> Projected<Pod, PodView> {
        labeled_pod(&json!({"dijob-name": job}))
    }

    fn job_key(job: &str) -> Key {
        ("ns".to_owned(), job.to_owned())
    }

    /// Number of pods of jobs `j` and `k`, and the job of the IP owner.
    fn cache_summary(cache: &PodCache) -> (usize, usize, Option<String>) {
        let owner = cache.find_by_pod_ip("10.0.0.1".parse().unwrap());
        let count = |job| cache.read_objects(&job_key(job), VersionedMap::len);
        (count("j"), count("k"), owner.map(|pod| pod.job.clone()))
    }

    #[test]
    fn pod_without_job_label_is_removed_from_its_job() {
        let cache = PodCache::default();
        let bare = || labeled_pod(&json!({}));
        assert_eq!(
            apply_event(&cache, Event::Apply(job_pod("j"))),
            [job_key("j")]
        );
        assert_eq!(cache_summary(&cache), (1, 0, Some("j".to_owned())));
        assert_eq!(apply_event(&cache, Event::Apply(bare())), [job_key("j")]);
        assert_eq!(cache_summary(&cache), (0, 0, None));
        assert!(cache.was_deleted("u"));
        assert_eq!(
            apply_event(&cache, Event::Apply(bare())),
            [],
            "an unknown pod before"
        );

        apply_event(&cache, Event::Apply(job_pod("j")));
        assert_eq!(apply_event(&cache, Event::Delete(bare())), [job_key("j")]);
        assert_eq!(cache_summary(&cache), (0, 0, None));
    }

    #[test]
    fn object_deleted_without_deletion_time_may_be_unlabeled() {
        let deleted = |fields: Value| {
            let mut metadata = json!({"uid": "u"});
            metadata
                .as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
            let pod = di_fixtures::Pod::test("p", "collector").metadata(metadata);
            let cache = PodCache::default();
            apply_event(
                &cache,
                Event::Delete(pod.build::<Projected<Pod, PodView>>()),
            );
            (cache.was_deleted("u"), cache.may_be_unlabeled("u"))
        };
        assert_eq!(deleted(json!({})), (true, true));
        let time = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        assert_eq!(deleted(time), (true, false));
    }

    #[test]
    fn final_state_of_deleted_coordinator_is_kept() {
        let ended = |role: &str, uid: &str, code: Option<i32>| {
            let state = code.map(|code| json!({"terminated": {"exitCode": code}}));
            let statuses = state.map(|state| json!([{"name": "di-container", "state": state}]));
            let pod = di_fixtures::Pod::test("p", role).metadata(json!({"uid": uid}));
            let pod = pod.spec(json!({"restartPolicy": "Never"}));
            let status = json!({"phase": "Running", "containerStatuses": statuses});
            pod.status(status).build::<Projected<Pod, PodView>>()
        };
        let cache = PodCache::default();
        for (role, uid, code, known) in [
            ("coordinator", "a", Some(0), Some(0)),
            ("coordinator", "b", Some(1), Some(1)),
            ("coordinator", "c", None, None),
            ("collector", "d", Some(0), None),
        ] {
            apply_event(&cache, Event::Delete(ended(role, uid, code)));
            let end = cache.final_state(uid).and_then(|pod| pod.end);
            assert_eq!(end.and_then(|end| end.exit_code), known, "{role} {uid}");
        }
        for i in 0..300 {
            apply_event(
                &cache,
                Event::Delete(ended("coordinator", &i.to_string(), Some(0))),
            );
        }
        assert!(cache.final_state("a").is_none() && cache.final_state("299").is_some());
    }

    #[test]
    fn pod_with_changed_job_label_moves_to_other_job() {
        let cache = PodCache::default();
        apply_event(&cache, Event::Apply(job_pod("j")));
        let changed = apply_event(&cache, Event::Apply(job_pod("k")));
        assert_eq!(changed, [job_key("j"), job_key("k")]);
        assert_eq!(cache_summary(&cache), (0, 1, Some("k".to_owned())));
        assert!(cache.was_deleted("u"), "its former job sees a deletion");
        assert_eq!(
            apply_event(&cache, Event::Apply(job_pod("k"))),
            [job_key("k")]
        );
        // The write that removed the finalizer also changed the label.
        assert_eq!(
            apply_event(&cache, Event::Delete(job_pod("j"))),
            [job_key("k")]
        );
        assert_eq!(cache_summary(&cache), (0, 0, None));
    }
}
