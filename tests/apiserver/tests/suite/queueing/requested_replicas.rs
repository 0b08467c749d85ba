//! Replicas that the coordinator requests: each has quota of its own.

use di_api::{DIJobStatus, Phase, QueueState};
use di_apiserver_tests::{
    Endpoint, Kubelet, Kueue, Space, condition_reason, exit, queued_job, queued_job_with_priority,
    wait_for_objects,
};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::json;

use super::{base_workload, find_entry};

fn queue_state(status: &DIJobStatus, name: &str) -> Option<QueueState> {
    find_entry(status, name)?.queue
}

/// Whether Kueue has decided that the Workload waits.
fn lacks_quota(workload: &DynamicObject) -> bool {
    let conditions = workload.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|found| found["type"] == "QuotaReserved" && found["status"] == "False")
}

#[tokio::test]
async fn requested_collector_waits_and_is_preempted_alone() {
    let space = Space::new().await;
    let mut kueue = Kueue::start(&space, 2).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    let spot = kueue.create_priority_class("spot", -1).await;
    let job = queued_job("job", 1).spec(json!({"queueing": {"elasticPriorityClass": spot}}));
    let job = space.create(&job).await;
    let status = space.until_settled("job").await;
    let declared = [status.plan[0].name.clone()];
    endpoint.until_listed("job", &declared).await;
    let coordinator = space.pods().get("job-coordinator").await.unwrap().uid();

    let answer = endpoint.add("job", 1, None).await;
    assert_eq!(answer.body["data"]["queued"], 1, "{answer:?}");
    let [requested]: [String; 1] = answer.pods().try_into().unwrap();
    let own = format!("{}-collector-1", base_workload(&job));
    let workload = kueue
        .until_workload(&own, "Kueue lets it wait", lacks_quota)
        .await;
    let index = &workload.annotations()["kueue.x-k8s.io/component-workload-index"];
    assert_eq!(index, "1");
    assert_eq!(workload.data["spec"]["priority"], -1);
    let waits = |status: &DIJobStatus| queue_state(status, &requested) == Some(QueueState::Waiting);
    let status = space.until("job", "the collector waits", waits).await;
    assert_eq!(status.phase, Some(Phase::Running));
    assert_eq!(space.pods_of("job").await.len(), 2);
    assert_eq!(endpoint.list("job").await.pods(), declared);

    kueue.raise_quota(3).await;
    let all = [declared[0].clone(), requested.clone()];
    endpoint.until_listed("job", &all).await;
    let status = space.until_settled("job").await;
    let admitted = Some(QueueState::Admitted);
    assert_eq!(queue_state(&status, &requested), admitted);
    // It has a lower priority than its job, so it goes first.
    let class = kueue.create_priority_class("urgent", 1000).await;
    space
        .create(&queued_job_with_priority("urgent", 0, &class))
        .await;
    space.until_settled("urgent").await;
    endpoint.until_listed("job", &declared).await;
    // A coordinator must not take the next one for the same process.
    let next = |status: &DIJobStatus| {
        let mut plan = status.plan.iter().filter(|entry| entry.is_wanted());
        let next = plan.find(|entry| entry.queue == Some(QueueState::Waiting))?;
        Some(next.name.clone()).filter(|name| *name != requested)
    };
    let waits = |status: &DIJobStatus| next(status).is_some();
    let status = space.until("job", "the next one waits", waits).await;
    let next = next(&status).unwrap();
    assert_eq!((status.phase, status.restarts), (Some(Phase::Running), 0));
    let left = ["job-coordinator".to_owned(), declared[0].clone()];
    wait_for_objects("pods", &left, async || space.pods_of("job").await).await;
    let workload = kueue.workloads().get(&own).await.unwrap();
    assert_eq!(condition_reason(&workload, "QuotaReserved"), None);

    exit(&space.pods(), "urgent-coordinator", 0).await;
    let all = [declared[0].clone(), next.clone()];
    endpoint.until_listed("job", &all).await;
    let status = space.until_settled("job").await;
    assert_eq!(queue_state(&status, &next), admitted);
    assert_eq!(find_entry(&status, &next).unwrap().attempt, 0);
    let pods = space.pods_of("job").await;
    assert_eq!(pods.len(), 3);
    assert_eq!(pods["job-coordinator"].uid(), coordinator);
    manager.stop().await;
    kueue.check();
}
