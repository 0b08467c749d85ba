//! Jobs that an administrator deactivates, or that a user suspends.

use di_api::{Phase, QueueState};
use di_apiserver_tests::{
    Endpoint, Kubelet, Kueue, Space, condition_reason, exit, queued_job, wait_for_objects,
};

use super::{base_workload, find_entry, plan_names, wait_until_queued, waiting_reason};
use crate::suspend::set_suspended;

#[tokio::test]
async fn deactivated_job_waits_until_it_is_active_again() {
    let space = Space::new().await;
    let kueue = Kueue::start(&space, 3).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
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
    kueue.check();
}

#[tokio::test]
async fn suspended_job_returns_quota_and_resumed_job_queues() {
    let space = Space::new().await;
    let kueue = Kueue::start(&space, 4).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
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
    kueue.check();
}
