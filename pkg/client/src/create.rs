use serde_json::Value;

use crate::{Cluster, Ready, Result, resource::Resource};

/// Creates an object as it is written; with `dry_run` the server does all but keep it. Where it was written from one that is in a cluster,
/// its version is left out, as kubectl does.
pub async fn create(cluster: &Cluster, ready: &Ready, dry_run: bool) -> Result<Value> {
    let mut object = ready.object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    Resource::new(cluster, &ready.api, ready.namespace.as_deref())
        .create(&object, dry_run)
        .await
        .map_err(|error| error.when(format_args!("creating {:?}", ready.origin)))
}
