//! The orchestrator, Kueue and the gang scheduler are killed at once, while jobs wait for them,
//! start, and are preempted.

use di_api::{ConditionType, DIJobStatus, Phase, find_condition, is_condition_true};
use di_e2e::{Namespace, eventually, idle_job, job, status, wait_for_phase};
use di_gang_stand_in::GangScheduler;

use super::{kill_orchestrator, pod_uids};
use crate::{
    gang::{Gpus, gang, kill_scheduler, start_scheduler, wait_for_gang},
    lifecycle::{end_pod, wait_for_running_pods},
    queueing::{TestQueue, URGENT, wait_until_queued},
};

/// The programs that start the pods of jobs.
struct Controllers {
    ns: Namespace,
    queue: TestQueue,
    scheduler: Option<GangScheduler>,
}

impl Controllers {
    async fn kill(&mut self) {
        tokio::join!(
            kill_orchestrator(&self.ns),
            self.queue.kill_controller(),
            kill_scheduler(&self.ns, &mut self.scheduler),
        );
    }
}

fn is_admitted(status: &DIJobStatus) -> bool {
    is_condition_true(&status.conditions, ConditionType::Admitted)
}

/// Whether a job has lost its quota. Its pods may still terminate.
fn is_evicted(status: &DIJobStatus) -> bool {
    let admitted = find_condition(&status.conditions, ConditionType::Admitted);
    admitted.is_some_and(|admitted| admitted.status == "False")
}

async fn end_job(ns: &Namespace, job: &str) {
    end_pod(ns, &format!("{job}-coordinator"), "0").await;
    let ended = wait_for_phase(ns, job, Phase::Succeeded).await;
    assert_eq!(ended.restarts, 0, "{job}");
}

#[tokio::test]
async fn queued_jobs_and_gang_survive_kills_of_controllers() {
    Namespace::with("shared", |ns| async move {
        let gpus = Gpus::create(&ns, 0).await;
        // For one of the two queued jobs.
        let queue = TestQueue::create(&ns, "20m", &[]).await;
        let scheduler = start_scheduler(&ns);
        let mut controllers = Controllers {
            ns: ns.clone(),
            queue,
            scheduler,
        };
        let mut together = idle_job("together", 1, 0);
        gpus.request(&mut together.spec.collector.as_mut().unwrap().template, 1);
        together.spec.scheduling = Some(gang(None));
        ns.submit(&together).await;
        let [first, second] = ["first", "second"].map(|name| idle_job(name, 1, 0));
        controllers.queue.submit(first, None).await;
        wait_for_running_pods(&ns, "first", 2).await;
        wait_for_gang(&ns, "together", 2).await;

        controllers.queue.submit(second, None).await;
        controllers.kill().await;
        wait_until_queued(&ns, "second", "QueueWaiting").await;

        gpus.set(Some(1)).await;
        end_job(&ns, "first").await;
        eventually("admitted", || status(&ns, "second"), is_admitted).await;
        controllers.kill().await;
        wait_for_running_pods(&ns, "second", 2).await;
        let placed = wait_for_running_pods(&ns, "together", 2).await;

        let urgent = job("urgent", &["hold"]);
        controllers.queue.submit(urgent, Some(URGENT)).await;
        eventually("evicted", || status(&ns, "second"), is_evicted).await;
        controllers.kill().await;
        wait_for_phase(&ns, "urgent", Phase::Running).await;
        wait_until_queued(&ns, "second", "QueuePreempted").await;
        controllers.queue.end_urgent_job().await;
        wait_for_running_pods(&ns, "second", 2).await;

        end_job(&ns, "second").await;
        let still = wait_for_running_pods(&ns, "together", 2).await;
        assert_eq!(pod_uids(&still), pod_uids(&placed));
        end_job(&ns, "together").await;
        gpus.set(None).await;
        controllers.queue.remove().await;
    })
    .await;
}
