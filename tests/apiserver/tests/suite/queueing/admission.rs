//! Admission of whole jobs.

use di_api::{
    ConditionType, DIJobStatus, Phase, is_condition_true,
    names::kueue::{CLUSTER_QUEUE_LABEL, LOCAL_QUEUE_LABEL, POD_SET_LABEL},
};
use di_apiserver_tests::{
    Kubelet, Kueue, Space, condition_reason, exit, queued_job, wait_for_objects,
};
use di_queue_stand_in::flavor;
use k8s_openapi::api::core::v1::PodSpec;
use kube::ResourceExt;
use serde_json::{json, to_value};

use super::{base_workload, set_collectors, start_with_quota, wait_until_queued, waiting_reason};

#[tokio::test]
async fn second_job_waits_until_first_has_ended() {
    let (space, kueue, _kubelet, manager) = start_with_quota(3).await;
    let first = space.create(&queued_job("first", 2)).await;
    space.until_settled("first").await;

    space.create(&queued_job("second", 2)).await;
    let is_waiting = |status: &DIJobStatus| {
        let (reason, message) = waiting_reason(status).unwrap_or_default();
        status.phase == Some(Phase::Queued)
            && reason == "QueueWaiting"
            && message.starts_with("couldn't assign flavors to pod set coordinator: ")
    };
    let status = space
        .until("second", "it waits with Kueue's message", is_waiting)
        .await;
    assert_eq!(status.reason.as_deref(), Some("QueueWaiting"));
    assert_eq!((&status.queueing, &status.start_time), (&None, &None));
    assert_eq!(status.plan.len(), 2);
    assert!(space.pods_of("second").await.is_empty());
    assert!(space.services_of("second").await.is_empty());

    exit(&space.pods(), "first-coordinator", 0).await;
    space.until_phase("first", Phase::Succeeded).await;
    let status = space.until_settled("second").await;
    assert!(is_condition_true(
        &status.conditions,
        ConditionType::Admitted
    ));
    assert!(status.start_time.is_some());
    space.until_event("second", "QueueAdmitted").await;
    let finished = kueue.workloads().get(&base_workload(&first)).await.unwrap();
    assert_eq!(condition_reason(&finished, "Finished"), Some("Succeeded"));
    manager.stop().await;
    kueue.check().await;
}

#[tokio::test]
async fn queues_of_two_namespaces_share_one_quota() {
    let (space, other) = (Space::new().await, Space::new().await);
    let mut kueue = Kueue::start(&space, 2).await;
    kueue.add_local_queue(&other.namespace).await;
    let _kubelets = [&space, &other].map(Kubelet::running);
    let manager = space.manager("manager");
    let other_manager = other.manager("other");
    space.create(&queued_job("first", 1)).await;
    space.until_settled("first").await;
    other.create(&queued_job("second", 1)).await;
    wait_until_queued(&other, "second", "QueueWaiting").await;

    exit(&space.pods(), "first-coordinator", 0).await;
    other.until_settled("second").await;
    for manager in [manager, other_manager] {
        manager.stop().await;
    }
    kueue.check().await;
}

fn tolerates_gpu(pod: &PodSpec) -> bool {
    let mut tolerations = pod.tolerations.iter().flatten();
    tolerations.any(|toleration| toleration.key.as_deref() == Some("gpu"))
}

