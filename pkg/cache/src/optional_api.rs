//! Objects of other programs, whose API not every cluster serves.

use std::time::Duration;

use di_api::names::labels;
use futures::{StreamExt, pin_mut};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::{
    select,
    sync::{Notify, mpsc, watch},
    time::{sleep, timeout},
};
use tracing::warn;

use crate::{
    feed::{apply_event, watch_config},
    key::Key,
    objects::ObjectCache,
    projection::{Project, Projected},
    rate_limit::rate_limited,
    view::View,
    watch_backoff::WatchBackoff,
    watch_errors::WatchErrors,
};

/// Default time between two looks for an API that is not served, or must not be used.
pub const DISCOVERY_INTERVAL: Duration = Duration::from_secs(60);
/// Time before another try if the API server did not say whether it serves the API.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Objects by job, and whether the cluster serves their API.
#[derive(Debug)]
pub struct OptionalCache<T, V> {
    /// The objects. Complete while the API is [served](OptionalApi::Served).
    pub objects: ObjectCache<T>,
    api: watch::Sender<OptionalApi<V>>,
    /// Notified when a response says that the API is not served.
    missing: Notify,
}

/// Whether an API can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptionalApi<V> {
    /// Not known yet.
    #[default]
    Unknown,
    /// The cluster does not serve the API.
    NotServed,
    /// The permission to watch its objects is missing.
    Forbidden,
    /// The API is served in this version, and the objects are listed.
    Served(V),
}

impl<T, V> Default for OptionalCache<T, V> {
    fn default() -> Self {
        Self {
            objects: ObjectCache::default(),
            api: watch::Sender::new(OptionalApi::Unknown),
            missing: Notify::new(),
        }
    }
}

impl<T, V: Copy + PartialEq> OptionalCache<T, V> {
    /// Whether the API can be used.
    pub fn api(&self) -> OptionalApi<V> {
        *self.api.borrow()
    }

    /// A receiver that is notified when [`api`](Self::api) changes.
    pub fn subscribe_api(&self) -> watch::Receiver<OptionalApi<V>> {
        self.api.subscribe()
    }

    /// Reports a response that the API is not served. Discovery decides: an API server that has
    /// just started may be wrong. A watch may notice it only after minutes.
    pub fn report_missing(&self) {
        self.missing.notify_waiters();
    }

    /// Sets the API to served, for tests.
    #[doc(hidden)]
    pub fn serve(&self, version: V) {
        self.set_api(OptionalApi::Served(version));
    }

    fn set_api(&self, api: OptionalApi<V>) {
        self.api
            .send_if_modified(|known| std::mem::replace(known, api) != api);
    }
}

/// The kind of object that a cache is fed with.
pub(crate) struct OptionalKind<V> {
    /// The program that serves the API, for logs.
    pub program: &'static str,
    /// The group of the API.
    pub group: &'static str,
    /// The known versions, the preferred one first.
    pub versions: Vec<(&'static str, V)>,
    /// The kind.
    pub kind: &'static str,
    /// The resource in metrics and logs.
    pub resource: &'static str,
}

/// Feeds the objects of all jobs into `cache`, and sends the key of each changed job to `changed`.
///
/// Without the API or the permission it costs one or two requests per `discovery_interval`. Returns
/// only when `changed` is closed.
pub(crate) async fn feed_optional<T, V>(
    client: Client,
    kind: OptionalKind<V>,
    discovery_interval: Duration,
    cache: &OptionalCache<T, V>,
    changed: mpsc::Sender<Key>,
    errors: WatchErrors,
) where
    T: View + Project<DynamicObject> + std::fmt::Debug + 'static,
    V: Copy + PartialEq,
{
    let program = kind.program;
    while !changed.is_closed() {
        let found = timeout(DISCOVERY_TIMEOUT, find_version(&client, &kind)).await;
        let delay = match found {
            Ok(Ok(Some(version))) => {
                match watch_objects(&client, &kind, version, cache, &changed, &errors).await {
                    OptionalApi::Unknown => RETRY_INTERVAL,
                    end => {
                        cache.set_api(end);
                        discovery_interval
                    }
                }
            }
            Ok(Ok(None)) => {
                cache.set_api(OptionalApi::NotServed);
                discovery_interval
            }
            Ok(Err(error)) => {
                let error: &dyn std::error::Error = &error;
                warn!(
                    error,
                    program, "Cannot find out whether the API is served, retrying"
                );
                RETRY_INTERVAL
            }
            Err(_) => {
                warn!(
                    program,
                    "Cannot find out whether the API is served: no response, retrying"
                );
                RETRY_INTERVAL
            }
        };
        sleep(delay).await;
    }
}

/// The preferred served version of an API.
async fn find_version<V: Copy>(
    client: &Client,
    kind: &OptionalKind<V>,
) -> kube::Result<Option<(&'static str, V)>> {
    let groups = client.list_api_groups().await?.groups.into_iter();
    let served: Vec<String> = groups
        .filter(|group| group.name == kind.group)
        .flat_map(|group| group.versions)
        .map(|version| version.version)
        .collect();
    let is_served = |name: &str| served.iter().any(|served| served == name);
    let mut all = kind.versions.iter().copied();
    Ok(all.find(|(name, _)| is_served(name)))
}

/// Watches objects until their API is no longer served, or the permission is missing. Returns which
/// of the two; `Unknown` if discovery must decide.
async fn watch_objects<T, V>(
    client: &Client,
    kind: &OptionalKind<V>,
    (name, version): (&str, V),
    cache: &OptionalCache<T, V>,
    changed: &mpsc::Sender<Key>,
    errors: &WatchErrors,
) -> OptionalApi<V>
where
    T: View + Project<DynamicObject> + std::fmt::Debug + 'static,
    V: Copy + PartialEq,
{
    let resource = resource_of(kind.group, name, kind.kind);
    let api: Api<Projected<DynamicObject, T>> =
        Api::all_with(rate_limited(client.clone()), &resource);
    let events = watcher(api, watch_config().labels(labels::SELECTOR));
    let events = events.backoff(WatchBackoff::default());
    pin_mut!(events);
    loop {
        let event = select! {
            event = events.next() => event,
            () = cache.missing.notified() => return OptionalApi::Unknown,
        };
        let Some(event) = event else {
            return OptionalApi::Unknown;
        };
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                if let Some(end) = end_of_watch(&error) {
                    return end;
                }
                errors.for_resource(kind.resource).inc();
                let error: &dyn std::error::Error = &error;
                warn!(resource = kind.resource, error, "Watch failed, retrying");
                continue;
            }
        };
        let is_listed = matches!(event, Event::InitDone);
        let changed_jobs = apply_event(&cache.objects, event);
        if is_listed {
            cache.set_api(OptionalApi::Served(version));
        }
        for key in changed_jobs {
            if changed.send(key).await.is_err() {
                return OptionalApi::Unknown;
            }
        }
    }
}

