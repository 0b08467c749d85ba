//! Several clients that change the replicas of one job at the same time.

use std::collections::BTreeSet;

use di_apiserver_tests::{Endpoint, Job, Kubelet, Space, eventually, wait_for_objects};
use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use serde_json::json;

fn unique_names(answers: &[Vec<String>]) -> BTreeSet<String> {
    let all: BTreeSet<_> = answers.iter().flatten().cloned().collect();
    let count: usize = answers.iter().map(Vec::len).sum();
    assert_eq!(all.len(), count, "a name was answered twice: {answers:?}");
    all
}

/// Two processes share no lock.
async fn two_endpoints(space: &Space) -> [Endpoint; 2] {
    [
        Endpoint::start(space, "one").await,
        Endpoint::start(space, "two").await,
    ]
}

/// Sends eight removals of five replicas each to both endpoints; returns the removed names.
async fn remove_concurrently(endpoints: &[Endpoint; 2]) -> Vec<Vec<String>> {
    // A removal that timed out is sent again with its key.
    let requests = (0..8).map(async |i| {
        let key = format!("request-{i}");
        eventually("the replicas are removed", async || {
            let answer = endpoints[i % 2].remove_with_key("job", 5, Some(&key)).await;
            match answer.status {
                200 => Ok(answer.pods()),
                503 => Err(format!("{answer:?}")),
                _ => panic!("{answer:?}"),
            }
        })
        .await
    });
    let answers: Vec<_> = join_all(requests).await;
    assert!(answers.iter().all(|gone| gone.len() == 5), "{answers:?}");
    answers
}

#[tokio::test]
async fn f18_concurrent_removals_report_exactly_deleted_pods() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoints = two_endpoints(&space).await;
    space.create(&Job::new("job", 5)).await;
    space.until_settled("job").await;
    let added = endpoints[0].add("job", 40, None).await.pods();
    assert_eq!(added.len(), 40);
    let declared: Vec<_> = space
        .until_settled("job")
        .await
        .plan
        .into_iter()
        .map(|e| e.name)
        .filter(|name| !added.contains(name))
        .collect();
    assert_eq!(declared.len(), 5);

    let answers = remove_concurrently(&endpoints).await;
    assert!(
        unique_names(&answers).iter().eq(&added),
        "all and only those that were requested"
    );
    let left = [declared, vec!["job-coordinator".to_owned()]].concat();
    wait_for_objects("pods", &left, async || space.pods_of("job").await).await;
    wait_for_objects("services", &left, async || space.services_of("job").await).await;
    let job = space.jobs().get("job").await.unwrap();
    assert_eq!(job.spec.collector.unwrap().replicas, 5);
    manager.stop().await;
}

#[tokio::test]
async fn concurrent_removals_delete_declared_replicas_once() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoints = two_endpoints(&space).await;
    space.create(&Job::new("job", 45)).await;
    let plan = space.until_settled("job").await.plan;
    let mut left: Vec<_> = plan.into_iter().map(|entry| entry.name).collect();
    let gone = unique_names(&remove_concurrently(&endpoints).await);
    left.retain(|name| !gone.contains(name));
    assert_eq!((gone.len(), left.len()), (40, 5), "{gone:?}, {left:?}");
    left.push("job-coordinator".to_owned());
    wait_for_objects("pods", &left, async || space.pods_of("job").await).await;
    let job = space.jobs().get("job").await.unwrap();
    assert_eq!(job.spec.collector.unwrap().replicas, 5);
    manager.stop().await;
}

#[tokio::test]
async fn f2_concurrent_job_writer_loses_no_update() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let endpoint = Endpoint::start(&space, "endpoint").await;
    space.create(&Job::new("job", 1)).await;
    let declared = space.until_settled("job").await.plan[0].name.clone();

    let (stop, mut stopped) = tokio::sync::watch::channel(());
    let jobs = space.jobs();
    let writer = tokio::spawn(async move {
        let mut count = 0;
        while count <= 10 || !stopped.has_changed().unwrap() {
            count += 1;
            let params = PatchParams::default();
            let label = Patch::Merge(json!({"metadata": {"labels": {"count": count.to_string()}}}));
            jobs.patch("job", &params, &label).await.unwrap();
            // A status field that only this writer sets; the endpoint writes the whole status.
            let field = Patch::Merge(json!({"status": {"failedCoordinator": count.to_string()}}));
            jobs.patch_status("job", &params, &field).await.unwrap();
        }
        stopped.mark_unchanged();
        count
    });
    // A coordinator retries with the same key, as here.
    let answers = join_all((0..10).map(async |i| {
        let key = format!("request-{i}");
        eventually("the replicas are planned", async || {
            let answer = endpoint.add("job", 2, Some(&key)).await;
            match answer.status {
                200 => Ok(answer.pods()),
                503 => Err(format!("{answer:?}")),
                _ => panic!("{answer:?}"),
            }
        })
        .await
    }))
    .await;
    stop.send_replace(());
    let count: i32 = writer.await.unwrap();

    let mut names: Vec<_> = unique_names(&answers).into_iter().collect();
    assert_eq!(names.len(), 20);
    names.extend([declared, "job-coordinator".to_owned()]);
    wait_for_objects("pods", &names, async || space.pods_of("job").await).await;
    space.until_settled("job").await;
    let job = space.jobs().get("job").await.unwrap();
    assert_eq!(job.metadata.labels.unwrap()["count"], count.to_string());
    assert_eq!(
        job.status.unwrap().failed_coordinator,
        Some(count.to_string())
    );
    manager.stop().await;
}
