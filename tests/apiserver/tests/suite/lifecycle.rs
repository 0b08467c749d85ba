//! The normal lifecycle of a job.

use di_api::{ConditionType, Phase, is_condition_true};
use di_apiserver_tests::{Job, Kubelet, Space, exit, run, wait_for_objects};
use kube::ResourceExt;

#[tokio::test]
async fn plan_is_persisted_before_pods_are_created() {
    let space = Space::new().await;
    let space = space.without_random_faults("each write is made once, and at the first try");
    let manager = space.manager("manager");
    space.create(&Job::new("planned", 3).learners(2)).await;
    space
        .until("planned", "everything is made", |status| {
            status.plan.len() == 5 && status.plan.iter().all(|entry| entry.uid.is_some())
        })
        .await;
    manager.stop().await;

    let writes = space.writes_of("manager").await;
    let planned = writes
        .iter()
        .find(|w| w.is_call("patch", "dijobs/status") && w.code == 200);
    let planned = planned.unwrap();
    let made: Vec<_> = writes
        .iter()
        .filter(|w| w.is_call("create", "pods"))
        .collect();
    assert_eq!(made.len(), 6);
    for pod in made {
        assert!(planned.answered < pod.received, "{planned:?} {pod:?}");
        assert_eq!(pod.code, 201, "{pod:?}");
    }
    // One event reports all creates.
    let events = writes.iter().filter(|w| w.is_call("create", "events"));
    assert_eq!(events.count(), 1, "{:?}", space.events_of("planned").await);
}

#[tokio::test]
async fn job_succeeds_with_its_coordinator() {
    let space = Space::new().await;
    let _kubelet = Kubelet::reaping(&space);
    let manager = space.manager("manager");
    let job = space.create(&Job::new("main", 2).learners(1)).await;

    let status = space.until_phase("main", Phase::Created).await;
    let coordinator = "main-coordinator".to_owned();
    let mut names: Vec<_> = status.plan.iter().map(|entry| entry.name.clone()).collect();
    assert_eq!(names.len(), 3);
    names.push(coordinator.clone());
    let pods = wait_for_objects("pods", &names, async || space.pods_of("main").await).await;
    let services =
        wait_for_objects("services", &names, async || space.services_of("main").await).await;
    for owners in pods
        .values()
        .map(ResourceExt::owner_references)
        .chain(services.values().map(ResourceExt::owner_references))
    {
        let owners: Vec<_> = owners
            .iter()
            .map(|o| (o.uid.clone(), o.controller))
            .collect();
        assert_eq!(owners, [(job.uid().unwrap(), Some(true))]);
    }
    let counts = |status: &di_api::DIJobStatus, role: &str| {
        status
            .replica_status
            .get(role)
            .map(|n| (n.pending, n.active, n.succeeded, n.failed))
    };
    let all_pending = |s: &di_api::DIJobStatus| {
        ["Coordinator", "Collector", "Learner"].map(|role| counts(s, role))
            == [Some((1, 0, 0, 0)), Some((2, 0, 0, 0)), Some((1, 0, 0, 0))]
    };
    space.until("main", "all are pending", all_pending).await;

    for name in &names {
        run(&space.pods(), name).await;
    }
    let status = space.until_settled("main").await;
    assert_eq!(counts(&status, "Collector"), Some((0, 2, 0, 0)));
    assert!(is_condition_true(
        &status.conditions,
        ConditionType::Created
    ));
    assert!(is_condition_true(
        &status.conditions,
        ConditionType::Running
    ));

    exit(&space.pods(), &coordinator, 0).await;
    let status = space.until_phase("main", Phase::Succeeded).await;
    assert!(is_condition_true(
        &status.conditions,
        ConditionType::Succeeded
    ));
    assert!(!is_condition_true(
        &status.conditions,
        ConditionType::Running
    ));
    assert!(status.start_time <= status.completion_time && status.completion_time.is_some());
    wait_for_objects("services", &[], async || space.services_of("main").await).await;
    wait_for_objects("pods", &[coordinator], async || space.pods_of("main").await).await;
    for reason in [
        "SuccessfulCreate",
        "CoordinatorRunning",
        "CoordinatorSucceeded",
        "SuccessfulDelete",
    ] {
        space.until_event("main", reason).await;
    }
    manager.stop().await;
}

#[tokio::test]
async fn failed_collector_is_replaced_and_phase_stays() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("repaired", 2)).await;
    let before = space.until_settled("repaired").await.plan;
    let lost = before[0].name.clone();
    exit(&space.pods(), &lost, 137).await;
    let replaced = |status: &di_api::DIJobStatus| {
        let next = status
            .plan
            .iter()
            .find(|e| e.replaces.as_deref() == Some(&lost));
        next.is_some_and(|e| e.index == before[0].index && e.uid.is_some())
            && status.collectors_ready.as_deref() == Some("2/2")
    };
    let status = space
        .until("repaired", "the collector is replaced", replaced)
        .await;
    assert_eq!(status.phase, Some(Phase::Running));
    // The failed pod is kept for its logs, and the other one is unchanged.
    let pods = space.pods_of("repaired").await;
    assert_eq!(pods.len(), 4, "{:?}", pods.keys());
    assert_eq!(pods[&before[1].name].uid(), before[1].uid);
    manager.stop().await;
}
