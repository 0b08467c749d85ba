use std::collections::BTreeMap;

use di_api::DIJob;
use serde_json::{Value, json};

use crate::{Namespace, di, job, pod};

/// Flags of a coordinator whose training does not end.
pub const FOREVER: [&str; 4] = ["--target-return", "501", "--max-iterations", "1000000"];

/// A job that trains, whose coordinator has these flags, and which declares no replica.
///
/// # Panics
/// Never: the JSON is fixed.
pub fn training(name: &str, coordinator: &[&str]) -> DIJob {
    let template = |args: &[&str]| {
        let mut template = pod(args);
        let mounts = json!([{"name": "storage", "mountPath": "/storage"}]);
        template["spec"]["containers"][0]["volumeMounts"] = mounts;
        template
    };
    let mut job = json!(job(name, &[]));
    job["spec"] = json!({
        "volumes": [{"name": "storage", "hostPath": {"path": "/var/local/di-storage"}}],
        "coordinator": {"template": template(&[&["coordinator"], coordinator].concat())},
        "collector": {"template": template(&["collector"])},
        "learner": {"template": template(&["learner"])},
    });
    serde_json::from_value(job).expect("a job")
}

/// By name how each replica of a training is, and its samples.
pub type Told = BTreeMap<String, (String, u64)>;

/// What the replicas tell; nothing while some cannot be asked.
///
/// # Panics
/// When the plugin prints something else.
pub async fn told(namespace: &Namespace, job: &str) -> Told {
    let said = di(namespace, &["status", job, "-o", "json"]).await;
    if said.code != Some(0) {
        return BTreeMap::new();
    }
    let list: Value = serde_json::from_str(&said.stdout).expect("JSON");
    let replicas = list["items"].as_array().expect("items").iter();
    let replicas = replicas.map(|replica| {
        let text = |field: &str| replica[field].as_str().expect("a text").to_owned();
        let samples = replica["samples"].as_u64().expect("a count");
        (text("name"), (text("status"), samples))
    });
    replicas.collect()
}

/// Samples of one of them.
pub fn samples(told: &Told, name: &str) -> u64 {
    told.get(name).map_or(0, |(_, samples)| *samples)
}
