//! A longer scenario than [`job_run`](super::job_run): the coordinator restarts, the job is scaled,
//! suspended and resumed, and has a learner group; no pod remains. It ends as without faults, even
//! if its manager is killed.

use di_api::{DIJobStatus, Phase};
use di_apiserver_tests::{
    Job, Kubelet, Space, common_nodes, create_aggregator_config, exit, wait_for_objects,
};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::{
    faults::job_run::{
        AT_ONCE, FinalState, JOB, JobRun, ProxiedManager, short_timeout_settings, wait_for_end,
    },
    faults::phase_monitor::PhaseMonitor,
    faults::scenario::{Scenario, kill_at_the_end, kill_at_writes},
    suspend::set_suspended,
};

struct LongLifecycle;

fn ready(status: &DIJobStatus, collectors: &str) -> bool {
    status.phase == Some(Phase::Running)
        && status.collectors_ready.as_deref() == Some(collectors)
        && status.learners_ready.as_deref() == Some("1/1")
}

impl Scenario for LongLifecycle {
    const LEFT: i32 = 0;

    fn reference_cell() -> &'static OnceCell<JobRun> {
        static REFERENCE: OnceCell<JobRun> = OnceCell::const_new();
        &REFERENCE
    }

    async fn start() -> ProxiedManager {
        let space = Space::new().await;
        common_nodes(&space).await;
        create_aggregator_config(&space).await;
        ProxiedManager::start_in(space, short_timeout_settings())
    }

    async fn drive(space: &Space, is_over: impl Fn(&FinalState) -> bool) -> FinalState {
        const COORDINATOR: &str = "job-coordinator";
        let _kubelet = Kubelet::running(space);
        let phases = PhaseMonitor::start(space);
        let gpus = json!({"limits": {"nvidia.com/gpu": "6"}});
        let job = Job::new(JOB, 2)
            .learners_with(1, &gpus)
            .clean_pod_policy("All")
            .with(|spec| spec["backoffLimit"] = 1.into());
        space.create(&job).await;
        space.until(JOB, "all are ready", |s| ready(s, "2/2")).await;

        exit(&space.pods(), COORDINATOR, 1).await;
        let again = |s: &DIJobStatus| s.restarts == 1 && ready(s, "2/2");
        space
            .until(JOB, "the coordinator has restarted", again)
            .await;

        let fewer = Patch::Merge(json!({"spec": {"collector": {"replicas": 1}}}));
        let params = PatchParams::default();
        space.jobs().patch(JOB, &params, &fewer).await.unwrap();
        // One collector, one aggregator and two ddp learners.
        let fewer = |s: &DIJobStatus| s.plan.len() == 4 && ready(s, "1/1");
        let before = space.until(JOB, "one collector is removed", fewer).await;

        set_suspended(space, JOB, true).await;
        space.until_phase(JOB, Phase::Suspended).await;
        wait_for_objects("services", &[], async || space.services_of(JOB).await).await;
        set_suspended(space, JOB, false).await;
        let after = space
            .until(JOB, "the job has resumed", |s| ready(s, "1/1"))
            .await;
        let names = |status: &DIJobStatus| {
            let plan = status.plan.iter();
            plan.map(|entry| entry.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&after), names(&before));
        assert_eq!(after.restarts, 1);

        exit(&space.pods(), COORDINATOR, 0).await;
        space.until_phase(JOB, Phase::Succeeded).await;
        let end = wait_for_end(space, is_over).await;
        phases.check().await;
        end
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_killed_in_long_lifecycle_reaches_same_end() {
    let writes = LongLifecycle::reference_run().await.writes();
    // Consecutive writes are of the same kind, so kill at every seventh one only.
    kill_at_writes::<LongLifecycle>((1..=writes).step_by(7), AT_ONCE, 40).await;
    kill_at_the_end::<LongLifecycle>().await;
}
