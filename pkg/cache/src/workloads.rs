//! Workloads of Kueue.

use std::{sync::Arc, time::Duration};

use di_api::names::kueue;
use di_plan::{KueueVersion, WorkloadView};
use kube::{Client, api::ApiResource};
use tokio::sync::mpsc;

use crate::{
    key::Key,
    optional_api::{OptionalApi, OptionalCache, OptionalKind, feed_optional, resource_of},
    watch_errors::WatchErrors,
};

/// Workloads by job, and whether the cluster serves their API.
pub type WorkloadCache = OptionalCache<WorkloadView, KueueVersion>;

/// Whether Kueue can be used.
pub type QueueApi = OptionalApi<KueueVersion>;

/// The `ApiResource` of a kind of Kueue.
pub fn kueue_resource(version: KueueVersion, kind: &str) -> ApiResource {
    resource_of(kueue::GROUP, version.as_str(), kind)
}

/// Feeds the Workloads of all jobs into `cache`, and sends the key of each changed job to
/// `changed`.
///
/// Without the API or the permission it costs one or two requests per `discovery_interval`. Returns
/// only when `changed` is closed.
pub async fn feed_workloads(
    client: Client,
    discovery_interval: Duration,
    cache: Arc<WorkloadCache>,
    changed: mpsc::Sender<Key>,
    errors: WatchErrors,
) {
    let kind = OptionalKind {
        program: "Kueue",
        group: kueue::GROUP,
        versions: KueueVersion::ALL
            .map(|version| (version.as_str(), version))
            .to_vec(),
        kind: "Workload",
        resource: "workloads",
    };
    feed_optional(client, kind, discovery_interval, &cache, changed, errors).await;
}
