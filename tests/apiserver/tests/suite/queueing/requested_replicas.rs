//! Replicas that the coordinator requests: each has quota of its own.

use di_api::{DIJobStatus, Phase, PlanEntry, QueueState, Role};
use di_apiserver_tests::{
    Endpoint, Kubelet, Kueue, Space, common_nodes, condition_reason, create_aggregator_config,
    eventually, exit, queued_job, queued_job_with_priority, wait_for_objects,
};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::json;

use super::{base_workload, find_entry, start_with_quota};

fn queue_state(status: &DIJobStatus, name: &str) -> Option<QueueState> {
    find_entry(status, name)?.queue
}

/// Whether Kueue has decided that the Workload waits.
fn lacks_quota(workload: &DynamicObject) -> bool {
    let conditions = workload.data["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|found| found["type"] == "QuotaReserved" && found["status"] == "False")
}

/// Waits until a replica other than this one waits for quota, and returns status and name.
///
/// A coordinator must not take the next one for the same process.
async fn until_next_waits(space: &Space, job: &str, old: &str) -> (DIJobStatus, String) {
    let find_next = |status: &DIJobStatus| {
        let is_waiting = |entry: &&PlanEntry| {
            let is_waiting = entry.is_wanted() && entry.queue == Some(QueueState::Waiting);
            is_waiting && entry.role != Role::DdpLearner && entry.name != old
        };
        let next = status.plan.iter().find(is_waiting)?;
        Some(next.name.clone())
    };
    let waits = |status: &DIJobStatus| find_next(status).is_some();
    let status = space.until(job, "the next one waits", waits).await;
    let next = find_next(&status).unwrap();
    (status, next)
}

#[tokio::test]
async fn requested_collector_waits_and_is_preempted_alone() {
    let (space, mut kueue, _kubelet, manager) = start_with_quota(2).await;
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
    let (status, next) = until_next_waits(&space, "job", &requested).await;
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
    kueue.check().await;
}

#[tokio::test]
async fn requested_learner_group_waits_and_is_preempted_whole() {
    let space = Space::new().await;
    common_nodes(&space).await;
    create_aggregator_config(&space).await;
    let mut kueue = Kueue::start(&space, 4).await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    let spot = kueue.create_priority_class("spot", -1).await;
    let job = queued_job("job", 1).learners(0);
    let job = job.spec(json!({"queueing": {"elasticPriorityClass": spot}}));
    let job = space.create(&job).await;
    let status = space.until_settled("job").await;
    let declared = [status.plan[0].name.clone()];
    endpoint.until_listed("job", &declared).await;
    let coordinator = space.pods().get("job-coordinator").await.unwrap().uid();

    let answer = endpoint.add_learners("job", 1, 6).await;
    assert_eq!(answer.body["data"]["queued"], 1, "{answer:?}");
    let [group]: [String; 1] = answer.pods().try_into().unwrap();
    let own = format!("{}-aggregator-0", base_workload(&job));
    let workload = kueue
        .until_workload(&own, "Kueue lets it wait", lacks_quota)
        .await;
    let pod_sets = workload.data["spec"]["podSets"].as_array().unwrap().iter();
    let pod_sets: Vec<_> = pod_sets.map(|set| set["name"].as_str().unwrap()).collect();
    let expected = [
        "aggregator",
        "ddp-learner-gpu-2-of-6",
        "ddp-learner-gpu-4-of-6",
    ];
    assert_eq!(pod_sets, expected);
    // The quota has room for two of its three pods.
    assert_eq!(space.pods_of("job").await.len(), 2);
    assert_eq!(endpoint.list("job").await.pods(), declared);

    kueue.raise_quota(5).await;
    let all = [declared[0].clone(), group.clone()];
    endpoint.until_listed("job", &all).await;
    let status = space.until_settled("job").await;
    assert_eq!(status.learners_ready.as_deref(), Some("1/1"));
    assert_eq!(space.pods_of("job").await.len(), 5);
    let class = kueue.create_priority_class("urgent", 1000).await;
    space
        .create(&queued_job_with_priority("urgent", 0, &class))
        .await;
    space.until_settled("urgent").await;
    endpoint.until_listed("job", &declared).await;
    let left = ["job-coordinator".to_owned(), declared[0].clone()];
    wait_for_objects("pods", &left, async || space.pods_of("job").await).await;
    let (status, next) = until_next_waits(&space, "job", &group).await;
    assert_eq!((status.phase, status.restarts), (Some(Phase::Running), 0));

    exit(&space.pods(), "urgent-coordinator", 0).await;
    let all = [declared[0].clone(), next];
    endpoint.until_listed("job", &all).await;
    space.until_settled("job").await;
    let pods = space.pods_of("job").await;
    assert_eq!(pods.len(), 5);
    assert_eq!(pods["job-coordinator"].uid(), coordinator);
    manager.stop().await;
    kueue.check().await;
}

#[tokio::test]
async fn preempted_collector_has_its_grace_period() {
    let (space, kueue, kubelet, manager) = start_with_quota(3).await;
    let endpoint = Endpoint::start(&space, "endpoint").await;
    let spot = kueue.create_priority_class("spot", -1).await;
    let template = json!({"spec": {"terminationGracePeriodSeconds": 123}});
    let job = queued_job("job", 1).spec(json!({
        "collector": {"template": template},
        "queueing": {"elasticPriorityClass": spot},
    }));
    space.create(&job).await;
    let declared = space.until_settled("job").await.plan.remove(0).name;
    endpoint.until_listed("job", &[declared]).await;
    let added = endpoint.add("job", 1, None).await.pods();
    let [requested]: [String; 1] = added.try_into().unwrap();
    space.until_settled("job").await;

    // Without a kubelet, the pod terminates until the end of the test.
    drop(kubelet);
    let class = kueue.create_priority_class("urgent", 1000).await;
    space
        .create(&queued_job_with_priority("urgent", 0, &class))
        .await;
    eventually(&format!("{requested} is terminating"), async || {
        let pod = space.pods().get(&requested).await;
        let pod = pod.map_err(|error| error.to_string())?;
        match pod.metadata.deletion_grace_period_seconds {
            Some(123) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    manager.stop().await;
    kueue.check().await;
}

fn names_with_quota(status: &DIJobStatus) -> Vec<String> {
    let plan = status.plan.iter();
    let admitted = plan.filter(|entry| entry.queue == Some(QueueState::Admitted));
    admitted.map(|entry| entry.name.clone()).collect()
}

#[tokio::test]
async fn restarted_endpoint_knows_queued_replicas() {
    let (space, mut kueue, _kubelet, manager) = start_with_quota(2).await;
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space.create(&queued_job("job", 1)).await;
    let status = space.until_settled("job").await;
    let declared = status.plan[0].name.clone();
    endpoint
        .until_listed("job", std::slice::from_ref(&declared))
        .await;
    let answer = endpoint.add("job", 2, Some("key")).await;
    assert_eq!(answer.body["data"]["queued"], 2, "{answer:?}");
    let requested = answer.pods();
    kueue.raise_quota(3).await;
    let has_one = |status: &DIJobStatus| names_with_quota(status).len() == 1;
    let status = space.until("job", "one of two has quota", has_one).await;
    let mut listed = names_with_quota(&status);
    listed.push(declared.clone());
    listed.sort();
    endpoint.until_listed("job", &listed).await;

    drop(endpoint);
    let endpoint = Endpoint::start(&space, "endpoint").await;
    assert_eq!(endpoint.list("job").await.pods(), listed);
    let again = endpoint.add("job", 2, Some("key")).await;
    assert_eq!(again.body["data"]["queued"], 1, "{again:?}");
    assert_eq!(again.pods(), requested);
    let status = space.jobs().get("job").await.unwrap().status.unwrap();
    assert_eq!(status.plan.len(), 3);

    kueue.raise_quota(4).await;
    let all = [vec![declared], requested.clone()].concat();
    endpoint.until_listed("job", &all).await;
    let last = endpoint.add("job", 2, Some("key")).await;
    assert_eq!(last.body["data"]["queued"], 0, "{last:?}");
    assert_eq!(last.pods(), requested);
    space.until_settled("job").await;
    manager.stop().await;
    kueue.check().await;
}
