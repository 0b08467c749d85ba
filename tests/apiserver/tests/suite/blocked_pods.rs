//! Pods that cannot be created or scheduled: the job reports it, and recovers.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use di_api::{
    AggregatorConfig, ConditionType, DIJobStatus, Phase, find_condition, names::AGGREGATOR_CONFIG,
};
use di_apiserver_tests::{
    Job, Kubelet, Manager, Proxy, ProxyAction, Space, common_nodes, create_aggregator_config, exit,
    fail_to_pull, forbid_pods, report_unschedulable, run, set_pod_quota,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

#[tokio::test]
async fn f3_job_over_quota_reports_and_continues_when_lifted() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let quota = forbid_pods(&space).await;
    let manager = space.manager("manager");
    space.create(&Job::new("blocked", 2)).await;
    space
        .until("blocked", "the quota is reported", |s| {
            s.reason.as_deref() == Some("QuotaExceeded")
        })
        .await;
    space.until_event("blocked", "QuotaExceeded").await;

    quota
        .delete("none", &DeleteParams::default())
        .await
        .unwrap();
    let status = space.until_settled("blocked").await;
    assert_eq!(status.reason, None);
    manager.stop().await;
}

#[tokio::test]
async fn job_partly_over_quota_gets_rest_when_quota_grows() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let quota = forbid_pods(&space).await;
    let manager = space.manager("manager");
    space.create(&Job::new("partly", 3)).await;
    let refused = |s: &DIJobStatus| s.reason.as_deref() == Some("QuotaExceeded");
    space
        .until("partly", "the quota rejects the coordinator", refused)
        .await;
    set_pod_quota(&quota, 2, 0).await;
    let ready = |s: &DIJobStatus| {
        let active: i32 = s.replica_status.values().map(|n| n.active).sum();
        active == 2 && refused(s)
    };
    space.until("partly", "there is room for two", ready).await;
    let before = space.pods_of("partly").await;
    assert!(before.contains_key("partly-coordinator"), "it comes first");
    set_pod_quota(&quota, 10, 2).await;
    let status = space.until_settled("partly").await;
    assert_eq!(status.reason, None);
    let after = space.pods_of("partly").await;
    assert_eq!(after.len(), 4);
    for (name, pod) in before {
        assert_eq!(after[&name].metadata.uid, pod.metadata.uid, "{name}");
    }
    // Repeated attempts count up one event.
    space.until_event("partly", "QuotaExceeded").await;
    let warnings = space.warnings_of("partly").await;
    assert_eq!(warnings, ["QuotaExceeded"]);
    manager.stop().await;
}

#[tokio::test]
async fn pod_changes_do_not_retry_creates_over_quota() {
    let space = Space::new().await;
    let space = space.without_random_faults(
        "a failed request requeues the job, and this test counts rejections",
    );
    let _kubelet = Kubelet::running(&space);
    let quota = forbid_pods(&space).await;
    set_pod_quota(&quota, 6, 0).await;
    let manager = space.manager("manager");
    space.create(&Job::new("half", 25)).await;
    let half = |s: &DIJobStatus| {
        let active: i32 = s.replica_status.values().map(|n| n.active).sum();
        active == 6 && s.reason.as_deref() == Some("QuotaExceeded")
    };
    space.until("half", "six run", half).await;
    let pods = space.pods_of("half").await;
    for change in 0..10 {
        for pod in pods.keys() {
            let change = json!({"metadata": {"annotations": {"change": change.to_string()}}});
            let change = Patch::Merge(change);
            let params = PatchParams::default();
            space.pods().patch(pod, &params, &change).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        }
    }
    let refused = async || {
        let writes = space.writes_of("manager").await.into_iter();
        let refused = writes.filter(|w| w.is_call("create", "pods") && w.code == 403);
        refused.count()
    };
    // Each attempt tries at most 16 creates; one attempt per pod change would make over a thousand.
    let refused = refused().await;
    assert!(refused <= 200, "{refused} were refused");

    set_pod_quota(&quota, 30, 6).await;
    let status = space.until_settled("half").await;
    assert_eq!(status.reason, None);
    manager.stop().await;
}

#[tokio::test]
async fn image_pull_failure_is_reported_until_fixed() {
    let space = Space::new().await;
    let _kubelet = Kubelet::reaping(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("pulling", 0)).await;
    space.until_phase("pulling", Phase::Created).await;
    fail_to_pull(&space.pods(), "pulling-coordinator").await;
    space
        .until("pulling", "the image is reported", |s| {
            s.reason.as_deref() == Some("ImagePullBackOff")
        })
        .await;
    run(&space.pods(), "pulling-coordinator").await;
    let status = space.until_settled("pulling").await;
    assert_eq!(status.reason, None);
    manager.stop().await;
}

