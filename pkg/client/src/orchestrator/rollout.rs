use std::time::Duration;

use di_api::names;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{Api, api::ListParams};
use serde_json::Value;
use tokio::time::sleep;

use super::{Probe, place, probe};
use crate::{Cluster, Deadline, Error, Result, pod_status, resource::Resource};

/// Labels of the orchestrator's pods.
const PODS: &str = "app.kubernetes.io/name=di-orchestrator";

/// Looks again and again, ever more seldom, until it is done or the time is over; then what was seen last is told.
async fn until(
    deadline: Deadline,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Result<(), String>>,
) -> Result<()> {
    const SLOWEST: Duration = Duration::from_secs(1);
    let mut pause = Duration::from_millis(50);
    loop {
        let Err(seen) = look().await? else {
            return Ok(());
        };
        if deadline.comes_within(pause) {
            return Err(Error::Timeout(format!("{what}: {seen}")));
        }
        sleep(pause).await;
        pause = (pause * 2).min(SLOWEST);
    }
}

/// Waits until the server serves the kind that this definition makes known.
///
/// # Errors
/// [`Error::Timeout`] when that does not happen before the deadline.
pub async fn await_definition(
    cluster: &Cluster,
    definition: &Value,
    deadline: Deadline,
) -> Result<()> {
    let (api, _) = place(definition);
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("definition {name} to be established");
    until(deadline, &what, async || {
        let found = Resource::new(cluster, &api, None).get(name).await?;
        let conditions = found["status"]["conditions"].as_array();
        let established = conditions
            .into_iter()
            .flatten()
            .any(|one| one["type"] == "Established" && one["status"] == "True");
        Ok(established
            .then_some(())
            .ok_or_else(|| found["status"]["conditions"].to_string()))
    })
    .await
}

/// Waits until the orchestrator's pods are those that are wanted, and ready.
///
/// # Errors
/// [`Error::Timeout`], which tells what its pods lack.
pub async fn await_rollout(cluster: &Cluster, deadline: Deadline) -> Result<()> {
    let deployments: Api<Deployment> =
        Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    let what = format!("deployment {:?} to be rolled out", names::WEBHOOK_SERVICE);
    let waited = until(deadline, &what, async || {
        let found = deployments.get(names::WEBHOOK_SERVICE).await;
        Ok(rolled_out(&found.map_err(|error| cluster.error(error))?))
    });
    match waited.await {
        Err(Error::Timeout(what)) => {
            let pods = troubles(cluster).await.unwrap_or_default();
            Err(Error::Timeout(format!("{what}{pods}")))
        }
        waited => waited,
    }
}

/// As `kubectl rollout status` tells.
fn rolled_out(deployment: &Deployment) -> Result<(), String> {
    let status = deployment.status.clone().unwrap_or_default();
    if status.observed_generation < deployment.metadata.generation {
        return Err("the deployment controller has not seen it yet".to_owned());
    }
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let of = |many: Option<i32>| many.unwrap_or(0);
    let (updated, all) = (of(status.updated_replicas), of(status.replicas));
    let available = of(status.available_replicas);
    if updated < wanted {
        Err(format!("{updated} of {wanted} new replicas are there"))
    } else if all > updated {
        Err(format!("{} old replicas are still there", all - updated))
    } else if available < updated {
        Err(format!("{available} of {updated} replicas are available"))
    } else {
        Ok(())
    }
}

/// What the orchestrator's pods lack, one after the other.
async fn troubles(cluster: &Cluster) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    let pods = pods.list(&ListParams::default().labels(PODS)).await;
    let pods = pods.map_err(|error| cluster.error(error))?;
    let told = pods.iter().map(|pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        format!("; pod {name}: {}", pod_status::of(pod))
    });
    Ok(told.collect())
}

/// Waits until the API server reaches the webhooks.
///
/// # Errors
/// [`Error::Timeout`] with what the API server says instead.
pub async fn await_answers(cluster: &Cluster, namespace: &str, deadline: Deadline) -> Result<()> {
    until(deadline, "the webhooks to answer", async || {
        Ok(match probe(cluster, namespace).await? {
            // Whether they answer cannot be seen; that they are ready was.
            Probe::Answers | Probe::Forbidden(_) => Ok(()),
            Probe::NotAsked => Err("the API server does not ask them".to_owned()),
            Probe::Unreachable(why) => Err(why),
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_is_over_when_only_new_replicas_are_there_and_available() {
        for (status, seen) in [
            (
                json!({"observedGeneration": 1}),
                Some("has not seen it yet"),
            ),
            (
                json!({"observedGeneration": 2}),
                Some("0 of 2 new replicas"),
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 2, "replicas": 3, "availableReplicas": 3}),
                Some("1 old replicas"),
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 2, "replicas": 2, "availableReplicas": 1}),
                Some("1 of 2 replicas are available"),
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 2, "replicas": 2, "availableReplicas": 2}),
                None,
            ),
        ] {
            let deployment = serde_json::from_value(json!({
                "metadata": {"generation": 2},
                "spec": {"replicas": 2, "selector": {}, "template": {}},
                "status": status,
            }))
            .unwrap();
            match (rolled_out(&deployment), seen) {
                (Ok(()), None) => {}
                (Err(said), Some(seen)) => assert!(said.contains(seen), "{said}"),
                (said, seen) => panic!("{said:?} instead of {seen:?}"),
            }
        }
    }
}