/// The `ApiResource` of a kind.
pub(crate) fn resource_of(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn end_of_watch<V>(error: &watcher::Error) -> Option<OptionalApi<V>> {
    let (watcher::Error::InitialListFailed(source)
    | watcher::Error::WatchStartFailed(source)
    | watcher::Error::WatchFailed(source)) = error
    else {
        return None;
    };
    match source {
        // `is_not_found` needs a reason, which this response lacks if the definition was deleted.
        kube::Error::Api(status) if status.code == 404 => Some(OptionalApi::NotServed),
        kube::Error::Api(status) if status.is_forbidden() => Some(OptionalApi::Forbidden),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    };

    use di_fixtures::{ApiServerMock, Reply};
    use di_plan::KueueVersion;
    use serde_json::json;

    use super::*;
    use crate::{QueueApi, WorkloadCache, feed_workloads};

    const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";

    /// A server without Workloads that serves Kueue's API while `is_served`. Its watches hang.
    fn kueue_server(is_served: Arc<AtomicBool>) -> (ApiServerMock, Client) {
        let mut is_watch = true;
        ApiServerMock::new(move |request| {
            if request.path == "/apis" {
                let version = json!({"groupVersion": API_VERSION, "version": "v1beta2"});
                let group = json!({"name": "kueue.x-k8s.io", "versions": [version]});
                let groups = if is_served.load(Relaxed) {
                    json!([group])
                } else {
                    json!([])
                };
                return Reply::Object(200, json!({"groups": groups}));
            }
            // Each list is followed by a watch.
            is_watch = !is_watch;
            if is_watch {
                return Reply::Hang;
            }
            let list = json!({
                "apiVersion": API_VERSION, "kind": "WorkloadList",
                "metadata": {"resourceVersion": "1"}, "items": [],
            });
            Reply::Object(200, list)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn discovery_decides_about_api_reported_as_missing() {
        let is_served = Arc::new(AtomicBool::new(true));
        let (mock, client) = kueue_server(is_served.clone());
        let cache = Arc::new(WorkloadCache::default());
        let (changed, _keys) = mpsc::channel(1);
        let feed = tokio::spawn(feed_workloads(
            client,
            DISCOVERY_INTERVAL,
            cache.clone(),
            changed,
            WatchErrors::default(),
        ));
        // The clock is paused, so it advances only while the feed waits.
        let observe = async || {
            sleep(2 * RETRY_INTERVAL).await;
            let requests = mock.requests().into_iter();
            let discoveries = requests.filter(|request| request.path == "/apis");
            (cache.api(), discoveries.count())
        };
        let served = QueueApi::Served(KueueVersion::V1beta2);
        assert_eq!(observe().await, (served, 1));
        // The API server has just started.
        cache.report_missing();
        assert_eq!(observe().await, (served, 2));
        is_served.store(false, Relaxed);
        cache.report_missing();
        assert_eq!(observe().await, (QueueApi::NotServed, 3));
        feed.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn unserved_api_costs_one_request_a_minute() {
        let (mock, client) = kueue_server(Arc::default());
        let (changed, _keys) = mpsc::channel(1);
        let feed = tokio::spawn(feed_workloads(
            client,
            DISCOVERY_INTERVAL,
            Arc::default(),
            changed,
            WatchErrors::default(),
        ));
        let minute = Duration::from_secs(60);
        sleep(10 * minute + RETRY_INTERVAL).await;
        assert_eq!(mock.requests().len(), 11, "one at the start");
        feed.abort();
    }
}
