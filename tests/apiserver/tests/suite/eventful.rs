//! A longer life of a job than that of [`life`](crate::life): its coordinator is started again, it is scaled, held and let go on, it has a unit,
//! and nothing is to be left of it. It too ends as an undisturbed one does, whatever befalls its manager.

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{Job, Kubelet, Space, common_nodes, configure, exists, exit};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    course::{Course, dies_at, dies_at_the_end},
    held::hold,
    life::{AT_ONCE, End, JOB, Life, Managed, comes_to, settings},
    phases::Phases,
};

struct Eventful;

fn ready(status: &DIJobStatus, collectors: &str) -> bool {
    status.phase == Some(Phase::Running)
        && status.collectors_ready.as_deref() == Some(collectors)
        && status.learners_ready.as_deref() == Some("1/1")
}

impl Course for Eventful {
    const LEFT: i32 = 0;

    fn undisturbed() -> &'static OnceCell<Life> {
        static UNDISTURBED: OnceCell<Life> = OnceCell::const_new();
        &UNDISTURBED
    }

    async fn start() -> Managed {
        let space = Space::new().await;
        common_nodes(&space).await;
        configure(&space).await;
        Managed::start_in(space, settings())
    }

    async fn lead(space: &Space, is_over: impl Fn(&End) -> bool) -> End {
        const COORDINATOR: &str = "job-coordinator";
        let _kubelet = Kubelet::running(space);
        let phases = Phases::of(space);
        let gpus = json!({"limits": {"nvidia.com/gpu": "6"}});
        let job = Job::new(JOB, 2)
            .learners_with(1, &gpus)
            .policy("All")
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
        let end = comes_to(space, is_over).await;
        phases.check().await;
        end
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_may_die_at_writes_all_over_an_eventful_life() {
    let writes = Eventful::reference().await.writes();
    // Writes come in bursts of one kind.
    dies_at::<Eventful>((1..=writes).step_by(7), AT_ONCE, 40).await;
    dies_at_the_end::<Eventful>().await;
}