#[tokio::test]
async fn unschedulable_pod_is_reported_after_worse_errors() {
    let space = Space::new().await;
    let _kubelet = Kubelet::reaping(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("waits", 1)).await;
    let made = |s: &DIJobStatus| {
        let all = s.plan.iter().all(|entry| entry.uid.is_some());
        s.phase == Some(Phase::Created) && s.plan.len() == 1 && all
    };
    let status = space.until("waits", "all is made", made).await;
    let (coordinator, collector) = ("waits-coordinator", status.plan[0].name.as_str());
    let wait_for_reason = async |reason: &str, message: &str| {
        let is_reported = |s: &DIJobStatus| {
            let ready = find_condition(&s.conditions, ConditionType::ReplicasReady);
            s.reason.as_deref() == Some(reason)
                && ready.is_some_and(|c| c.reason == reason && c.message == message)
        };
        space.until("waits", message, is_reported).await;
    };
    let no_room = format!("{coordinator}: 0/3 nodes are available");
    report_unschedulable(&space.pods(), coordinator).await;
    wait_for_reason("Unschedulable", &no_room).await;
    // A pull error needs a user, while room may appear at any time, so it has precedence.
    fail_to_pull(&space.pods(), collector).await;
    let no_image = format!("{collector}: no such image (and 1 more)");
    wait_for_reason("ImagePullBackOff", &no_image).await;
    run(&space.pods(), collector).await;
    wait_for_reason("Unschedulable", &no_room).await;
    run(&space.pods(), coordinator).await;
    let status = space.until_settled("waits").await;
    assert_eq!(status.reason, None);
    manager.stop().await;
}

#[tokio::test]
async fn invalid_aggregator_config_is_reported_until_fixed() {
    let space = Space::new().await;
    common_nodes(&space).await;
    create_aggregator_config(&space).await;
    let _kubelet = Kubelet::running(&space);
    let configs: Api<AggregatorConfig> = Api::namespaced(space.client.clone(), &space.namespace);
    let name_main = async |main: &str| {
        let containers = json!([{"name": main, "image": "none"}]);
        let template = json!({"spec": {"containers": containers}});
        let change = Patch::Merge(json!({"spec": {"aggregator": {"template": template}}}));
        let params = PatchParams::default();
        configs
            .patch(AGGREGATOR_CONFIG, &params, &change)
            .await
            .unwrap();
    };
    name_main("main").await;
    let manager = space.manager("manager");
    let gpus = json!({"limits": {"nvidia.com/gpu": "2"}});
    space
        .create(&Job::new("spoilt", 1).learners_with(1, &gpus))
        .await;
    let is_reported = |s: &DIJobStatus| {
        let ready = find_condition(&s.conditions, ConditionType::ReplicasReady);
        let why = "one container must be named di-container";
        s.reason.as_deref() == Some("InvalidAggregatorConfig")
            && s.collectors_ready.as_deref() == Some("1/1")
            && ready.is_some_and(|c| c.message.contains(why))
    };
    space
        .until("spoilt", "the fault is reported", is_reported)
        .await;
    space.until_event("spoilt", "InvalidAggregatorConfig").await;
    // Only the coordinator and the collector exist.
    assert_eq!(space.pods_of("spoilt").await.len(), 2);

    name_main("di-container").await;
    let status = space.until_settled("spoilt").await;
    let learners = status.learners_ready.as_deref();
    assert_eq!((learners, status.reason.as_deref()), (Some("1/1"), None));
    manager.stop().await;
}

#[tokio::test]
async fn events_are_emitted_after_lost_status_response() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let client = space.server.client_of_manager("manager", &space.namespace);
    let proxy = Proxy::start(client);
    let written = AtomicUsize::new(0);
    proxy.set_rule(move |request| {
        let of_status = request.write > 0 && request.target.contains("/status");
        if of_status && written.fetch_add(1, Relaxed).is_multiple_of(2) {
            ProxyAction::Lost
        } else {
            ProxyAction::Served
        }
    });
    let manager = Manager::start(proxy.client());
    space.create(&Job::new("job", 1)).await;
    space.until_settled("job").await;
    exit(&space.pods(), "job-coordinator", 0).await;
    for reason in ["CoordinatorRunning", "CoordinatorSucceeded"] {
        space.until_event("job", reason).await;
    }
    manager.stop().await;
}
