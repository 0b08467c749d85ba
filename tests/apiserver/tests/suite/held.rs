//! Jobs that are held, and go on.

use std::collections::BTreeSet;

use di_api::{ConditionType, DIJobStatus, Phase, condition, is_true};
use di_apiserver_tests::{Job, Kubelet, Space, common_nodes, configure, eventually, exists};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

pub(crate) async fn hold(space: &Space, job: &str, held: bool) {
    let patch = Patch::Merge(json!({"spec": {"suspend": held}}));
    let params = PatchParams::default();
    space.jobs().patch(job, &params, &patch).await.unwrap();
}

/// The names that the plan holds, with what they are.
fn planned(status: &DIJobStatus) -> BTreeSet<(String, String, i32)> {
    let plan = status.plan.iter().filter(|entry| entry.is_wanted());
    plan.map(|entry| (entry.name.clone(), entry.role.to_string(), entry.index))
        .collect()
}

#[tokio::test]
async fn a_held_job_frees_what_it_has_once_its_pods_are_gone_and_goes_on_under_the_same_names() {
    let space = Space::new().await;
    common_nodes(&space).await;
    configure(&space).await;
    let kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let gpus = json!({"limits": {"nvidia.com/gpu": "6"}});
    space
        .create(&Job::new("held", 2).learners_with(1, &gpus))
        .await;
    let before = space.until_settled("held").await;
    let pods = space.pods_of("held").await;
    let services = space.services_of("held").await;
    // The coordinator, collectors, an aggregator, and two ddp learners.
    assert_eq!((pods.len(), services.len()), (6, 6));

    // As long as its pods save what they have, it is not held yet, and they are reached.
    drop(kubelet);
    hold(&space, "held", true).await;
    eventually("all pods are told to go", async || {
        let pods = space.pods_of("held").await.into_values();
        let stay = pods.filter(|pod| pod.metadata.deletion_timestamp.is_none());
        match stay.count() {
            0 => Ok(()),
            n => Err(format!("{n} stay")),
        }
    })
    .await;
    let told = |s: &DIJobStatus| {
        let running = condition(&s.conditions, ConditionType::Running);
        running.is_some_and(|running| running.reason == "Suspended")
    };
    let status = space.until("held", "it is told of", told).await;
    assert_eq!(status.phase, Some(Phase::Created));
    assert!(!is_true(&status.conditions, ConditionType::Suspended));
    assert_eq!(space.services_of("held").await.len(), 6);

    let _kubelet = Kubelet::running(&space);
    let status = space.until_phase("held", Phase::Suspended).await;
    assert!(space.pods_of("held").await.is_empty());
    exists("services", &[], async || space.services_of("held").await).await;
    assert!(is_true(&status.conditions, ConditionType::Suspended));
    assert_eq!(planned(&status), planned(&before));
    let unmade = |s: &DIJobStatus| s.plan.iter().all(|entry| entry.uid.is_none());
    let status = space.until("held", "nothing is made", unmade).await;
    assert_eq!((status.start_time, status.collectors), (None, 2));

    hold(&space, "held", false).await;
    let after = space.until_settled("held").await;
    assert_eq!(planned(&after), planned(&before));
    assert!(!is_true(&after.conditions, ConditionType::Suspended));
    assert_eq!((after.restarts, after.reason), (0, None));
    let anew = space.pods_of("held").await;
    assert!(anew.keys().eq(pods.keys()));
    assert!(anew.iter().all(|(name, pod)| pods[name].uid() != pod.uid()));
    // Their watch is another than that of pods.
    let services: Vec<_> = services.into_keys().collect();
    exists("services", &services, async || {
        space.services_of("held").await
    })
    .await;
    let warnings = space.warnings_of("held").await;
    assert!(warnings.is_empty(), "{warnings:?}");
    manager.stop().await;
}
