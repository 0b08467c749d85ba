//! Groups of jobs that are suspended or have ended.

use di_api::Phase;
use di_apiserver_tests::{Gangs, Kubelet, Space, exit, gang_job};
use di_plan::group_name;
use kube::ResourceExt;

use super::{has_gang, until_no_group};
use crate::suspend::set_suspended;

#[tokio::test]
async fn stopped_job_has_no_group_and_resumed_job_a_new_one() {
    let space = Space::new().await;
    let gangs = Gangs::start(&space, 3).await;
    let _kubelet = Kubelet::running(&space);
    let manager = gangs.manager("manager");
    let job = space.create(&gang_job(&space, "job", 2)).await;
    let name = group_name(&job);
    space.until_settled("job").await;
    let before = gangs.groups().get(&name).await.unwrap();

    set_suspended(&space, "job", true).await;
    let status = space.until_phase("job", Phase::Suspended).await;
    assert_eq!(status.scheduling, None);
    until_no_group(&gangs, "job").await;
    set_suspended(&space, "job", false).await;
    let status = space.until_settled("job").await;
    assert!(has_gang(&status, 3, true), "{:?}", status.scheduling);
    let after = gangs.groups().get(&name).await.unwrap();
    assert_ne!(after.uid(), before.uid());

    exit(&space.pods(), "job-coordinator", 0).await;
    let status = space.until_phase("job", Phase::Succeeded).await;
    assert_eq!(status.scheduling, None);
    until_no_group(&gangs, "job").await;
    let warnings = space.warnings_of("job").await;
    assert!(warnings.is_empty(), "{warnings:?}");
    manager.stop().await;
}
