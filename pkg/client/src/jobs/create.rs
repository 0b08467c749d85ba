use serde_json::Value;

use crate::{Cluster, PreparedObject, Result, connection::resource::Resource};

/// Creates an object. With `dry_run` the server checks the request and stores nothing.
///
/// Like kubectl, drops the resourceVersion of an object that was exported from a cluster.
pub async fn create_object(
    cluster: &Cluster,
    prepared: &PreparedObject,
    dry_run: bool,
) -> Result<Value> {
    let mut object = prepared.object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    Resource::new(cluster, &prepared.api, prepared.namespace.as_deref())
        .create(&object, dry_run)
        .await
        .map_err(|error| error.with_action(format_args!("creating {:?}", prepared.origin)))
}
