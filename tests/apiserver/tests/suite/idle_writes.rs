//! Settled jobs cause no writes.

use di_api::Phase;
use di_apiserver_tests::{Job, Kubelet, Space, exit};

use crate::job_states::{self, STATES};

#[tokio::test]
async fn settled_jobs_get_no_writes() {
    let space = Space::new().await;
    let space = space.without_random_faults("failed writes are repeated later");
    let _kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    space.create(&Job::new("settled", 4).learners(1)).await;
    job_states::make_all(&space).await;
    space.until_settled("settled").await;
    space.until_event("settled", "CoordinatorRunning").await;
    // Events of the settled jobs may be pending, so count only after the first other job.
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
    let all = [&STATES[..], &["settled"]].concat();
    let touching: Vec<_> = after
        .iter()
        .filter(|write| all.iter().any(|job| write.concerns_job(job)))
        .collect();
    assert!(touching.is_empty(), "{touching:?}");
    assert!(after.iter().any(|write| write.concerns_job("other-d")));
}
