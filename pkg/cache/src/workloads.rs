//! Workloads of Kueue, whose API not every cluster serves.

use std::{sync::Arc, time::Duration};

use di_api::names::{kueue, labels};
use di_plan::{KueueVersion, WorkloadView};
use futures::{StreamExt, pin_mut};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher::{self, Event, watcher},
};
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};
use tracing::warn;

use crate::{
    feed::{apply_event, watch_config},
    key::Key,
    objects::ObjectCache,
    projection::Projected,
    rate_limit::rate_limited,
    watch_backoff::WatchBackoff,
    watch_errors::WatchErrors,
};

/// Time between two looks for an API that is not served, or must not be used.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(60);
/// Time before another try if the API server did not say whether it serves the API.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Workloads by job, and whether the cluster serves their API.
#[derive(Debug)]
pub struct WorkloadCache {
    /// The Workloads. Complete while the API is [served](QueueApi::Served).
    pub objects: ObjectCache<WorkloadView>,
    api: watch::Sender<QueueApi>,
}

/// Whether Kueue can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueApi {
    /// Not known yet.
    #[default]
    Unknown,
    /// The cluster does not serve the API.
    NotServed,
    /// The permission to watch Workloads is missing.
    Forbidden,
    /// The API is served in this version, and the Workloads are listed.
    Served(KueueVersion),
}

impl Default for WorkloadCache {
    fn default() -> Self {
        Self {
            objects: ObjectCache::default(),
            api: watch::Sender::new(QueueApi::Unknown),
        }
    }
}

impl WorkloadCache {
    /// Whether Kueue can be used.
    pub fn api(&self) -> QueueApi {
        *self.api.borrow()
    }

    /// A receiver that is notified when [`api`](Self::api) changes.
    pub fn subscribe_api(&self) -> watch::Receiver<QueueApi> {
        self.api.subscribe()
    }

    /// Sets the API to served, for tests.
    #[doc(hidden)]
    pub fn serve(&self, version: KueueVersion) {
        self.set_api(QueueApi::Served(version));
    }

    fn set_api(&self, api: QueueApi) {
        self.api
            .send_if_modified(|known| std::mem::replace(known, api) != api);
    }
}

/// The `ApiResource` of a kind of Kueue.
pub fn kueue_resource(version: KueueVersion, kind: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk(kueue::GROUP, version.as_str(), kind);
    ApiResource::from_gvk(&kind)
}

/// Feeds the Workloads of all jobs into `cache`, and sends the key of each changed job to
/// `changed`.
///
/// Without the API or the permission it costs one or two requests a minute. Returns only when
/// `changed` is closed.
pub async fn feed_workloads(
    client: Client,
    cache: Arc<WorkloadCache>,
    changed: mpsc::Sender<Key>,
    errors: WatchErrors,
) {
    while !changed.is_closed() {
        let found = timeout(DISCOVERY_TIMEOUT, find_version(&client)).await;
        let delay = match found {
            Ok(Ok(Some(version))) => {
                let end = watch_workloads(&client, version, &cache, &changed, &errors).await;
                cache.set_api(end);
                DISCOVERY_INTERVAL
            }
            Ok(Ok(None)) => {
                cache.set_api(QueueApi::NotServed);
                DISCOVERY_INTERVAL
            }
            Ok(Err(error)) => {
                let error: &dyn std::error::Error = &error;
                warn!(error, "Cannot find out whether Kueue is served, retrying");
                RETRY_INTERVAL
            }
            Err(_) => {
                warn!("Cannot find out whether Kueue is served: no response, retrying");
                RETRY_INTERVAL
            }
        };
        sleep(delay).await;
    }
}

/// The preferred served version of Kueue's API.
async fn find_version(client: &Client) -> kube::Result<Option<KueueVersion>> {
    let groups = client.list_api_groups().await?.groups.into_iter();
    let served: Vec<String> = groups
        .filter(|group| group.name == kueue::GROUP)
        .flat_map(|group| group.versions)
        .map(|version| version.version)
        .collect();
    let mut all = KueueVersion::ALL.into_iter();
    Ok(all.find(|version| served.iter().any(|served| served == version.as_str())))
}

/// Watches Workloads until their API is no longer served, or the permission is missing. Returns
/// which of the two.
async fn watch_workloads(
    client: &Client,
    version: KueueVersion,
    cache: &WorkloadCache,
    changed: &mpsc::Sender<Key>,
    errors: &WatchErrors,
) -> QueueApi {
    let resource = kueue_resource(version, "Workload");
    let api: Api<Projected<DynamicObject, WorkloadView>> =
        Api::all_with(rate_limited(client.clone()), &resource);
    let events = watcher(api, watch_config().labels(labels::SELECTOR));
    let events = kube::runtime::WatchStreamExt::backoff(events, WatchBackoff::default());
    pin_mut!(events);
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                if let Some(end) = end_of_watch(&error) {
                    return end;
                }
                errors.for_resource("workloads").inc();
                let error: &dyn std::error::Error = &error;
                warn!(resource = "workloads", error, "Watch failed, retrying");
                continue;
            }
        };
        let is_listed = matches!(event, Event::InitDone);
        let changed_jobs = apply_event(&cache.objects, event);
        if is_listed {
            cache.set_api(QueueApi::Served(version));
        }
        for key in changed_jobs {
            if changed.send(key).await.is_err() {
                return QueueApi::Unknown;
            }
        }
    }
    QueueApi::Unknown
}

fn end_of_watch(error: &watcher::Error) -> Option<QueueApi> {
    let (watcher::Error::InitialListFailed(source)
    | watcher::Error::WatchStartFailed(source)
    | watcher::Error::WatchFailed(source)) = error
    else {
        return None;
    };
    match source {
        kube::Error::Api(status) if status.is_not_found() => Some(QueueApi::NotServed),
        kube::Error::Api(status) if status.is_forbidden() => Some(QueueApi::Forbidden),
        _ => None,
    }
}
