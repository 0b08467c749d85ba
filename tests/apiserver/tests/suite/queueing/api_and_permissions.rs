//! Clusters without Kueue's API, with an older version of it, and without the permissions for it.

use std::collections::BTreeMap;

use di_api::{Phase, names::kueue::QUEUE_LABEL};
use di_apiserver_tests::{
    Kubelet, Kueue, Manager, Proxy, Space, condition_reason, exit, grant_kueue_permissions,
    install_kueue, queued_job, queued_job_with_priority, uninstall_kueue, with_short_discovery,
};
use di_controller::Settings;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    base_workload, space_on, start_server, until_replaced, wait_until_finished, wait_until_queued,
    waiting_reason,
};
use crate::suspend::set_suspended;

/// The oldest version of Kueue's API that managers use.
const OLD_VERSION: &str = "v1beta1";

fn settings() -> Settings {
    with_short_discovery(Settings::default())
}

/// Removes Kueue while `early` runs, and after the steps in docs/operations.md for `late`.
async fn remove_kueue(space: &Space, other_space: &Space) {
    set_suspended(other_space, "late", true).await;
    other_space.until_phase("late", Phase::Suspended).await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {(QUEUE_LABEL): null}}}));
    let params = PatchParams::default();
    let jobs = other_space.jobs();
    jobs.patch("late", &params, &patch).await.unwrap();
    uninstall_kueue(space.server).await;
    // The API server deletes the Workloads before their definition.
    wait_until_queued(space, "early", "QueueNotServed").await;
    set_suspended(other_space, "late", false).await;
    other_space.until_settled("late").await;
}

/// One manager starts without the API, and another one with the API and without the permissions.
#[tokio::test]
async fn jobs_start_once_kueue_is_installed_and_allowed() {
    let server = start_server().await;
    let space = space_on(server).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager_with("manager", settings());
    space.create(&queued_job("early", 1)).await;
    let status = wait_until_queued(&space, "early", "QueueNotServed").await;
    let (_, message) = waiting_reason(&status).unwrap();
    assert!(message.contains("queue team"), "{message}");
    assert!(message.contains("install Kueue"), "{message}");

    install_kueue(server, OLD_VERSION).await;
    let kueue = Kueue::start_on_own_server(&space, OLD_VERSION, 2).await;
    let other_space = space_on(server).await;
    let other_kueue = Kueue::start_on_own_server(&other_space, OLD_VERSION, 2).await;
    let _other_kubelet = Kubelet::running(&other_space);
    let class = other_kueue.create_priority_class("high", 10).await;
    let other_manager = other_space.manager_with("other", settings());
    let late = queued_job_with_priority("late", 1, &class);
    let late = other_space.create(&late).await;
    let status = wait_until_queued(&other_space, "late", "QueueForbidden").await;
    let (_, message) = waiting_reason(&status).unwrap();
    let advice = "run: kubectl di install --kueue, or with Helm set kueue.enabled=true";
    assert!(message.ends_with(advice), "{message}");
    assert!(other_kueue.workloads_of("late").await.is_empty());

    grant_kueue_permissions(server, OLD_VERSION).await;
    space.until_settled("early").await;
    other_space.until_settled("late").await;
    let base = base_workload(&late);
    let workload = other_kueue.workloads().get(&base).await.unwrap();
    let spec = &workload.data["spec"];
    assert_eq!(
        spec["priorityClassSource"],
        "kueue.x-k8s.io/workloadpriorityclass"
    );
    assert_eq!(spec["priorityClassName"], class);
    assert_eq!(spec["priority"], 10);
    assert!(spec["priorityClassRef"].is_null(), "a field of v1beta2");
    remove_kueue(&space, &other_space).await;
    for manager in [manager, other_manager] {
        manager.stop().await;
    }
    for kueue in [kueue, other_kueue] {
        kueue.check().await;
    }
}

/// UIDs of the pods of a job, by name.
async fn pod_uids(space: &Space, job: &str) -> BTreeMap<String, Option<String>> {
    let pods = space.pods_of(job).await.into_iter();
    pods.map(|(name, pod)| (name, pod.uid())).collect()
}

#[tokio::test]
async fn running_job_continues_while_permissions_are_revoked() {
    let space = Space::new().await;
    let kueue = Kueue::start(&space, 3).await;
    let _kubelet = Kubelet::running(&space);
    let proxy = Proxy::start(space.server.client_of_manager("manager", &space.namespace));
    let manager = Manager::start_with(proxy.client(), settings());
    let job = space.create(&queued_job("job", 1)).await;
    let lost = space.until_settled("job").await.plan.remove(0).name;
    let base = base_workload(&job);
    // The last write to its Workload for now.
    kueue
        .until_workload(&base, "its pods are ready", |workload| {
            condition_reason(workload, "PodsReady") == Some("Started")
        })
        .await;
    let before = pod_uids(&space, "job").await;

    proxy.forbid("workloads");
    space.create(&queued_job("next", 0)).await;
    wait_until_queued(&space, "next", "QueueForbidden").await;
    exit(&space.pods(), &lost, 137).await;
    let status = until_replaced(&space, "job", &lost).await;
    assert_eq!((status.phase, status.restarts), (Some(Phase::Running), 0));
    assert_eq!(status.queueing.unwrap().workload, base);
    assert_eq!(status.reason, None);
    let pods = pod_uids(&space, "job").await;
    assert_eq!(pods.len(), 3, "{pods:?}");
    assert!(before.iter().all(|pod| pods.get(pod.0) == Some(pod.1)));

    proxy.serve_all();
    space.until_settled("next").await;
    assert_eq!(pod_uids(&space, "job").await, pods);
    exit(&space.pods(), "job-coordinator", 0).await;
    wait_until_finished(&kueue, &base).await;
    manager.stop().await;
    kueue.check().await;
}
