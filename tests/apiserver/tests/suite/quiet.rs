//! No write when nothing changed.

use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, Space, exit};

#[tokio::test]
async fn a_settled_job_is_not_written_while_others_come_and_go() {
    let space = Space::new().await;
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("settled", 4).learners(1)).await;
    space.until_settled("settled").await;
    // Its events may still be on their way, so the first of the others only marks the time.
    let mut before = None;
    for other in ["other-a", "other-b", "other-c", "other-d"] {
        space.create(&Job::new(other, 2)).await;
        space.until_settled(other).await;
        exit(&space.pods(), &format!("{other}-coordinator"), 0).await;
        space.until_phase(other, Phase::Succeeded).await;
        space.until_event(other, "CoordinatorSucceeded").await;
        before.get_or_insert(space.writes().await.len());
    }
    manager.stop().await;
    let after = space.writes().await.split_off(before.unwrap());
    let touching: Vec<_> = after
        .iter()
        .filter(|write| write.concerns("settled"))
        .collect();
    assert!(touching.is_empty(), "{touching:?}");
    assert!(after.iter().any(|write| write.concerns("other-d")));
}
