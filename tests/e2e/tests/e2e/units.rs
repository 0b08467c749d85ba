//! Units on a real cluster: replicas of several pods survive the loss of any of them. The loss of a
//! node is in [`crate::nodes`].

use di_api::{DIJob, DIJobStatus, UnitRestart};
use di_e2e::{Namespace, eventually, idle_job, is_running, owned_pods, status};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::lifecycle::end_pod;

/// The positions of all pods of a unit.
pub(crate) const ALL: &[usize] = &[0, 1, 2];

/// An idle job with one unit of three collectors.
pub(crate) fn unit_job(name: &str, restart: UnitRestart) -> DIJob {
    let mut job = idle_job(name, 1, 0);
    let unit = json!({"size": ALL.len(), "restart": restart});
    job.spec.collector.as_mut().unwrap().unit = serde_json::from_value(unit).unwrap();
    job
}

/// Names of the pods of the unit, the leader first. Empty while the unit is not ready or not listed.
fn listed_unit(status: &DIJobStatus) -> Vec<String> {
    let wanted = status.plan.iter().filter(|entry| entry.is_wanted());
    let mut pods: Vec<_> = wanted.collect();
    pods.sort_by_key(|entry| entry.unit.as_ref().map(|place| place.index));
    let is_listed = pods.first().is_some_and(|leader| leader.listed);
    if !is_listed || status.collectors_ready.as_deref() != Some("1/1") {
        return Vec::new();
    }
    pods.iter().map(|entry| entry.name.clone()).collect()
}

/// Waits until the unit of a new job is ready and listed.
pub(crate) async fn wait_for_unit(ns: &Namespace, job: &str) -> Vec<String> {
    let none = vec![String::new(); ALL.len()];
    wait_for_other_pods(ns, job, &none, ALL).await
}

/// Waits until the unit is ready and listed, and has other pods than `before` at these positions
/// only. Returns its pods.
pub(crate) async fn wait_for_other_pods(
    ns: &Namespace,
    job: &str,
    before: &[String],
    positions: &[usize],
) -> Vec<String> {
    let is_replaced = |status: &DIJobStatus| {
        let unit = listed_unit(status);
        let is_right = |i: usize| (unit[i] != before[i]) == positions.contains(&i);
        unit.len() == before.len() && (0..unit.len()).all(is_right)
    };
    let description = format!("{job}: other pods at {positions:?}");
    let status = eventually(&description, || status(ns, job), is_replaced).await;
    assert_eq!((status.collectors, status.restarts), (1, 0));
    listed_unit(&status)
}

/// Waits until no other collectors run than the pods of the unit, and returns these.
pub(crate) async fn wait_for_unit_alone(ns: &Namespace, job: &str, unit: &[String]) -> Vec<Pod> {
    let running = |pods: &[Pod]| {
        let is_collector = |pod: &&Pod| pod.labels()["replica-type"] == "collector";
        let running = pods.iter().filter(|pod| is_running(pod));
        let mut running: Vec<Pod> = running.filter(is_collector).cloned().collect();
        running.sort_by_key(|pod| pod.labels()["unit-index"].clone());
        running
    };
    let is_alone = |pods: &Vec<Pod>| {
        let names: Vec<_> = running(pods).iter().map(ResourceExt::name_any).collect();
        names == unit
    };
    let pods = eventually("no others run", || owned_pods(ns, job), is_alone).await;
    let pods = running(&pods);
    let has_leader = |pod: &Pod| pod.labels()["unit-name"] == unit[0];
    assert!(pods.iter().all(has_leader), "{pods:#?}");
    pods
}

#[tokio::test]
async fn unit_survives_loss_of_leader_or_of_another_pod() {
    Namespace::with("units", |ns| async move {
        let rows = [
            (UnitRestart::Unit, 0, ALL),
            (UnitRestart::Unit, 2, ALL),
            (UnitRestart::Pod, 0, ALL),
            (UnitRestart::Pod, 2, &[2][..]),
        ];
        let job_of =
            |restart: UnitRestart, lost: usize| format!("{restart:?}-{lost}").to_lowercase();
        for (restart, lost, _) in rows {
            ns.submit(&unit_job(&job_of(restart, lost), restart)).await;
        }
        for (restart, lost, replaced) in rows {
            let job = job_of(restart, lost);
            let before = wait_for_unit(&ns, &job).await;
            let generation = status(&ns, &job).await.membership_generation;
            end_pod(&ns, &before[lost], "1").await;
            let after = wait_for_other_pods(&ns, &job, &before, replaced).await;
            assert!(status(&ns, &job).await.membership_generation > generation);
            wait_for_unit_alone(&ns, &job, &after).await;
            let pods = owned_pods(&ns, &job).await;
            let is_kept = pods.iter().any(|pod| pod.name_any() == before[lost]);
            assert!(is_kept, "the failed pod, for its log");
        }
    })
    .await;
}
