//! Jobs with more kinds of pods than a Workload may have pod sets.

use di_apiserver_tests::queued_job;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{start_with_quota, wait_until_queued};
use crate::gang::until_problem;

/// One collector of each kind.
fn collector_groups(kinds: usize) -> Value {
    let groups = (1..=kinds).map(|gpus| {
        json!({
            "name": format!("gpu-{gpus}"),
            "replicas": 1,
            "resources": {"gpus": gpus.to_string()},
        })
    });
    groups.collect()
}

#[tokio::test]
async fn job_with_too_many_pod_sets_waits_until_it_has_fewer() {
    let (space, kueue, _kubelet, manager) = start_with_quota(8).await;
    // The coordinator is one more kind.
    let job = queued_job("job", 0).spec(json!({"collector": {"groups": collector_groups(8)}}));
    space.create(&job).await;
    let message = until_problem(&space, "job", "QueueTooManyShapes").await;
    assert!(message.contains("spec.podSets"), "{message}");
    assert!(message.contains("at most 8 items"), "{message}");
    space.until_event("job", "QueueTooManyShapes").await;
    wait_until_queued(&space, "job", "QueueTooManyShapes").await;
    assert!(kueue.workloads_of("job").await.is_empty());

    let patch = Patch::Merge(json!({"spec": {"collector": {"groups": collector_groups(7)}}}));
    let params = PatchParams::default();
    space.jobs().patch("job", &params, &patch).await.unwrap();
    let status = space.until_settled("job").await;
    assert_eq!(status.collectors_ready.as_deref(), Some("7/7"));
    assert_eq!(status.reason, None);
    manager.stop().await;
    kueue.check().await;
}
