//! More than one manager at a time, and managers that end in the middle of their work: names make what they do safe to repeat.

use std::collections::BTreeMap;

use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, Manager, Space, eventually, exit, fused};

/// How often each pod was made.
async fn made(space: &Space) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for write in space.writes().await {
        if write.is("create", "pods") && write.code == 201 {
            *made.entry(write.name).or_default() += 1;
        }
    }
    made
}

async fn check_nothing_was_made_twice(space: &Space, job: &str, collectors: usize) {
    let mut planned: Vec<_> = space
        .until_settled(job)
        .await
        .plan
        .into_iter()
        .map(|e| e.name)
        .collect();
    assert_eq!(planned.len(), collectors);
    planned.push(format!("{job}-coordinator"));
    planned.sort();
    let made = made(space).await;
    assert!(
        made.keys().eq(&planned),
        "made {:?}, planned {planned:?}",
        made.keys()
    );
    assert!(made.values().all(|times| *times == 1), "{made:?}");
}

#[tokio::test]
async fn f36_two_managers_at_once_make_no_pod_too_many() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let managers = ["one", "two"].map(|agent| space.manager(agent));
    space.create(&Job::new("contested", 20)).await;
    check_nothing_was_made_twice(&space, "contested", 20).await;
    exit(&space.pods(), "contested-coordinator", 0).await;
    space.until_phase("contested", Phase::Succeeded).await;
    eventually("only the coordinator is left", async || {
        let left =
            space.pods_of("contested").await.len() + space.services_of("contested").await.len();
        if left == 1 {
            Ok(())
        } else {
            Err(left.to_string())
        }
    })
    .await;
    for manager in managers {
        manager.stop().await;
    }
}

/// Has a manager die right after its nth write arrived, whose answer it never sees, and another go on.
async fn interrupted_after(writes: usize) {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let client = space.server.client_of_manager("first", &space.namespace);
    let (client, mut burnt) = fused(client, &space.namespace, writes);
    let first = Manager::start(client);
    space.create(&Job::new("job", 3)).await;
    burnt.wait_for(|burnt| *burnt).await.unwrap();
    first.kill().await;

    let second = space.manager("second");
    check_nothing_was_made_twice(&space, "job", 3).await;
    // Pods are made first.
    eventually("a service for each pod", async || {
        let (services, pods) = (space.services_of("job").await, space.pods_of("job").await);
        if services.keys().eq(pods.keys()) {
            Ok(())
        } else {
            Err(format!("after {writes}: {:?}", services.keys()))
        }
    })
    .await;
    exit(&space.pods(), "job-coordinator", 0).await;
    space.until_phase("job", Phase::Succeeded).await;
    second.stop().await;
    let made = made(&space).await;
    assert_eq!(made.len(), 4, "after {writes}: {made:?}");
}

#[tokio::test]
async fn a_manager_that_dies_after_any_of_its_writes_is_succeeded_without_a_pod_too_many() {
    // A job of three collectors takes so many writes, events among them.
    for group in [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]] {
        futures::future::join_all(group.map(interrupted_after)).await;
    }
}
