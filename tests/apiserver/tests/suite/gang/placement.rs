//! The floor starts as a whole, and the overflow after it.

use di_api::{DIJobStatus, Phase, PlanEntry, names::gang::COSCHEDULING_GROUP};
use di_apiserver_tests::{Gangs, Kubelet, Space, exit, gang_job, slot_resource, wait_for_objects};
use di_gang_stand_in::SCHEDULER_NAME;
use di_plan::group_name;
use kube::ResourceExt;
use serde_json::json;

use super::{check_order, has_gang, min_member, until_problem};

#[tokio::test]
async fn overflow_is_created_once_the_floor_has_nodes() {
    let space = Space::new().await;
    let gangs = Gangs::start(&space, 1).await;
    let _kubelet = Kubelet::running(&space);
    let manager = gangs.manager("manager");
    let job = gang_job(&space, "job", 3);
    let job = job.spec(json!({"scheduling": {"gang": {"minCollectors": 1}}}));
    let job = space.create(&job).await;

    let missing = format!("gang: 0 of 2 placed, waiting for {}", slot_resource(&space));
    let is_short = |status: &DIJobStatus| {
        let conditions = status.conditions.iter();
        has_gang(status, 2, false) && conditions.map(|c| &c.message).any(|seen| *seen == missing)
    };
    let status = space.until("job", "it lacks slots", is_short).await;
    assert_eq!(status.reason.as_deref(), Some("GangWaiting"));
    let floor = space.pods_of("job").await;
    let first = status.plan.iter().find(|entry| entry.index == 0).unwrap();
    let floor: Vec<String> = floor.into_keys().collect();
    assert_eq!(floor, [first.name.clone(), "job-coordinator".to_owned()]);
    let groups = gangs.groups_of("job").await;
    let group = &groups[&group_name(&job)];
    assert_eq!((groups.len(), min_member(group)), (1, Some(2)));
    assert_eq!(group.owner_references()[0].uid, job.uid().unwrap());

    gangs.set_slots(3).await;
    let is_partial = |status: &DIJobStatus| {
        status.phase == Some(Phase::Running) && status.collectors_ready.as_deref() == Some("2/3")
    };
    let status = space.until("job", "one pod lacks a slot", is_partial).await;
    assert!(has_gang(&status, 2, true), "{:?}", status.scheduling);
    gangs.set_slots(4).await;
    space.until_settled("job").await;
    for (name, pod) in space.pods_of("job").await {
        assert_eq!(pod.labels()[COSCHEDULING_GROUP], group_name(&job), "{name}");
        let scheduler = pod.spec.unwrap().scheduler_name;
        assert_eq!(scheduler.as_deref(), Some(SCHEDULER_NAME), "{name}");
    }
    manager.stop().await;
    check_order(&space.writes().await, &floor.into_iter().collect());
}

#[tokio::test]
async fn second_job_starts_no_pod_until_first_has_ended() {
    let space = Space::new().await;
    let gangs = Gangs::start(&space, 4).await;
    let _kubelet = Kubelet::running(&space);
    let manager = gangs.manager("manager");
    space.create(&gang_job(&space, "first", 2)).await;
    space.until_settled("first").await;
    space.create(&gang_job(&space, "second", 2)).await;
    let message = until_problem(&space, "second", "GangWaiting").await;
    assert!(message.starts_with("gang: 0 of 3 placed"), "{message}");

    exit(&space.pods(), "first-coordinator", 0).await;
    let status = space.until_settled("second").await;
    assert!(has_gang(&status, 3, true), "{:?}", status.scheduling);
    manager.stop().await;
}

/// Coscheduling would count the failed pod as one of the group.
#[tokio::test]
async fn failed_pod_leaves_its_group_and_is_replaced() {
    let space = Space::new().await;
    let gangs = Gangs::start(&space, 3).await;
    let _kubelet = Kubelet::running(&space);
    let manager = gangs.manager("manager");
    space.create(&gang_job(&space, "job", 2)).await;
    let before = space.until_settled("job").await;
    let lost = before.plan[0].name.clone();

    exit(&space.pods(), &lost, 137).await;
    let is_replaced = |status: &DIJobStatus| {
        let mut plan = status.plan.iter();
        let is_planned = plan.any(|entry| entry.replaces.as_ref() == Some(&lost));
        is_planned && status.collectors_ready.as_deref() == Some("2/2")
    };
    let status = space.until("job", "a replacement", is_replaced).await;
    // The gang falls to the pods that have nodes, so that lost pods never wait for each other.
    assert!(has_gang(&status, 2, true), "{:?}", status.scheduling);
    let wanted = status.plan.into_iter().filter(PlanEntry::is_wanted);
    let mut members: Vec<String> = wanted.map(|entry| entry.name).collect();
    members.push("job-coordinator".to_owned());
    wait_for_objects("pods of the group", &members, async || {
        let mut pods = space.pods_of("job").await;
        pods.retain(|_, pod| pod.labels().contains_key(COSCHEDULING_GROUP));
        pods
    })
    .await;
    assert!(space.pods_of("job").await.contains_key(&lost), "its logs");
    manager.stop().await;
}
