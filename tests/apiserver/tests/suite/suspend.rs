//! Suspended and resumed jobs.

use std::collections::BTreeSet;

use di_api::{ConditionType, DIJobStatus, Phase, find_condition, is_condition_true};
use di_apiserver_tests::{
    Job, Kubelet, Space, common_nodes, create_aggregator_config, eventually, wait_for_objects,
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

pub(crate) async fn set_suspended(space: &Space, job: &str, suspend: bool) {
    let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
    let params = PatchParams::default();
    space.jobs().patch(job, &params, &patch).await.unwrap();
}

/// Returns name, role and index of the desired plan entries.
fn comparable_plan(status: &DIJobStatus) -> BTreeSet<(String, String, i32)> {
    let plan = status.plan.iter().filter(|entry| entry.is_wanted());
    plan.map(|entry| (entry.name.clone(), entry.role.to_string(), entry.index))
        .collect()
}

#[tokio::test]
async fn suspended_job_frees_pods_and_resumes_with_same_names() {
    let space = Space::new().await;
    common_nodes(&space).await;
    create_aggregator_config(&space).await;
    let kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let gpus = json!({"limits": {"nvidia.com/gpu": "6"}});
    space
        .create(&Job::new("job", 2).learners_with(1, &gpus))
        .await;
    let before = space.until_settled("job").await;
    let pods = space.pods_of("job").await;
    let services = space.services_of("job").await;
    // The coordinator, collectors, an aggregator and two ddp learners.
    assert_eq!((pods.len(), services.len()), (6, 6));

    // While its pods terminate gracefully, the job is not suspended yet and its services stay.
    drop(kubelet);
    set_suspended(&space, "job", true).await;
    eventually("all pods are terminating", async || {
        let pods = space.pods_of("job").await.into_values();
        let stay = pods.filter(|pod| pod.metadata.deletion_timestamp.is_none());
        match stay.count() {
            0 => Ok(()),
            n => Err(format!("{n} stay")),
        }
    })
    .await;
    let is_reported = |s: &DIJobStatus| {
        let running = find_condition(&s.conditions, ConditionType::Running);
        running.is_some_and(|running| running.reason == "Suspended")
    };
    let status = space
        .until("job", "the suspension is reported", is_reported)
        .await;
    assert_eq!(status.phase, Some(Phase::Created));
    assert!(!is_condition_true(
        &status.conditions,
        ConditionType::Suspended
    ));
    assert_eq!(space.services_of("job").await.len(), 6);

    let _kubelet = Kubelet::running(&space);
    let status = space.until_phase("job", Phase::Suspended).await;
    assert!(space.pods_of("job").await.is_empty());
    wait_for_objects("services", &[], async || space.services_of("job").await).await;
    assert!(is_condition_true(
        &status.conditions,
        ConditionType::Suspended
    ));
    assert_eq!(comparable_plan(&status), comparable_plan(&before));
    let unmade = |s: &DIJobStatus| s.plan.iter().all(|entry| entry.uid.is_none());
    let status = space.until("job", "nothing is made", unmade).await;
    assert_eq!((status.start_time, status.collectors), (None, 2));

    set_suspended(&space, "job", false).await;
    let after = space.until_settled("job").await;
    assert_eq!(comparable_plan(&after), comparable_plan(&before));
    assert!(!is_condition_true(
        &after.conditions,
        ConditionType::Suspended
    ));
    assert_eq!((after.restarts, after.reason), (0, None));
    let recreated = space.pods_of("job").await;
    assert!(recreated.keys().eq(pods.keys()));
    assert!(
        recreated
            .iter()
            .all(|(name, pod)| pods[name].uid() != pod.uid())
    );
    // Services have a separate watch, so wait for them.
    let services: Vec<_> = services.into_keys().collect();
    wait_for_objects("services", &services, async || {
        space.services_of("job").await
    })
    .await;
    let warnings = space.warnings_of("job").await;
    assert!(warnings.is_empty(), "{warnings:?}");
    manager.stop().await;
}
