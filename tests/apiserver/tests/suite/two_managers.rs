//! Managers that come and go, and two at a time: names make what they do safe to repeat.

use std::{collections::BTreeMap, time::Duration};

use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, Space, eventually, exit};

/// How often each pod was made.
pub(crate) async fn made(space: &Space) -> BTreeMap<String, usize> {
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

#[tokio::test]
async fn a_manager_that_is_stopped_before_it_knows_the_jobs_ends_at_once() {
    let space = Space::new().await;
    let manager = space.manager("manager");
    let stopped = tokio::time::timeout(Duration::from_secs(60), manager.stop()).await;
    assert!(stopped.is_ok(), "it hangs");
}
