//! The size of a group, and groups of other owners.

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{Gangs, Kubelet, Space, eventually, gang_job};
use di_plan::group_name;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

use super::{has_gang, min_member, until_problem};
use crate::{queueing::set_collectors, suspend::set_suspended};

/// Waits until the group of a job has this size.
async fn until_group_size(gangs: &Gangs, job: &str, size: i64) {
    eventually(&format!("the group has {size} pods"), async || {
        let groups = gangs.groups_of(job).await;
        let sizes: Vec<_> = groups.values().map(min_member).collect();
        match sizes[..] {
            [Some(found)] if found == size => Ok(()),
            _ => Err(format!("{sizes:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn group_follows_the_floor_and_does_not_grow_once_placed() {
    let space = Space::new().await;
    let gangs = Gangs::start(&space, 1).await;
    let _kubelet = Kubelet::running(&space);
    let manager = gangs.manager("manager");
    space.create(&gang_job(&space, "job", 2)).await;
    until_group_size(&gangs, "job", 3).await;
    set_collectors(&space, "job", 3).await;
    until_group_size(&gangs, "job", 4).await;
    set_collectors(&space, "job", 1).await;
    until_group_size(&gangs, "job", 2).await;

    gangs.set_slots(2).await;
    space.until_settled("job").await;
    set_collectors(&space, "job", 2).await;
    let is_partial = |status: &DIJobStatus| status.collectors_ready.as_deref() == Some("1/2");
    space.until("job", "a collector waits", is_partial).await;
    gangs.set_slots(3).await;
    let has_two = |status: &DIJobStatus| status.collectors_ready.as_deref() == Some("2/2");
    let status = space.until("job", "both collectors", has_two).await;
    assert!(has_gang(&status, 2, true), "{:?}", status.scheduling);
    until_group_size(&gangs, "job", 2).await;
    manager.stop().await;
}

#[tokio::test]
async fn group_of_another_owner_is_kept_and_job_waits() {
    let space = Space::new().await;
    let gangs = Gangs::start(&space, 3).await;
    let _kubelet = Kubelet::running(&space);
    let manager = gangs.manager("manager");
    let job = space.create(&gang_job(&space, "job", 1).suspended()).await;
    space.until_phase("job", Phase::Suspended).await;
    let groups = gangs.groups();
    let name = group_name(&job);
    let foreign = serde_json::from_value(json!({
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 7},
    }));
    let params = PostParams::default();
    let foreign = groups.create(&params, &foreign.unwrap()).await.unwrap();

    set_suspended(&space, "job", false).await;
    let message = until_problem(&space, "job", "GangNameTaken").await;
    assert!(message.contains(&name), "{message}");
    assert!(space.pods_of("job").await.is_empty());
    let seen = groups.get(&name).await.unwrap();
    assert_eq!(seen.metadata, foreign.metadata);

    groups
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    let status = space.until_settled("job").await;
    assert!(has_gang(&status, 2, true), "{:?}", status.scheduling);
    manager.stop().await;
}
