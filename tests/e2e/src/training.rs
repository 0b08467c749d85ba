use std::collections::BTreeMap;

use di_api::DIJob;
use serde_json::{Value, json};

use crate::{Namespace, job, kubectl_di, pod_template};

/// Flags of a coordinator whose training never ends.
pub const FOREVER: [&str; 4] = ["--target-return", "501", "--max-iterations", "1000000"];

/// A training job with these coordinator flags and no declared replicas.
///
/// # Panics
/// Never: the JSON is fixed.
pub fn training(name: &str, coordinator: &[&str]) -> DIJob {
    let template = |args: &[&str]| {
        let mut template = pod_template(args);
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

/// Whether the log reports `CartPole-v1` as solved by Gymnasium's definition: a mean return of 475
/// over 100 episodes.
pub fn is_solved(log: &str) -> bool {
    let states = log.split("INFO solved: mean return ").nth(1);
    let mean = states.and_then(|states| states.split_once(" over 100 episodes"));
    let mean = mean.and_then(|(mean, _)| mean.parse::<f64>().ok());
    mean.is_some_and(|mean| mean >= 475.0)
}

/// State and samples of each replica of a training, by name.
pub type ReplicaStates = BTreeMap<String, (String, u64)>;

/// Returns the states of the replicas that have not ended; empty while some do not respond.
///
/// # Panics
/// If the plugin prints something else.
pub async fn replica_states(namespace: &Namespace, job: &str) -> ReplicaStates {
    let said = kubectl_di(namespace, &["status", job, "-o", "json"]).await;
    if said.code != Some(0) {
        return BTreeMap::new();
    }
    let list: Value = serde_json::from_str(&said.stdout).expect("JSON");
    let replicas = list["items"].as_array().expect("items").iter();
    let replicas = replicas.filter_map(|replica| {
        let text = |field: &str| replica[field].as_str().expect("a text").to_owned();
        let samples = replica["samples"].as_u64()?;
        Some((text("name"), (text("status"), samples)))
    });
    replicas.collect()
}

/// Samples of one replica.
pub fn samples(states: &ReplicaStates, name: &str) -> u64 {
    states.get(name).map_or(0, |(_, samples)| *samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solved_needs_mean_475_over_100_episodes() {
        let log = |end: &str| {
            format!("INFO iteration 3\n2026-01-01T00:00:00Z  INFO {end} after 7 iterations\n")
        };
        for (end, solved) in [
            ("solved: mean return 480.3 over 100 episodes", true),
            ("not solved: mean return 480.3 over 100 episodes", false),
            ("solved: mean return 474.9 over 100 episodes", false),
            ("solved: mean return 500.0 over 10 episodes", false),
            ("solved: not evaluated yet", false),
        ] {
            assert_eq!(is_solved(&log(end)), solved, "{end}");
        }
    }
}
