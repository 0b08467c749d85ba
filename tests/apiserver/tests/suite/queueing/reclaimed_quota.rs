//! Quota that a running job gives back.

use std::collections::BTreeMap;

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{exit, queued_job};
use serde_json::json;

use super::{base_workload, find_entry, set_collectors, start_with_quota, wait_until_queued};

#[tokio::test]
async fn removed_and_done_collectors_let_other_jobs_start() {
    let (space, kueue, _kubelet, manager) = start_with_quota(3).await;
    let first = space.create(&queued_job("first", 2)).await;
    space.until_settled("first").await;
    space.create(&queued_job("second", 0)).await;
    wait_until_queued(&space, "second", "QueueWaiting").await;
    set_collectors(&space, "first", 1).await;
    space.until_settled("second").await;

    space.create(&queued_job("third", 0)).await;
    wait_until_queued(&space, "third", "QueueWaiting").await;
    let status = space.until_settled("first").await;
    assert_eq!(status.plan.len(), 1);
    let last = status.plan[0].name.clone();
    exit(&space.pods(), &last, 0).await;
    space.until_settled("third").await;
    let is_done = |status: &DIJobStatus| status.collectors_ready.as_deref() == Some("0/1 (1 done)");
    let status = space.until("first", "its collector is done", is_done).await;
    assert!(find_entry(&status, &last).unwrap().done);
    assert_eq!((status.phase, status.restarts), (Some(Phase::Running), 0));
    let reclaimed = status.queueing.unwrap().reclaimed;
    assert_eq!(reclaimed, BTreeMap::from([("collector".to_owned(), 2)]));
    let base = base_workload(&first);
    let workload = kueue.workloads().get(&base).await.unwrap();
    let reclaimable = &workload.data["status"]["reclaimablePods"];
    assert_eq!(*reclaimable, json!([{"name": "collector", "count": 2}]));
    manager.stop().await;
    kueue.check().await;
}
