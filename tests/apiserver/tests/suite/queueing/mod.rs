//! Jobs in a queue of Kueue, with a stand-in for Kueue's controller.

mod admission;
mod api_and_permissions;
mod kills;
mod pod_sets;
mod preemption;
mod reclaimed_quota;
mod requested_replicas;
mod stops;

use std::collections::BTreeSet;

use di_api::{ConditionType, DIJob, DIJobStatus, Phase, PlanEntry, find_condition};
use di_apiserver_tests::{Kubelet, Kueue, Manager, Server, Space, condition_reason};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

/// Starts a server for one test, since the others need the APIs of Kueue and of PodGroups.
pub(crate) async fn start_server() -> &'static Server {
    Box::leak(Box::new(Server::installed().await))
}

/// Creates a namespace on the server of one test.
pub(crate) async fn space_on(server: &'static Server) -> Space {
    let space = Space::on(server).await;
    space.without_random_faults("each failed discovery delays it")
}

/// Starts Kueue with a quota of this number of pods, a kubelet and a manager.
async fn start_with_quota(pods: usize) -> (Space, Kueue, Kubelet, Manager) {
    let space = Space::new().await;
    let kueue = Kueue::start(&space, pods).await;
    let kubelet = Kubelet::running(&space);
    let manager = space.manager("manager");
    (space, kueue, kubelet, manager)
}

/// Name of the Workload of the coordinator and the declared replicas.
fn base_workload(job: &DIJob) -> String {
    format!("dijob-{}-{}", job.name_any(), &job.uid().unwrap()[..5])
}

/// Reason and message of the condition `Admitted`, if it is False.
fn waiting_reason(status: &DIJobStatus) -> Option<(&str, &str)> {
    let admitted = find_condition(&status.conditions, ConditionType::Admitted)?;
    let is_waiting = admitted.status == "False";
    is_waiting.then_some((admitted.reason.as_str(), admitted.message.as_str()))
}

/// Waits until a job is in phase Queued for this reason and has no pods, and returns its status.
pub(crate) async fn wait_until_queued(space: &Space, job: &str, reason: &str) -> DIJobStatus {
    let is_queued = |status: &DIJobStatus| {
        let waiting = waiting_reason(status).map(|(reason, _)| reason);
        status.phase == Some(Phase::Queued)
            && waiting == Some(reason)
            && status.reason.as_deref() == Some(reason)
    };
    let status = space.until(job, reason, is_queued).await;
    assert_eq!((&status.queueing, &status.start_time), (&None, &None));
    let pods = space.pods_of(job).await;
    assert!(pods.is_empty(), "{:?}", pods.keys());
    status
}

/// Waits until a Workload says that its job has succeeded.
async fn wait_until_finished(kueue: &Kueue, workload: &str) {
    kueue
        .until_workload(workload, "it is finished", |workload| {
            condition_reason(workload, "Finished") == Some("Succeeded")
        })
        .await;
}

/// Waits until another collector has replaced this one, and returns the status.
pub(crate) async fn until_replaced(space: &Space, job: &str, lost: &str) -> DIJobStatus {
    let is_replaced = |status: &DIJobStatus| {
        let mut plan = status.plan.iter();
        let is_planned = plan.any(|entry| entry.replaces.as_deref() == Some(lost));
        let ready = format!("{0}/{0}", status.collectors);
        is_planned && status.collectors_ready == Some(ready)
    };
    let description = format!("a replacement of {lost}");
    space.until(job, &description, is_replaced).await
}

/// Whether a job runs with these ready collectors, such as `2/2`.
pub(crate) fn runs_with(status: &DIJobStatus, collectors: &str) -> bool {
    let ready = status.collectors_ready.as_deref();
    status.phase == Some(Phase::Running) && ready == Some(collectors)
}

pub(crate) async fn set_collectors(space: &Space, job: &str, replicas: usize) {
    let patch = Patch::Merge(json!({"spec": {"collector": {"replicas": replicas}}}));
    let params = PatchParams::default();
    space.jobs().patch(job, &params, &patch).await.unwrap();
}

/// Names of the desired replicas.
pub(crate) fn plan_names(status: &DIJobStatus) -> BTreeSet<&str> {
    let plan = status.plan.iter().filter(|entry| entry.is_wanted());
    plan.map(|entry| entry.name.as_str()).collect()
}

fn find_entry<'a>(status: &'a DIJobStatus, name: &str) -> Option<&'a PlanEntry> {
    status.plan.iter().find(|entry| entry.name == name)
}
