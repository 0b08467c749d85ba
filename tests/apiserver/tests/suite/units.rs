//! Units: replicas of several pods. See docs/decisions/0040.

use di_api::{DIJobStatus, PlanEntry};
use di_apiserver_tests::{Endpoint, Job, Kubelet, Space, exit, wait_for_objects};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::json;

/// A job with one collector of three pods.
fn unit_job(restart: &str) -> Job {
    let job = Job::new("job", 1);
    job.with(|spec| spec["collector"]["unit"] = json!({"size": 3, "restart": restart}))
}

/// Names of the wanted pods of the unit with this index, the leader first.
fn unit_of(status: &DIJobStatus, index: i32) -> Vec<String> {
    let in_unit = |entry: &&PlanEntry| entry.is_wanted() && entry.index == index;
    let mut pods: Vec<_> = status.plan.iter().filter(in_unit).collect();
    pods.sort_by_key(|entry| entry.unit.as_ref().map(|place| place.index));
    pods.iter().map(|entry| entry.name.clone()).collect()
}

/// Waits until the first unit is complete and has other pods than `before` at these positions only.
async fn until_replaced(space: &Space, before: &[String], positions: &[usize]) -> Vec<String> {
    let is_replaced = |status: &DIJobStatus| {
        let unit = unit_of(status, 0);
        let has_changed = |i: usize| unit[i] != before[i];
        let ready = format!("{0}/{0}", status.collectors);
        unit.len() == before.len()
            && (0..unit.len()).all(|i| has_changed(i) == positions.contains(&i))
            && status.collectors_ready == Some(ready)
    };
    let status = space.until("job", "the unit is complete again", is_replaced);
    unit_of(&status.await, 0)
}

#[tokio::test]
async fn unit_is_listed_replaced_and_removed_as_one() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space.create(&unit_job("Unit")).await;
    let status = space.until_settled("job").await;
    assert_eq!((status.collectors, status.plan.len()), (1, 3));
    let first = unit_of(&status, 0);
    endpoint.until_listed("job", &first[..1]).await;
    let pods = space.pods_of("job").await;
    for (position, name) in first.iter().enumerate() {
        let labels = pods[name].labels();
        assert_eq!(labels["unit-name"], first[0]);
        assert_eq!(labels["unit-index"], position.to_string());
    }

    let added = endpoint.add("job", 1, None).await.pods();
    assert_eq!(added.len(), 1);
    let status = space.until_settled("job").await;
    let second = unit_of(&status, 1);
    assert_eq!((&second[..1], status.collectors), (&added[..], 2));
    let leaders = |unit: &[String]| vec![unit[0].clone(), second[0].clone()];
    endpoint.until_listed("job", &leaders(&first)).await;

    exit(&space.pods(), &first[2], 1).await;
    let next = until_replaced(&space, &first, &[0, 1, 2]).await;
    endpoint.until_listed("job", &leaders(&next)).await;
    let mut expected = [&next[..], &second].concat();
    expected.extend(["job-coordinator".to_owned(), first[2].clone()]);
    wait_for_objects("pods", &expected, async || space.pods_of("job").await).await;

    let reported = endpoint.report_failed("job", &next[1]).await.pods();
    let last = until_replaced(&space, &next, &[0, 1, 2]).await;
    assert_eq!(reported, last[..1]);
    endpoint.until_listed("job", &leaders(&last)).await;

    let removed = endpoint.remove("job", 2).await.pods();
    assert_eq!(removed.len(), 2);
    let left = ["job-coordinator".to_owned()];
    wait_for_objects("pods", &left, async || space.pods_of("job").await).await;
    wait_for_objects("services", &left, async || space.services_of("job").await).await;
    manager.stop().await;
}

#[tokio::test]
async fn single_pod_joins_unit_and_leader_replaces_it() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space.create(&unit_job("Pod")).await;
    let status = space.until_settled("job").await;
    let first = unit_of(&status, 0);
    exit(&space.pods(), &first[1], 1).await;
    let next = until_replaced(&space, &first, &[1]).await;
    let pods = space.pods_of("job").await;
    assert_eq!(pods[&next[1]].labels()["unit-name"], first[0]);
    assert!(pods.contains_key(&first[1]), "the failed pod is kept");
    endpoint.until_listed("job", &first[..1]).await;
    // The pod of a lost node is deleted.
    let params = DeleteParams::default();
    space.pods().delete(&next[2], &params).await.unwrap();
    let last = until_replaced(&space, &next, &[2]).await;
    space.pods().delete(&last[0], &params).await.unwrap();
    until_replaced(&space, &last, &[0, 1, 2]).await;
    manager.stop().await;
}