#[tokio::test]
async fn pods_get_flavors_and_spec_is_unchanged() {
    let space = Space::new().await;
    let names = ["cpu", "gpu"].map(|name| format!("{name}-{}", space.namespace));
    let [cpu, mut gpu] = [0, 1].map(|i| flavor(&names[i], &[("node-pool", ["cpu", "gpu"][i])]));
    gpu.data["spec"]["tolerations"] =
        json!([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]);
    let kueue = Kueue::start_with_flavors(&space, &[(cpu, 1), (gpu, 2)]).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let job = queued_job("job", 2).with(|spec| {
        spec["collector"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    });
    let job = space.create(&job).await;
    let status = space.until_settled("job").await;

    for (name, pod) in space.pods_of("job").await {
        let is_coordinator = name == "job-coordinator";
        let (pod_set, pool, selectors) = if is_coordinator {
            ("coordinator", "cpu", 1)
        } else {
            ("collector", "gpu", 2)
        };
        let spec = pod.spec.as_ref().unwrap();
        let selector = spec.node_selector.as_ref().unwrap();
        assert_eq!(selector["node-pool"], pool, "{name}");
        assert_eq!(selector.len(), selectors, "{name}");
        assert_eq!(tolerates_gpu(spec), !is_coordinator, "{name}");
        for (label, value) in [
            (POD_SET_LABEL, pod_set),
            (CLUSTER_QUEUE_LABEL, kueue.cluster_queue()),
            (LOCAL_QUEUE_LABEL, "team"),
        ] {
            assert_eq!(pod.labels()[label], value, "{name}");
        }
    }

    let base = base_workload(&job);
    let queueing = status.queueing.unwrap();
    assert_eq!(queueing.workload, base);
    assert_eq!(queueing.cluster_queue, kueue.cluster_queue());
    let placements = queueing.placements.iter();
    let placements: Vec<_> = placements
        .map(|placement| (placement.pod_set.as_str(), placement.flavors.as_slice()))
        .collect();
    let expected = [("coordinator", &names[..1]), ("collector", &names[1..])];
    assert_eq!(placements, expected);
    let after = space.jobs().get("job").await.unwrap();
    assert_eq!(to_value(&after.spec).unwrap(), to_value(&job.spec).unwrap());
    assert_eq!(after.metadata.generation, Some(1));

    let workload = kueue
        .until_workload(&base, "its pods are ready", |workload| {
            condition_reason(workload, "PodsReady") == Some("Started")
        })
        .await;
    let owners: Vec<_> = workload
        .owner_references()
        .iter()
        .map(|owner| (owner.uid.clone(), owner.controller))
        .collect();
    let uid = job.uid().unwrap();
    assert_eq!(workload.labels()["kueue.x-k8s.io/job-uid"], uid);
    assert_eq!(owners, [(uid, Some(true))]);
    assert!(workload.finalizers().is_empty());
    let spec = &workload.data["spec"];
    assert_eq!(spec["queueName"], "team");
    assert_eq!(spec["priority"], 0);
    let warnings = space.warnings_of("job").await;
    assert!(warnings.is_empty(), "{warnings:?}");
    manager.stop().await;
    kueue.check().await;
}

/// The quota is that of a Workload for the second collector alone.
#[tokio::test]
async fn increased_count_waits_alone_and_returns_its_quota() {
    let (space, mut kueue, _kubelet, manager) = start_with_quota(2).await;
    let job = space.create(&queued_job("job", 1)).await;
    space.until_settled("job").await;
    let base = base_workload(&job);

    set_collectors(&space, "job", 2).await;
    let is_pending = |status: &DIJobStatus| {
        status.phase == Some(Phase::Running)
            && status.reason.as_deref() == Some("QueueWaiting")
            && status.collectors_ready.as_deref() == Some("1/2")
    };
    space
        .until("job", "the second collector waits", is_pending)
        .await;
    let workloads = [base.clone(), format!("{base}-collector-1")];
    wait_for_objects("Workloads", &workloads, async || {
        kueue.workloads_of("job").await
    })
    .await;
    assert_eq!(space.pods_of("job").await.len(), 2);

    kueue.raise_quota(3).await;
    let status = space.until_settled("job").await;
    assert_eq!(status.collectors_ready.as_deref(), Some("2/2"));
    set_collectors(&space, "job", 1).await;
    wait_for_objects("Workloads", &[base], async || {
        kueue.workloads_of("job").await
    })
    .await;
    let is_smaller = |status: &DIJobStatus| status.collectors_ready.as_deref() == Some("1/1");
    space
        .until("job", "one collector is left", is_smaller)
        .await;
    manager.stop().await;
    kueue.check().await;
}
