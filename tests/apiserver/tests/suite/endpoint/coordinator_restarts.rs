//! Coordinators that restart and request their replicas again.
//! See docs/decisions/0009.

use std::{net::IpAddr, time::Duration};

use di_apiserver_tests::{
    Caller, Endpoint, Job, Kubelet, Space, eventually, exit, give_address, report_restarts,
};
use di_replicas::Settings;
use kube::ResourceExt;
use tokio::time::timeout;

const ADDRESS: &str = "127.0.8.1";
const NEXT_ADDRESS: &str = "127.0.8.2";
const COORDINATOR: &str = "job-coordinator";

/// Starts an endpoint that waits this long for the kubelet's restart count.
async fn start_endpoint(space: &Space, agent: &str, kubelet_wait: Duration) -> Endpoint {
    let settings = Settings {
        kubelet_wait,
        scheduling_wait: Duration::ZERO,
        ..Settings::default()
    };
    Endpoint::start_with(space, agent, settings).await
}

fn caller_from(endpoint: &Endpoint, address: &str) -> Caller {
    endpoint.with_source_ip(address.parse::<IpAddr>().unwrap())
}

fn job_with_restart_policy() -> Job {
    Job::new("job", 0)
        .with(|spec| spec["coordinator"]["template"]["spec"]["restartPolicy"] = "OnFailure".into())
}

#[tokio::test]
async fn restarted_container_gets_its_replicas_before_kubelet_report() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let patient = start_endpoint(&space, "patient", Duration::from_secs(60)).await;
    space.create(&job_with_restart_policy()).await;
    space.until_settled("job").await;
    give_address(&space.pods(), COORDINATOR, ADDRESS).await;
    let coordinator = caller_from(&patient, ADDRESS);
    let first = coordinator.add("job", 2, None).await.pods();

    let again = coordinator.add("job", 2, None);
    tokio::pin!(again);
    // The endpoint must not respond before it knows which instance sent the request.
    assert!(timeout(Duration::from_secs(1), &mut again).await.is_err());
    report_restarts(&space.pods(), COORDINATOR, 1).await;
    assert_eq!(again.await.pods(), first, "the fleet does not double");

    // The same instance gets new replicas for another request.
    let hasty = start_endpoint(&space, "hasty", Duration::ZERO).await;
    let more = eventually("more", async || {
        let added = caller_from(&hasty, ADDRESS).add("job", 1, None).await;
        match added.status {
            200 => Ok(added.pods()),
            _ => Err(format!("{added:?}")),
        }
    })
    .await;
    assert!(!first.contains(&more[0]));
    assert_eq!(space.until_settled("job").await.collectors, 3);
    manager.stop().await;
}

#[tokio::test]
async fn restarted_container_reusing_key_gets_replicas_once() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&job_with_restart_policy()).await;
    space.until_settled("job").await;
    give_address(&space.pods(), COORDINATOR, ADDRESS).await;
    // A new endpoint knows the restart count from its first list.
    let before = start_endpoint(&space, "before", Duration::ZERO).await;
    let first = caller_from(&before, ADDRESS)
        .add("job", 2, Some("start"))
        .await;
    let first = first.pods();
    report_restarts(&space.pods(), COORDINATOR, 1).await;
    let after = start_endpoint(&space, "after", Duration::ZERO).await;
    let coordinator = caller_from(&after, ADDRESS);
    let again = coordinator.add("job", 2, Some("start")).await;
    assert_eq!(again.pods(), first);
    let more = coordinator.add("job", 1, Some("more")).await.pods();
    assert!(!first.contains(&more[0]), "{first:?}, and {more:?}");
    assert_eq!(space.until_settled("job").await.collectors, 3);
    manager.stop().await;
}

#[tokio::test]
async fn recreated_coordinator_gets_its_replicas_without_wait() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    let patient = start_endpoint(&space, "patient", Duration::from_secs(60)).await;
    let job = Job::new("job", 0).with(|spec| spec["backoffLimit"] = 1.into());
    space.create(&job).await;
    space.until_settled("job").await;
    give_address(&space.pods(), COORDINATOR, ADDRESS).await;
    let coordinator = caller_from(&patient, ADDRESS);
    let first = coordinator.add("job", 2, None).await.pods();
    let second = timeout(Duration::from_secs(30), coordinator.add("job", 1, None));
    let mut all = [first, second.await.unwrap().pods()].concat();
    all.sort();

    let uid = async || {
        space
            .pods()
            .get(COORDINATOR)
            .await
            .ok()
            .and_then(|pod| pod.uid())
    };
    let before = uid().await;
    exit(&space.pods(), COORDINATOR, 1).await;
    eventually("another coordinator", async || match uid().await {
        Some(now) if Some(&now) != before.as_ref() => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    space.until_settled("job").await;
    give_address(&space.pods(), COORDINATOR, NEXT_ADDRESS).await;
    let next = caller_from(&patient, NEXT_ADDRESS);
    assert_eq!(next.add("job", 3, None).await.pods(), all);
    assert_eq!(space.until_settled("job").await.collectors, 3);
    manager.stop().await;
}
