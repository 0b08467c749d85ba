//! A short scenario: the job exceeds its deadline, its coordinator is ended, and the TTL deletes
//! the job.
//! See docs/decisions/0017.

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{Job, Kubelet, ProxyAction, Space, eventually, exit};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    faults::job_run::{AT_ONCE, FinalState, JOB, JobRun, is_running_with, wait_for_end},
    faults::phase_monitor::PhaseMonitor,
    faults::scenario::{Scenario, inject_at_each_write, kill_at_the_end, kill_at_writes},
};

struct PastDeadline;

async fn change(space: &Space, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    let params = PatchParams::default();
    space.jobs().patch(JOB, &params, &patch).await.unwrap();
}

impl Scenario for PastDeadline {
    const LEFT: i32 = 1;

    fn reference_cell() -> &'static OnceCell<JobRun> {
        static REFERENCE: OnceCell<JobRun> = OnceCell::const_new();
        &REFERENCE
    }

    async fn drive(space: &Space, is_over: impl Fn(&FinalState) -> bool) -> FinalState {
        let _kubelet = Kubelet::running(space);
        let phases = PhaseMonitor::start(space);
        space.create(&Job::new(JOB, 1)).await;
        let ready = |s: &DIJobStatus| is_running_with(s, "1/1");
        space.until(JOB, "all are ready", ready).await;
        change(space, json!({"activeDeadlineSeconds": 1})).await;
        space.until_phase(JOB, Phase::Failed).await;
        eventually("its coordinator has a deadline", async || {
            let pod = space.pods().get("job-coordinator").await;
            let spec = pod.map_err(|error| error.to_string())?.spec.unwrap();
            spec.active_deadline_seconds.ok_or_else(String::new)
        })
        .await;
        exit(&space.pods(), "job-coordinator", 143).await;
        let end = wait_for_end(space, is_over).await;
        phases.check().await;

        change(space, json!({"ttlSecondsAfterFinished": 0})).await;
        eventually("the job goes", async || {
            let found = space.jobs().get_opt(JOB).await;
            let found = found.map_err(|error| error.to_string())?;
            found.map_or(Ok(()), |job| Err(format!("{:?}", job.status)))
        })
        .await;
        end
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_write_past_deadline_reaches_same_end() {
    inject_at_each_write::<PastDeadline>(
        &[ProxyAction::Rejected(409), ProxyAction::Unanswered],
        AT_ONCE,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_killed_past_deadline_reaches_same_end() {
    let reference_cell = PastDeadline::reference_run().await;
    let requests = reference_cell.requests.iter();
    let deletes = requests
        .filter(|request| request.method == "DELETE" && request.target.contains("/dijobs/"));
    assert_eq!(deletes.count(), 1, "the job goes at the first try");
    let writes = reference_cell.writes();
    kill_at_writes::<PastDeadline>(1..=writes, AT_ONCE, 20).await;
    kill_at_the_end::<PastDeadline>().await;
}
