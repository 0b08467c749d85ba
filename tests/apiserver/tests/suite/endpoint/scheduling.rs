//! An add waits for the scheduler's result, but only for a limited time.

use std::time::{Duration, Instant};

use di_apiserver_tests::{Endpoint, Job, Kubelet, Space, eventually, report_unschedulable, run};
use di_replicas::Settings;

/// Starts an endpoint with this wait, and a job without replicas.
async fn start_world(scheduling_wait: Duration) -> (Space, Endpoint) {
    let space = Space::new().await.without_random_faults("it is timed");
    let settings = Settings {
        allow_anonymous: true,
        scheduling_wait,
        request_timeout: Duration::from_secs(120),
        ..Settings::default()
    };
    let endpoint = Endpoint::start_with(&space, "endpoint", settings).await;
    space.create(&Job::new("job", 0)).await;
    (space, endpoint)
}

#[tokio::test]
async fn add_returns_once_pods_are_ready_or_unschedulable() {
    let limit = Duration::from_secs(60);
    let (space, endpoint) = start_world(limit).await;
    let _kubelet = Kubelet::reaping(&space);
    let manager = space.manager("manager");
    let began = Instant::now();
    let judged = async {
        let collectors = eventually("their pods are there", async || {
            let mut pods = space.pods_of("job").await;
            pods.retain(|name, _| name.contains("-collector-"));
            let names: Vec<_> = pods.into_keys().collect();
            if names.len() == 3 {
                Ok(names)
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await;
        let pods = space.pods();
        run(&pods, &collectors[0]).await;
        run(&pods, &collectors[2]).await;
        // Update this pod last: a cache that has it also has the others.
        report_unschedulable(&pods, &collectors[1]).await;
        collectors
    };
    let (answer, mut collectors) = tokio::join!(endpoint.add("job", 3, None), judged);
    assert!(began.elapsed() < limit, "{:?}", began.elapsed());
    assert_eq!(answer.pods(), collectors);
    let without_room = collectors.remove(1);
    assert_eq!(endpoint.list("job").await.pods(), collectors);
    // The unschedulable pod is not ready, so it is removed first.
    assert_eq!(endpoint.remove("job", 1).await.pods(), [without_room]);
    assert_eq!(endpoint.list("job").await.pods(), collectors);
    manager.stop().await;
}

#[tokio::test]
async fn add_without_scheduler_returns_at_the_limit() {
    let limit = Duration::from_secs(1);
    let (space, endpoint) = start_world(limit).await;
    let manager = space.manager("manager");
    let began = Instant::now();
    let added = endpoint.add("job", 3, None).await.pods();
    assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
    assert_eq!(added.len(), 3);
    // The endpoint may know the plan before the pods.
    endpoint.until_listed("job", &added).await;
    manager.stop().await;
}
