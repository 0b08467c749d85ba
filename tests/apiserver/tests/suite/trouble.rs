//! What stands in a job's way is told, and passes.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use di_api::{
    AggregatorConfig, ConditionType, DIJobStatus, Phase, condition, names::AGGREGATOR_CONFIG,
};
use di_apiserver_tests::{
    Fate, Job, Kubelet, Manager, Proxy, Space, common_nodes, configure, exit, fail_to_pull,
    find_no_room, forbid_pods, run, tell_quota,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

#[tokio::test]
async fn f3_a_job_that_the_quota_holds_up_says_so_and_goes_on_once_it_is_lifted() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let quota = forbid_pods(&space).await;
    let manager = space.manager("manager");
    space.create(&Job::new("held", 2)).await;
    space
        .until("held", "the quota is told of", |s| {
            s.reason.as_deref() == Some("QuotaExceeded")
        })
        .await;
    space.until_event("held", "QuotaExceeded").await;

    quota
        .delete("none", &DeleteParams::default())
        .await
        .unwrap();
    let status = space.until_settled("held").await;
    assert_eq!(status.reason, None);
    manager.stop().await;
}

#[tokio::test]
async fn of_a_job_that_the_quota_has_room_for_in_part_the_rest_follows_when_there_is_more() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let quota = forbid_pods(&space).await;
    let manager = space.manager("manager");
    space.create(&Job::new("partly", 3)).await;
    let refused = |s: &DIJobStatus| s.reason.as_deref() == Some("QuotaExceeded");
    space.until("partly", "it is refused", refused).await;
    tell_quota(&quota, 2, 0).await;
    let ready = |s: &DIJobStatus| {
        let active: i32 = s.replica_status.values().map(|n| n.active).sum();
        active == 2 && refused(s)
    };
    space.until("partly", "there is room for two", ready).await;
    let before = space.pods_of("partly").await;
    assert!(before.contains_key("partly-coordinator"), "it comes first");
    tell_quota(&quota, 10, 2).await;
    let status = space.until_settled("partly").await;
    assert_eq!(status.reason, None);
    let after = space.pods_of("partly").await;
    assert_eq!(after.len(), 4);
    for (name, pod) in before {
        assert_eq!(after[&name].metadata.uid, pod.metadata.uid, "{name}");
    }
    // One event, counted, however often it was tried.
    space.until_event("partly", "QuotaExceeded").await;
    let warnings = space.warnings_of("partly").await;
    assert_eq!(warnings, ["QuotaExceeded"]);
    manager.stop().await;
}

#[tokio::test]
async fn what_the_quota_refused_is_not_tried_again_with_every_change_of_a_pod() {
    let space = Space::new().await;
    let space = space.undisturbed("what fails brings a job back, and refusals are counted");
    let _kubelet = Kubelet::running(&space);
    let quota = forbid_pods(&space).await;
    tell_quota(&quota, 6, 0).await;
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
        let refused = writes.filter(|w| w.is("create", "pods") && w.code == 403);
        refused.count()
    };
    // A few tries of 16 at once at most; the changes alone would make over a thousand.
    let refused = refused().await;
    assert!(refused <= 200, "{refused} were refused");

    tell_quota(&quota, 30, 6).await;
    let status = space.until_settled("half").await;
    assert_eq!(status.reason, None);
    manager.stop().await;
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_told_until_it_can() {
    let space = Space::new().await;
    let _kubelet = Kubelet::reaping(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("pulling", 0)).await;
    space.until_phase("pulling", Phase::Created).await;
    fail_to_pull(&space.pods(), "pulling-coordinator").await;
    space
        .until("pulling", "the image is told of", |s| {
            s.reason.as_deref() == Some("ImagePullBackOff")
        })
        .await;
    run(&space.pods(), "pulling-coordinator").await;
    let status = space.until_settled("pulling").await;
    assert_eq!(status.reason, None);
    manager.stop().await;
}

#[tokio::test]
async fn that_a_pod_finds_no_room_is_told_until_it_does_and_after_what_is_worse() {
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
    let until_told = async |reason: &str, message: &str| {
        let told = |s: &DIJobStatus| {
            let ready = condition(&s.conditions, ConditionType::ReplicasReady);
            s.reason.as_deref() == Some(reason)
                && ready.is_some_and(|c| c.reason == reason && c.message == message)
        };
        space.until("waits", message, told).await;
    };
    let no_room = format!("{coordinator}: 0/3 nodes are available");
    find_no_room(&space.pods(), coordinator).await;
    until_told("Unschedulable", &no_room).await;
    // For that one somebody is needed, and there may be room any time.
    fail_to_pull(&space.pods(), collector).await;
    let no_image = format!("{collector}: no such image (and 1 more)");
    until_told("ImagePullBackOff", &no_image).await;
    run(&space.pods(), collector).await;
    until_told("Unschedulable", &no_room).await;
    run(&space.pods(), coordinator).await;
    let status = space.until_settled("waits").await;
    assert_eq!(status.reason, None);
    manager.stop().await;
}

#[tokio::test]
async fn a_configuration_that_makes_no_aggregator_is_told_of_until_it_is_mended() {
    let space = Space::new().await;
    common_nodes(&space).await;
    configure(&space).await;
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
    let told = |s: &DIJobStatus| {
        let ready = condition(&s.conditions, ConditionType::ReplicasReady);
        let why = "one container must be named di-container";
        s.reason.as_deref() == Some("InvalidAggregatorConfig")
            && s.collectors_ready.as_deref() == Some("1/1")
            && ready.is_some_and(|c| c.message.contains(why))
    };
    space.until("spoilt", "it says what is wrong", told).await;
    space.until_event("spoilt", "InvalidAggregatorConfig").await;
    // The coordinator and the collector.
    assert_eq!(space.pods_of("spoilt").await.len(), 2);

    name_main("di-container").await;
    let status = space.until_settled("spoilt").await;
    let learners = status.learners_ready.as_deref();
    assert_eq!((learners, status.reason.as_deref()), (Some("1/1"), None));
    manager.stop().await;
}

#[tokio::test]
async fn what_happened_is_told_even_where_the_answer_to_its_write_was_lost() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let client = space.server.client_of_manager("manager", &space.namespace);
    let proxy = Proxy::start(client);
    let written = AtomicUsize::new(0);
    proxy.rule(move |came| {
        let of_status = came.write > 0 && came.target.contains("/status");
        if of_status && written.fetch_add(1, Relaxed).is_multiple_of(2) {
            Fate::Lost
        } else {
            Fate::Served
        }
    });
    let manager = Manager::start(proxy.client());
    space.create(&Job::new("told", 1)).await;
    space.until_settled("told").await;
    exit(&space.pods(), "told-coordinator", 0).await;
    for reason in ["CoordinatorRunning", "CoordinatorSucceeded"] {
        space.until_event("told", reason).await;
    }
    manager.stop().await;
}
