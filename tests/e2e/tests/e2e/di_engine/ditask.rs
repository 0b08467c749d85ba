//! `ditask --platform k8s` of DI-engine in the pods of a unit.

use di_api::{DIJob, Phase};
use di_e2e::{Namespace, create_programs, kubectl_di, logs, wait_for_phase};

const MANIFEST: &str = include_str!("../../../../di-engine/ditask.yaml");
/// A manifest of v2alpha1.
const TASKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../di-engine/tasks.yaml");

#[tokio::test]
async fn ditask_connects_the_pods_of_a_unit() {
    Namespace::with("ditask", |ns| async move {
        create_programs(&ns).await;
        let job: DIJob = serde_saphyr::from_str(MANIFEST).unwrap();
        ns.submit(&job).await;
        wait_for_phase(&ns, "ditask", Phase::Succeeded).await;
        let log = logs(&ns, "ditask-coordinator").await;
        assert_eq!(log, "0 learner, 1 learner\n");
    })
    .await;
}

#[tokio::test]
async fn ditask_connects_the_pods_of_a_v2alpha1_job() {
    Namespace::with("tasks", |ns| async move {
        create_programs(&ns).await;
        let created = kubectl_di(&ns, &["create", "-f", TASKS]).await;
        assert_eq!(created.code, Some(0), "{created:?}");
        wait_for_phase(&ns, "tasks", Phase::Succeeded).await;
        let log = logs(&ns, "tasks-coordinator").await;
        let all = "all know all: 0 learner, 1 evaluator, 2 collector, 3 collector";
        assert!(log.lines().any(|line| line == all), "{log}");
    })
    .await;
}
