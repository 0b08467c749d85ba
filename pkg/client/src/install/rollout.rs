use std::time::Duration;

use di_api::names;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{Api, api::ListParams};
use serde_json::Value;
use tokio::time::sleep;

use super::webhook_probe::{WebhookState, probe_webhooks};
use crate::{
    Cluster, Deadline, Error, Result,
    connection::resource::{Resource, resource_of},
    replicas::pod_status,
};

/// Labels of the orchestrator's pods.
const POD_SELECTOR: &str = "app.kubernetes.io/name=di-orchestrator";

/// Polls with growing pauses until `check` succeeds. The timeout error has the last observed state.
async fn poll_until(
    deadline: Deadline,
    condition: &str,
    mut check: impl AsyncFnMut() -> Result<Result<(), String>>,
) -> Result<()> {
    const MAX_PAUSE: Duration = Duration::from_secs(1);
    let mut pause = Duration::from_millis(50);
    loop {
        let Err(observed) = check().await? else {
            return Ok(());
        };
        if deadline.ends_within(pause) {
            return Err(Error::Timeout(format!("{condition}: {observed}")));
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Waits until the API server has established a CustomResourceDefinition.
///
/// # Errors
/// [`Error::Timeout`] at the deadline.
pub async fn wait_for_crd(cluster: &Cluster, crd: &Value, deadline: Deadline) -> Result<()> {
    let (api, _) = resource_of(crd);
    let name = crd["metadata"]["name"].as_str().unwrap_or_default();
    let condition = format!("CustomResourceDefinition {name} to be established");
    poll_until(deadline, &condition, async || {
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

/// Waits until the Deployment of the orchestrator is rolled out.
///
/// # Errors
/// [`Error::Timeout`] at the deadline, with the status of the pods.
pub async fn wait_for_rollout(cluster: &Cluster, deadline: Deadline) -> Result<()> {
    let deployments: Api<Deployment> =
        Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    let condition = format!("deployment {:?} to be rolled out", names::WEBHOOK_SERVICE);
    let rollout = poll_until(deadline, &condition, async || {
        let found = deployments.get(names::WEBHOOK_SERVICE).await;
        Ok(rollout_progress(
            &found.map_err(|error| cluster.convert_error(error))?,
        ))
    });
    match rollout.await {
        Err(Error::Timeout(message)) => {
            let pods = pod_problems(cluster).await.unwrap_or_default();
            Err(Error::Timeout(format!("{message}{pods}")))
        }
        result => result,
    }
}

/// The progress of the rollout, by the rules of `kubectl rollout status`.
fn rollout_progress(deployment: &Deployment) -> Result<(), String> {
    let status = deployment.status.clone().unwrap_or_default();
    if status.observed_generation < deployment.metadata.generation {
        return Err("waiting for the deployment spec update to be observed".to_owned());
    }
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let or_zero = |count: Option<i32>| count.unwrap_or(0);
    let (updated, all) = (or_zero(status.updated_replicas), or_zero(status.replicas));
    let available = or_zero(status.available_replicas);
    if updated < wanted {
        Err(format!(
            "{updated} out of {wanted} new replicas have been updated"
        ))
    } else if all > updated {
        Err(format!(
            "{} old replicas are pending termination",
            all - updated
        ))
    } else if available < updated {
        Err(format!(
            "{available} of {updated} updated replicas are available"
        ))
    } else {
        Ok(())
    }
}

/// The status of each pod of the orchestrator.
async fn pod_problems(cluster: &Cluster) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), names::SYSTEM_NAMESPACE);
    let pods = pods.list(&ListParams::default().labels(POD_SELECTOR)).await;
    let pods = pods.map_err(|error| cluster.convert_error(error))?;
    let problems = pods.iter().map(|pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        format!("; pod {name}: {}", pod_status::display_status(pod))
    });
    Ok(problems.collect())
}

/// Waits until the API server reaches the webhooks.
///
/// # Errors
/// [`Error::Timeout`] at the deadline, with the message of the API server.
pub async fn wait_for_webhooks(
    cluster: &Cluster,
    namespace: &str,
    deadline: Deadline,
) -> Result<()> {
    poll_until(deadline, "the webhooks to become reachable", async || {
        Ok(match probe_webhooks(cluster, namespace).await? {
            // Without permission to create jobs, trust the readiness of the pods.
            WebhookState::Reachable | WebhookState::Forbidden(_) => Ok(()),
            WebhookState::NotCalled => Err("the API server does not call the webhooks".to_owned()),
            WebhookState::Unreachable(message) => Err(message),
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rollout_needs_only_new_and_available_replicas() {
        for (status, expected) in [
            (
                json!({"observedGeneration": 1}),
                Some("spec update to be observed"),
            ),
            (
                json!({"observedGeneration": 2}),
                Some("0 out of 2 new replicas"),
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 2, "replicas": 3, "availableReplicas": 3}),
                Some("1 old replicas"),
            ),
            (
                json!({"observedGeneration": 2, "updatedReplicas": 2, "replicas": 2, "availableReplicas": 1}),
                Some("1 of 2 updated replicas are available"),
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
            match (rollout_progress(&deployment), expected) {
                (Ok(()), None) => {}
                (Err(message), Some(expected)) => assert!(message.contains(expected), "{message}"),
                (result, expected) => panic!("{result:?} instead of {expected:?}"),
            }
        }
    }
}
