//! Jobs with a gang in a queue of Kueue.

use std::collections::BTreeSet;

use di_api::DIJob;
use di_apiserver_tests::{
    Gangs, Job, Kubelet, Kueue, Space, Write, exit, gang_job, in_queue, queued_job_with_priority,
};
use di_plan::group_name;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::json;

use super::{check_order, has_gang, min_member, until_no_group};
use crate::queueing::wait_until_queued;

/// A job with two collectors. The coordinator and the first collector are the floor.
fn queued_gang_job(space: &Space, name: &str) -> Job {
    let job = in_queue(gang_job(space, name, 2));
    job.spec(json!({"scheduling": {"gang": {"minCollectors": 1}}}))
}

/// Waits until all pods of a job run, checks its gang in the writes from this one on, and returns
/// its group.
async fn check_start(
    space: &Space,
    gangs: &Gangs,
    job: &DIJob,
    first_write: usize,
) -> DynamicObject {
    let name = job.name_any();
    let status = space.until_settled(&name).await;
    assert!(has_gang(&status, 2, true), "{:?}", status.scheduling);
    let group = gangs.groups().get(&group_name(job)).await.unwrap();
    assert_eq!(min_member(&group), Some(2));
    let first = status.plan.iter().find(|entry| entry.index == 0).unwrap();
    let floor = BTreeSet::from([first.name.clone(), format!("{name}-coordinator")]);
    check_order(&space.writes().await[first_write..], &floor);
    group
}

#[tokio::test]
async fn queued_job_starts_its_gang_after_each_admission() {
    let space = Space::new().await;
    let kueue = Kueue::start(&space, 3).await;
    let gangs = Gangs::start(&space, 3).await;
    let _kubelet = Kubelet::running(&space);
    let manager = gangs.manager("manager");
    space.create(&queued_gang_job(&space, "first")).await;
    space.until_settled("first").await;
    let second = space.create(&queued_gang_job(&space, "second")).await;
    wait_until_queued(&space, "second", "QueueWaiting").await;
    assert!(gangs.groups_of("second").await.is_empty());
    let writes = space.writes().await;
    let is_new_group = |write: &&Write| write.is_call("create", "podgroups") && write.code == 201;
    let groups = writes.iter().filter(is_new_group).count();
    assert_eq!(groups, 1, "that of the first job");

    exit(&space.pods(), "first-coordinator", 0).await;
    let before = check_start(&space, &gangs, &second, writes.len()).await;
    let class = kueue.create_priority_class("urgent", 1000).await;
    space
        .create(&queued_job_with_priority("urgent", 0, &class))
        .await;
    let status = wait_until_queued(&space, "second", "QueuePreempted").await;
    assert_eq!(status.scheduling, None);
    until_no_group(&gangs, "second").await;
    space.until_settled("urgent").await;

    let writes = space.writes().await.len();
    exit(&space.pods(), "urgent-coordinator", 0).await;
    let after = check_start(&space, &gangs, &second, writes).await;
    assert_ne!(after.uid(), before.uid());
    manager.stop().await;
    kueue.check().await;
}
