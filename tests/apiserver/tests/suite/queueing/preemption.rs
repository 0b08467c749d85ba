//! Preemption of whole jobs.

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{
    Kubelet, Space, condition_reason, eventually, exit, queued_job, queued_job_with_priority,
    wait_for_objects,
};
use kube::ResourceExt;

use super::{base_workload, plan_names, start_with_quota, wait_until_queued, waiting_reason};

async fn wait_until_all_terminate(space: &Space, job: &str) {
    eventually("all pods are terminating", async || {
        let pods = space.pods_of(job).await.into_values();
        let active = pods.filter(|pod| pod.metadata.deletion_timestamp.is_none());
        match active.count() {
            0 => Ok(()),
            n => Err(format!("{n} are active")),
        }
    })
    .await;
}

#[tokio::test]
async fn preempted_job_returns_quota_after_its_pods_are_gone() {
    let (space, kueue, kubelet, manager) = start_with_quota(3).await;
    let low = space.create(&queued_job("low", 2)).await;
    let before = space.until_settled("low").await;
    let pods = space.pods_of("low").await;
    let base = base_workload(&low);

    // Without a kubelet, the pods terminate until the test starts one.
    drop(kubelet);
    let class = kueue.create_priority_class("urgent", 1000).await;
    space
        .create(&queued_job_with_priority("urgent", 2, &class))
        .await;
    wait_until_all_terminate(&space, "low").await;
    let is_preempted = |status: &DIJobStatus| {
        waiting_reason(status).is_some_and(|(reason, _)| reason == "QueuePreempted")
    };
    let status = space
        .until("low", "its preemption is reported", is_preempted)
        .await;
    assert_ne!(status.phase, Some(Phase::Queued), "its pods use the quota");
    assert_eq!(status.queueing, None);
    let is_pending = |status: &DIJobStatus| {
        let (_, message) = waiting_reason(status).unwrap_or_default();
        message.contains("Pending the preemption of 1 workload(s)")
    };
    space
        .until("urgent", "it waits for the quota", is_pending)
        .await;
    let workload = kueue.workloads().get(&base).await.unwrap();
    assert!(condition_reason(&workload, "QuotaReserved").is_some());
    assert!(space.pods_of("urgent").await.is_empty());
    assert!(space.pods_of("low").await.keys().eq(pods.keys()));

    let _kubelet = Kubelet::running(&space);
    let status = wait_until_queued(&space, "low", "QueuePreempted").await;
    assert_eq!(plan_names(&status), plan_names(&before));
    wait_for_objects("services", &[], async || space.services_of("low").await).await;
    space.until_settled("urgent").await;
    let workload = kueue.workloads().get(&base).await.unwrap();
    assert_eq!(condition_reason(&workload, "QuotaReserved"), None);
    assert_eq!(condition_reason(&workload, "Admitted"), None);
    assert!(workload.data["status"]["admission"].is_null());
    assert_eq!(condition_reason(&workload, "Requeued"), Some("Preempted"));
    space.until_event("low", "QueuePreempted").await;

    exit(&space.pods(), "urgent-coordinator", 0).await;
    let after = space.until_settled("low").await;
    assert_eq!(plan_names(&after), plan_names(&before));
    assert_eq!((after.restarts, after.reason), (0, None));
    let again = space.pods_of("low").await;
    assert!(again.keys().eq(pods.keys()));
    let mut changed = again.iter();
    assert!(changed.all(|(name, pod)| pods[name].uid() != pod.uid()));
    manager.stop().await;
    kueue.check().await;
}
