//! Jobs that an administrator deactivates, that a user suspends, or that their TTL deletes.

use di_api::{Phase, QueueState};
use di_apiserver_tests::{
    Endpoint, condition_reason, eventually, exit, queued_job, wait_for_objects,
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    base_workload, find_entry, plan_names, start_with_quota, wait_until_finished,
    wait_until_queued, waiting_reason,
};
use crate::suspend::set_suspended;

#[tokio::test]
async fn deactivated_job_waits_until_it_is_active_again() {
    let (space, kueue, _kubelet, manager) = start_with_quota(3).await;
    let job = space.create(&queued_job("job", 2)).await;
    let before = space.until_settled("job").await;
    let base = base_workload(&job);

    kueue.set_active(&base, false).await;
    let status = wait_until_queued(&space, "job", "QueueDeactivated").await;
    let (_, message) = waiting_reason(&status).unwrap();
    assert!(message.contains(&base), "{message}");
    kueue
        .until_workload(&base, "its quota is returned", |workload| {
            condition_reason(workload, "QuotaReserved").is_none()
        })
        .await;

    kueue.set_active(&base, true).await;
    let after = space.until_settled("job").await;
    assert_eq!(plan_names(&after), plan_names(&before));
    assert_eq!((after.restarts, after.reason), (0, None));
    manager.stop().await;
    kueue.check().await;
}

#[tokio::test]
async fn suspended_job_returns_quota_and_resumed_job_queues() {
    let (space, kueue, _kubelet, manager) = start_with_quota(4).await;
    let endpoint = Endpoint::start(&space, "endpoint").await;
    let first = space.create(&queued_job("first", 2)).await;
    let status = space.until_settled("first").await;
    let declared = status.plan.iter().map(|entry| entry.name.clone());
    let declared: Vec<_> = declared.collect();
    endpoint.until_listed("first", &declared).await;
    let added = endpoint.add("first", 1, None).await.pods();
    let [requested]: [String; 1] = added.try_into().unwrap();
    let before = space.until_settled("first").await;
    assert_eq!(before.plan.len(), 3);
    let base = base_workload(&first);
    let workloads = [base.clone(), format!("{base}-collector-2")];
    wait_for_objects("Workloads", &workloads, async || {
        kueue.workloads_of("first").await
    })
    .await;
    space.create(&queued_job("second", 3)).await;
    wait_until_queued(&space, "second", "QueueWaiting").await;

    set_suspended(&space, "first", true).await;
    let status = space.until_phase("first", Phase::Suspended).await;
    assert_eq!(status.queueing, None);
    let (reason, _) = waiting_reason(&status).unwrap();
    assert_eq!(reason, "Suspended");
    wait_for_objects("Workloads", &[], async || kueue.workloads_of("first").await).await;
    space.until_settled("second").await;

    set_suspended(&space, "first", false).await;
    let status = wait_until_queued(&space, "first", "QueueWaiting").await;
    assert_eq!(plan_names(&status), plan_names(&before));
    // The requested collector enters the queue once its job is admitted.
    let base = [base];
    wait_for_objects("Workloads", &base, async || {
        kueue.workloads_of("first").await
    })
    .await;

    exit(&space.pods(), "second-coordinator", 0).await;
    let after = space.until_settled("first").await;
    assert_eq!(plan_names(&after), plan_names(&before));
    assert_eq!(after.restarts, 0);
    let entry = find_entry(&after, &requested).unwrap();
    assert_eq!(entry.queue, Some(QueueState::Admitted));
    wait_for_objects("Workloads", &workloads, async || {
        kueue.workloads_of("first").await
    })
    .await;
    manager.stop().await;
    kueue.check().await;
}

/// The garbage collector, which does not run here, deletes the Workload with its only owner.
#[tokio::test]
async fn ttl_deletes_job_that_owns_its_workload() {
    let (space, kueue, _kubelet, manager) = start_with_quota(3).await;
    let endpoint = Endpoint::start(&space, "endpoint").await;
    let job = space.create(&queued_job("job", 1)).await;
    let declared = space.until_settled("job").await.plan.remove(0).name;
    endpoint.until_listed("job", &[declared]).await;
    endpoint.add("job", 1, None).await;
    space.until_settled("job").await;
    let base = base_workload(&job);
    let workloads = [base.clone(), format!("{base}-collector-1")];
    wait_for_objects("Workloads", &workloads, async || {
        kueue.workloads_of("job").await
    })
    .await;

    exit(&space.pods(), "job-coordinator", 0).await;
    wait_until_finished(&kueue, &base).await;
    wait_for_objects("Workloads", &workloads[..1], async || {
        kueue.workloads_of("job").await
    })
    .await;
    let patch = Patch::Merge(json!({"spec": {"ttlSecondsAfterFinished": 0}}));
    let params = PatchParams::default();
    space.jobs().patch("job", &params, &patch).await.unwrap();
    eventually("the TTL has deleted the job", async || {
        let left = space.jobs().get_opt("job").await.unwrap();
        left.map_or(Ok(()), |job| Err(format!("{:?}", job.status)))
    })
    .await;
    let workload = kueue.workloads().get(&base).await.unwrap();
    let owners = workload.owner_references().iter();
    let owners: Vec<_> = owners.map(|owner| owner.uid.as_str()).collect();
    assert_eq!(owners, [job.uid().unwrap()]);
    assert!(workload.finalizers().is_empty());
    manager.stop().await;
    kueue.check().await;
}
