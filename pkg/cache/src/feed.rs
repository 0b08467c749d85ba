use std::{fmt::Debug, sync::Arc};

use di_api::{AggregatorConfig, names};
use di_plan::{AggregatorTemplate, NodeView};
use futures::{Stream, TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt, reflector,
        reflector::store::Writer,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tracing::warn;

use crate::{
    AggregatorCache, Key, NodeCache, ObjectCache, PodCache, ServiceCache, View, WatchErrors,
    WatchedJob,
    pace::paced,
    patience::Patience,
    seen::{Seen, ViewOf},
};

/// A watch is renewed after this time, in seconds, which bounds how long a dead connection can go unnoticed.
pub const WATCH_TIMEOUT_SECONDS: u32 = 60;

/// The same for services: some servers end a slow watch of those [without telling](https://github.com/kubernetes/kubernetes/issues/102464), and
/// nothing comes on it any more.
const SERVICES_TIMEOUT_SECONDS: u32 = 15;

/// How many objects one answer to the first list holds. Its text is held whole while it is decoded, and at 500, the usual number, that takes
/// tens of MiB, which stay with the process.
const PAGE: u32 = 100;

fn config() -> watcher::Config {
    watcher::Config::default()
        .timeout(WATCH_TIMEOUT_SECONDS)
        .page_size(PAGE)
}

/// Watches jobs, whole or as views, into the store of `writer`; drive it, or nothing is watched.
pub fn job_stream<J>(
    client: Client,
    writer: Writer<WatchedJob<J>>,
) -> impl Stream<Item = watcher::Result<Event<WatchedJob<J>>>> + Send + 'static
where
    J: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api: Api<WatchedJob<J>> = Api::all(paced(client));
    let stream = watcher(api, config())
        .backoff(Patience::default())
        .modify(|job| job.managed_fields_mut().clear());
    reflector(writer, stream)
}

/// Watches the pods of all jobs into `cache`, and tells `changed` which job is concerned. Ends only when `changed` is closed.
pub async fn feed_pods(
    client: Client,
    cache: Arc<PodCache>,
    changed: mpsc::Sender<Key>,
    errors: WatchErrors,
) {
    feed::<Pod, _>(client, config(), &cache, changed, &errors, "pods").await;
}

/// Watches the services of all jobs into `cache`, as [`feed_pods`] does.
pub async fn feed_services(
    client: Client,
    cache: Arc<ServiceCache>,
    changed: mpsc::Sender<Key>,
    errors: WatchErrors,
) {
    let config = config().timeout(SERVICES_TIMEOUT_SECONDS);
    feed::<Service, _>(client, config, &cache, changed, &errors, "services").await;
}

/// Watches the nodes that have GPUs into `cache`.
pub async fn feed_nodes(client: Client, cache: Arc<NodeCache>, errors: WatchErrors) {
    let view = |node: &Node| Some(NodeView::new(node)).filter(|view| view.gpus > 0);
    let take = |event| cache.take(event, view);
    let api = Api::<Node>::all(paced(client));
    follow(api, config(), take, None, &errors, "nodes").await;
}

/// Watches the `AggregatorConfig`s that are used into `cache`, and tells `changed` which one is another than before. Ends only when `changed` is closed.
pub async fn feed_aggregator_configs(
    client: Client,
    cache: Arc<AggregatorCache>,
    changed: mpsc::Sender<Key>,
    errors: WatchErrors,
) {
    // Read as they are: one that cannot be decoded is to be told of, and must not stop the others.
    let api: Api<DynamicObject> =
        Api::all_with(paced(client), &ApiResource::erase::<AggregatorConfig>(&()));
    let view = |object: &DynamicObject| {
        let config = serde_json::to_value(object).ok()?;
        Some(AggregatorTemplate::of(&config))
    };
    let name = format!("metadata.name={}", names::AGGREGATOR_CONFIG);
    let take = |event| cache.take_config(event, view);
    let config = config().fields(&name);
    let resource = "aggregatorconfigs";
    follow(api, config, take, Some(changed), &errors, resource).await;
}

async fn feed<K, V>(
    client: Client,
    config: watcher::Config,
    cache: &ObjectCache<V>,
    changed: mpsc::Sender<Key>,
    errors: &WatchErrors,
    resource: &'static str,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    V: ViewOf<K> + Debug + 'static,
{
    let take = |event| take(cache, event);
    let config = config.labels(names::labels::SELECTOR);
    let api = Api::<Seen<K, V>>::all(paced(client));
    follow(api, config, take, Some(changed), errors, resource).await;
}

async fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    take: impl Fn(Event<K>) -> Vec<Key>,
    changed: Option<mpsc::Sender<Key>>,
    errors: &WatchErrors,
    resource: &'static str,
) where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(api, config).backoff(Patience::default());
    pin_mut!(events);
    loop {
        let concerned: Vec<Key> = match events.try_next().await {
            Ok(Some(event)) => take(event),
            Ok(None) => return,
            Err(error) => {
                errors.of(resource).inc();
                warn!(
                    resource,
                    error = &error as &dyn std::error::Error,
                    "Watch failed, trying again"
                );
                continue;
            }
        };
        let Some(changed) = &changed else { continue };
        for key in concerned {
            if changed.send(key).await.is_err() {
                return;
            }
        }
    }
}

