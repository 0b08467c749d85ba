//! A longer life of a job than that of [`life`](crate::life): its coordinator is started again, it is scaled, held and let go on, and it has a
//! unit. It too ends as an undisturbed one does, whatever befalls its manager.

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{Job, Kubelet, Space, common_nodes, configure, exists, exit};
use futures::{StreamExt, stream};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    held::hold,
    life::{AT_ONCE, End, JOB, Life, Managed, comes_to},
};

static REFERENCE: OnceCell<Life> = OnceCell::const_new();

async fn start() -> Managed {
    let managed = Managed::start().await;
    common_nodes(&managed.space).await;
    configure(&managed.space).await;
    managed
}

fn ready(status: &DIJobStatus, collectors: &str) -> bool {
    status.phase == Some(Phase::Running)
        && status.collectors_ready.as_deref() == Some(collectors)
        && status.learners_ready.as_deref() == Some("1/1")
}

async fn lead(space: &Space, is_over: impl Fn(&End) -> bool) -> End {
    const COORDINATOR: &str = "job-coordinator";
    let _kubelet = Kubelet::running(space);
    let gpus = json!({"limits": {"nvidia.com/gpu": "6"}});
    let job = Job::new(JOB, 2)
        .learners_with(1, &gpus)
        .with(|spec| spec["backoffLimit"] = 1.into());
    space.create(&job).await;
    space.until(JOB, "all are ready", |s| ready(s, "2/2")).await;

    exit(&space.pods(), COORDINATOR, 1).await;
    let again = |s: &DIJobStatus| s.restarts == 1 && ready(s, "2/2");
    space.until(JOB, "it is started again", again).await;

    let fewer = Patch::Merge(json!({"spec": {"collector": {"replicas": 1}}}));
    let params = PatchParams::default();
    space.jobs().patch(JOB, &params, &fewer).await.unwrap();
    // One collector, an aggregator, and two ddp learners.
    let fewer = |s: &DIJobStatus| s.plan.len() == 4 && ready(s, "1/1");
    let before = space.until(JOB, "one is let go of", fewer).await;

    hold(space, JOB, true).await;
    space.until_phase(JOB, Phase::Suspended).await;
    exists("services", &[], async || space.services_of(JOB).await).await;
    hold(space, JOB, false).await;
    let after = space.until(JOB, "it goes on", |s| ready(s, "1/1")).await;
    let names = |status: &DIJobStatus| {
        let plan = status.plan.iter();
        plan.map(|entry| entry.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&after), names(&before));
    assert_eq!(after.restarts, 1);

    exit(&space.pods(), COORDINATOR, 0).await;
    space.until_phase(JOB, Phase::Succeeded).await;
    comes_to(space, is_over).await
}

async fn reference() -> &'static Life {
    let lived = REFERENCE.get_or_init(async || {
        let managed = start().await;
        let end = lead(&managed.space, |end| end.is_complete(1)).await;
        managed.took(end).await
    });
    lived.await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_may_die_at_writes_all_over_an_eventful_life() {
    let writes = reference().await.writes();
    // Writes come in bursts of one kind, and each life takes its time.
    let cases = (1..=writes)
        .step_by(7)
        .zip([false, true].into_iter().cycle());
    stream::iter(cases)
        .map(|(at, arrives)| async move {
            let reference = reference().await;
            let managed = start().await;
            let space = managed.space.clone();
            let life = lead(&space, |end| *end == reference.end);
            let lived = Box::pin(managed.interrupted(at, arrives, life)).await;
            let what = format!("died at write {at}, which arrives: {arrives}");
            lived.check_against(reference, &what, 40);
        })
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
}
