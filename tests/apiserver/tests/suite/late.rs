//! A short life of a job that is late: it runs longer than it may, what works is ended, and when its time is over the job itself goes.

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{Fate, Job, Kubelet, Space, eventually, exit};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    course::{Course, dies_at, dies_at_the_end, each_write_meets},
    life::{AT_ONCE, End, JOB, Life, comes_to, wanted_and_ready},
    phases::Phases,
};

struct Late;

async fn change(space: &Space, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    let params = PatchParams::default();
    space.jobs().patch(JOB, &params, &patch).await.unwrap();
}

impl Course for Late {
    const LEFT: i32 = 1;

    fn undisturbed() -> &'static OnceCell<Life> {
        static UNDISTURBED: OnceCell<Life> = OnceCell::const_new();
        &UNDISTURBED
    }

    async fn lead(space: &Space, is_over: impl Fn(&End) -> bool) -> End {
        let _kubelet = Kubelet::running(space);
        let phases = Phases::of(space);
        space.create(&Job::new(JOB, 1)).await;
        let ready = |s: &DIJobStatus| wanted_and_ready(s, "1/1");
        space.until(JOB, "all are ready", ready).await;
        change(space, json!({"activeDeadlineSeconds": 1})).await;
        space.until_phase(JOB, Phase::Failed).await;
        eventually("its coordinator is told to end", async || {
            let pod = space.pods().get("job-coordinator").await;
            let told = pod.map_err(|error| error.to_string())?.spec.unwrap();
            told.active_deadline_seconds.ok_or_else(String::new)
        })
        .await;
        exit(&space.pods(), "job-coordinator", 143).await;
        let end = comes_to(space, is_over).await;
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
async fn each_write_for_a_job_that_is_late_may_fail() {
    each_write_meets::<Late>(&[Fate::Refused(409), Fate::Unanswered], AT_ONCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_may_die_at_each_write_for_a_job_that_is_late() {
    let undisturbed = Late::reference().await;
    let came = undisturbed.came.iter();
    let deletes = came.filter(|came| came.method == "DELETE" && came.target.contains("/dijobs/"));
    assert_eq!(deletes.count(), 1, "the job goes at the first try");
    let writes = undisturbed.writes();
    dies_at::<Late>(1..=writes, AT_ONCE, 20).await;
    dies_at_the_end::<Late>().await;
}
