use serde_json::Value;

use crate::{Cluster, Ready, Result, resource::Resource};

/// Creates an object exactly as it is written; with `dry_run` the server does all but keep it.
pub async fn create(cluster: &Cluster, ready: &Ready, dry_run: bool) -> Result<Value> {
    Resource::new(cluster, &ready.api, ready.namespace.as_deref())
        .create(&ready.object, dry_run)
        .await
        .map_err(|error| error.when(format_args!("creating {:?}", ready.origin)))
}