/// Puts into the cache what a watch shows, and returns the jobs concerned.
fn take<K, V>(cache: &ObjectCache<V>, event: Event<Seen<K, V>>) -> Vec<Key>
where
    K: Resource<DynamicType = ()>,
    V: View,
{
    let concerned = match event {
        Event::Init => {
            cache.list_started();
            None
        }
        Event::InitApply(Seen { view, .. }) => {
            if let Some(view) = view {
                cache.list_brought(view);
            }
            None
        }
        Event::InitDone => return cache.list_complete().into_iter().collect(),
        Event::Apply(Seen {
            view: Some(view), ..
        }) => {
            let job = view.job();
            let left = cache.applied(view);
            return left.into_iter().chain([job]).collect();
        }
        Event::Apply(seen) => cache.unlabelled(&seen.uid().unwrap_or_default()),
        Event::Delete(seen) => {
            let uid = seen.uid().unwrap_or_default();
            let job = seen.view.as_ref().map(View::job);
            if let Some(last) = seen.view {
                cache.went(last);
            }
            cache.deleted(&uid).or(job)
        }
    };
    concerned.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use di_plan::PodView;
    use serde_json::{Value, json};

    use super::*;
    use crate::Objects;

    fn pod(labels: &Value) -> Seen<Pod, PodView> {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1", "labels": labels},
            "spec": {"nodeName": "n", "containers": []},
            "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn of(job: &str) -> Seen<Pod, PodView> {
        pod(&json!({"dijob-name": job}))
    }

    fn key(job: &str) -> Key {
        ("ns".to_owned(), job.to_owned())
    }

    /// How many pods each of two jobs has, and whose the address is.
    fn known(cache: &PodCache) -> (usize, usize, Option<String>) {
        let owner = cache.by_address("10.0.0.1".parse().unwrap());
        let count = |job| cache.read(&key(job), Objects::len);
        (count("j"), count("k"), owner.map(|pod| pod.job.clone()))
    }

    #[test]
    fn a_pod_whose_label_goes_is_gone_from_its_job() {
        let cache = PodCache::default();
        let bare = || pod(&json!({}));
        assert_eq!(take(&cache, Event::Apply(of("j"))), [key("j")]);
        assert_eq!(known(&cache), (1, 0, Some("j".to_owned())));
        assert_eq!(take(&cache, Event::Apply(bare())), [key("j")]);
        assert_eq!(known(&cache), (0, 0, None));
        assert!(cache.saw_go("u"));
        assert_eq!(take(&cache, Event::Apply(bare())), [], "nobody's before");

        take(&cache, Event::Apply(of("j")));
        assert_eq!(take(&cache, Event::Delete(bare())), [key("j")]);
        assert_eq!(known(&cache), (0, 0, None));
    }

    #[test]
    fn how_a_coordinator_ended_is_known_once_it_has_gone() {
        let ended = |role: &str, uid: &str, code: Option<i32>| {
            let state = code.map(|code| json!({"terminated": {"exitCode": code}}));
            let statuses = state.map(|state| json!([{"name": "di-container", "state": state}]));
            let pod = json!({
                "metadata": {"name": "p", "namespace": "ns", "uid": uid, "labels": {"dijob-name": "j", "replica-type": role}},
                "spec": {"containers": [], "restartPolicy": "Never"},
                "status": {"phase": "Running", "containerStatuses": statuses},
            });
            serde_json::from_value::<Seen<Pod, PodView>>(pod).unwrap()
        };
        let cache = PodCache::default();
        for (role, uid, code, known) in [
            ("coordinator", "a", Some(0), Some(0)),
            ("coordinator", "b", Some(1), Some(1)),
            ("coordinator", "c", None, None),
            ("collector", "d", Some(0), None),
        ] {
            take(&cache, Event::Delete(ended(role, uid, code)));
            let end = cache.last_of(uid).and_then(|pod| pod.end);
            assert_eq!(end.and_then(|end| end.exit_code), known, "{role} {uid}");
        }
        for i in 0..300 {
            take(
                &cache,
                Event::Delete(ended("coordinator", &i.to_string(), Some(0))),
            );
        }
        assert!(cache.last_of("a").is_none() && cache.last_of("299").is_some());
    }

    #[test]
    fn a_pod_whose_label_is_changed_is_gone_from_the_job_that_it_was_of() {
        let cache = PodCache::default();
        take(&cache, Event::Apply(of("j")));
        let moved = take(&cache, Event::Apply(of("k")));
        assert_eq!(moved, [key("j"), key("k")]);
        assert_eq!(known(&cache), (0, 1, Some("k".to_owned())));
        assert!(cache.saw_go("u"), "nobody waits for it");
        assert_eq!(take(&cache, Event::Apply(of("k"))), [key("k")]);
        // Changed once more by the very write that let it go.
        assert_eq!(take(&cache, Event::Delete(of("j"))), [key("k")]);
        assert_eq!(known(&cache), (0, 0, None));
    }
}
