//! Groups of a gang scheduler.

use std::{sync::Arc, time::Duration};

use di_plan::{GroupKind, GroupView};
use kube::{Client, api::ApiResource};
use tokio::sync::mpsc;

use crate::{
    key::Key,
    optional_api::{OptionalApi, OptionalCache, OptionalKind, feed_optional, resource_of},
    watch_errors::WatchErrors,
};

/// Groups by job, and whether the cluster serves their API.
pub type GroupCache = OptionalCache<GroupView, ()>;

/// Whether the groups of the gang scheduler can be used.
pub type GroupApi = OptionalApi<()>;

/// The `ApiResource` of the groups of a gang scheduler.
pub fn group_resource(kind: GroupKind) -> ApiResource {
    resource_of(kind.group, kind.version, GroupKind::KIND)
}

/// Feeds the groups of all jobs into `cache`, and sends the key of each changed job to `changed`.
///
/// Without the API or the permission it costs one or two requests per `discovery_interval`. Returns
/// only when `changed` is closed.
pub async fn feed_groups(
    client: Client,
    kind: GroupKind,
    discovery_interval: Duration,
    cache: Arc<GroupCache>,
    changed: mpsc::Sender<Key>,
    errors: WatchErrors,
) {
    let kind = OptionalKind {
        program: "the gang scheduler",
        group: kind.group,
        versions: vec![(kind.version, ())],
        kind: GroupKind::KIND,
        resource: GroupKind::PLURAL,
    };
    feed_optional(client, kind, discovery_interval, &cache, changed, errors).await;
}
