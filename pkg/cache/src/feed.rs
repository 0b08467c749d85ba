use std::{fmt::Debug, sync::Arc};

use di_api::names;
use di_plan::{PodView, ServiceView};
use futures::{Stream, TryStreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        WatchStreamExt, reflector,
        reflector::store::Writer,
        watcher::{self, Event, watcher},
    },
};
use tokio::sync::mpsc;
use tracing::warn;

use crate::{Key, ObjectCache, PodCache, ServiceCache, View, WatchedJob};

/// A watch is renewed after this time, in seconds, which bounds how long a dead connection can go unnoticed.
pub const WATCH_TIMEOUT_SECONDS: u32 = 60;

/// How many objects one answer to the first list holds. They are held whole for a moment, with all that is not cached of them, and at 500,
/// the usual number, that moment takes tens of MiB, which stay with the process.
const PAGE: u32 = 100;

fn config() -> watcher::Config {
    watcher::Config::default()
        .timeout(WATCH_TIMEOUT_SECONDS)
        .page_size(PAGE)
}

/// Watches jobs into the store of `writer`; drive it, or nothing is watched.
pub fn job_stream(
    client: Client,
    writer: Writer<WatchedJob>,
) -> impl Stream<Item = watcher::Result<Event<WatchedJob>>> + Send + 'static {
    let api: Api<WatchedJob> = Api::all(client);
    let stream = watcher(api, config())
        .default_backoff()
        .modify(|job| job.managed_fields_mut().clear());
    reflector(writer, stream)
}

/// Watches the pods of all jobs into `cache`, and tells `changed` which job is concerned. Ends only when `changed` is closed.
pub async fn feed_pods(client: Client, cache: Arc<PodCache>, changed: mpsc::Sender<Key>) {
    feed(
        Api::<Pod>::all(client),
        &cache,
        PodView::new,
        changed,
        "pods",
    )
    .await;
}

/// Watches the services of all jobs into `cache`, as [`feed_pods`] does.
pub async fn feed_services(client: Client, cache: Arc<ServiceCache>, changed: mpsc::Sender<Key>) {
    let view = |service: &Service| ServiceView::new(service);
    feed(
        Api::<Service>::all(client),
        &cache,
        view,
        changed,
        "services",
    )
    .await;
}

async fn feed<K, V: View>(
    api: Api<K>,
    cache: &ObjectCache<V>,
    view: impl Fn(&K) -> Option<V>,
    changed: mpsc::Sender<Key>,
    kind: &'static str,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let events = watcher(api, config().labels(names::labels::SELECTOR)).default_backoff();
    pin_mut!(events);
    loop {
        let concerned: Vec<Key> = match events.try_next().await {
            Ok(Some(event)) => {
                cache.health().worked();
                take(cache, &view, event)
            }
            Ok(None) => return,
            Err(error) => {
                cache.health().failed();
                warn!(
                    kind,
                    error = &error as &dyn std::error::Error,
                    "Watch failed, trying again"
                );
                continue;
            }
        };
        for job in concerned {
            if changed.send(job).await.is_err() {
                return;
            }
        }
    }
}

fn take<K, V: View>(
    cache: &ObjectCache<V>,
    view: &impl Fn(&K) -> Option<V>,
    event: Event<K>,
) -> Vec<Key> {
    match event {
        Event::Init => cache.list_started(),
        Event::InitApply(object) => {
            if let Some(view) = view(&object) {
                cache.list_brought(view);
            }
        }
        Event::InitDone => return cache.list_complete().into_iter().collect(),
        Event::Apply(object) => {
            if let Some(view) = view(&object) {
                let job = view.job();
                cache.applied(view);
                return vec![job];
            }
        }
        Event::Delete(object) => {
            if let Some(view) = view(&object) {
                cache.deleted(&view);
                return vec![view.job()];
            }
        }
    }
    Vec::new()
}
